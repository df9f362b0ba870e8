import Foundation
import Postgres
import Subscriptions
import Testing

@testable import LedgerStorage

/// An event as its row has it.
struct PublishedEvent: Sendable {
  var kind: LedgerEvent.Kind
  var at: Timestamp
  /// The app's name for the account.
  var account: String?
  var text: String
  var data: PublishedData
}

/// The fields of an event's data that tests read.
struct PublishedData: Decodable, Sendable {
  struct Entitlement: Decodable, Hashable, Sendable {
    var entitlement: String
    var active: Bool
    var state: String
    var access_ends_at: String?
  }

  var transaction_id: String?
  var order_id: String?
  var product_id: String?
  var previous_product_id: String?
  var auto_renewing: Bool?
  var rule: String?
  var because: String?
  var counterpart: String?
  var entitlement: Entitlement?
  var entitlements: [Entitlement]?
}

extension Ledger {
  /// All events, or those of an account, in the order in which they were written.
  func publishedEvents(_ account: String? = nil) async throws -> [PublishedEvent] {
    let rows = try await database.query(
      """
      SELECT e.type, e.occurred_at, a.account_id, e.data
      FROM tenure.event AS e LEFT JOIN tenure.account_by_key AS a USING (account_key)
      ORDER BY e.event_id
      """
    ).decode(String.self, Timestamp.self, String?.self, CompressedText.self)
    return try rows.map { kind, at, account, data in
      let text = data.text
      return PublishedEvent(
        kind: try #require(LedgerEvent.Kind(rawValue: kind)), at: at, account: account, text: text,
        data: try JSONDecoder().decode(PublishedData.self, from: Data(text.utf8)))
    }.filter { account == nil || $0.account == account }
  }

  func publishedKinds(_ account: String? = nil) async throws -> [String] {
    try await publishedEvents(account).map(\.kind.rawValue)
  }

  /// Records the evidence of a poll.
  @discardableResult
  func learn(_ evidence: [Evidence], on date: Double, terms: AccessTerms = .shop) async throws
    -> Bool
  {
    try await polls.record(evidence, polledAs: "poll", at: day(date), terms: terms).isChanged
  }

  /// Records the evidence of a notification.
  func receive(_ evidence: [Evidence], on date: Double, terms: AccessTerms = .shop) async throws {
    let id = UUID().uuidString
    _ = try await notifications.store(
      NewNotification(id: id, version: .two, receivedAt: day(date), body: "signed"),
      processAt: day(date))
    _ = try await notifications.process(
      NotificationStore.VerifiedNotification(id: id, evidence: evidence), at: day(date),
      terms: terms)
  }

  /// Claims a job that is due at its time, or for all accounts.
  func claim(by worker: String, on date: Double) async throws -> Job {
    try #require(
      try await jobs.claimJobs(
        limits: [.clock: 1, .maintenance: 1], worker: worker, at: day(date), lease: .seconds(60)
      ).first)
  }

  /// Runs the jobs that are due by a moment, as a worker does, and new ones that they create.
  func work(until date: Double, terms: AccessTerms = .shop) async throws {
    while true {
      let jobs = try await jobs.claimJobs(
        limits: [.clock: 10, .maintenance: 1], worker: "worker", at: day(date), lease: .seconds(60))
      guard !jobs.isEmpty else { return }
      for job in jobs {
        switch job.kind {
        case .publishEntitlements:
          #expect(try await accounts.publish([job], terms: terms, at: day(date)).isEmpty)
        case .expireOrder: #expect(try await orders.expire([job], at: day(date)).isEmpty)
        case .reconcile: try await maintenance.reconcile(job, terms: terms, at: day(date))
        case .mergeAccount:
          let account = AccountKey(rawValue: try job.subjectID)
          while try await !accounts.continueMerge(of: account, terms: terms, at: day(date)) {}
          try await self.jobs.complete(job)
        default: Issue.record("a job of another kind: \(job.key)")
        }
      }
    }
  }

  /// An account's entitlements and their ends.
  func usable(by account: String, on date: Double, terms: AccessTerms = .shop) async throws
    -> [String: Timestamp?]
  {
    let held = try await holdings.holdings(of: account)
    return Dictionary(
      uniqueKeysWithValues: terms.entitlements(
        of: account, holding: held.holdings, granted: held.grants, at: day(date)
      ).filter(\.isActive).map { ($0.name, $0.accessEndsAt) })
  }
}

/// The state that follows from all events from the beginning.
struct FeedReplay {
  private(set) var usable: [String: [String: Timestamp?]] = [:]

  init(_ events: [PublishedEvent]) throws {
    for event in events {
      guard let account = event.account, let entitlement = event.data.entitlement else { continue }
      let name = entitlement.entitlement
      let known = usable[account]?[name]
      switch event.kind {
      case .entitlementGranted:
        #expect(known == nil, "what is there is not granted: \(event.text)")
      case .entitlementExtended, .entitlementShortened, .entitlementExpired, .entitlementRevoked:
        #expect(known != nil, "only what is there changes: \(event.kind) \(event.text)")
      default: Issue.record("no event of an entitlement: \(event.kind)")
      }
      switch event.kind {
      case .entitlementExpired, .entitlementRevoked:
        #expect(!entitlement.active)
        usable[account]?[name] = nil
      default:
        #expect(entitlement.active)
        let end = entitlement.access_ends_at.flatMap { Timestamp(rfc3339: $0) }
        usable[account, default: [:]].updateValue(end, forKey: name)
      }
    }
  }
}
