import AppStore
import AppStoreSimulator
import Foundation
import HTTPTypes
import Intake
import JSONText
import LedgerStorage
import Postgres
import Subscriptions
import Synchronization
import Testing

@testable import HTTPAPI

/// A ledger that gets to know a life by what some sources bring.
struct LifeReplay {
  let api: TestAPI
  /// Accounts' entitlements at the moments of the life, as known then.
  private(set) var seen: [LifeFindings.Fact: String] = [:]

  /// Feeds a fresh ledger.
  ///
  /// - Parameters:
  ///   - arrivals: The items and their times, in order.
  ///   - life: Where it is from.
  ///   - accounts: The tokens that another ledger issued to the accounts.
  ///   - looking: Whether the accounts read their entitlements before and after each moment at
  ///     which something happened.
  /// - Returns: The ledger's findings.
  /// - Throws: Database errors and unexpected responses.
  static func findings(
    feeding arrivals: [Arrival], of life: Life, accounts: [Account], looking: Bool = true
  ) async throws -> LifeFindings {
    let findings = Mutex<LifeFindings?>(nil)
    let apple = try StandInAppStore(signer: life.signer)
    try await TestAPI.run(apple: apple) { api in
      try await api.adopt(accounts)
      for (product, entitlement) in [
        ("monthly", "plus"), ("quarterly", "plus"), ("premium", "premium"),
      ] {
        try await api.describe(ProductID(product), entitlement)
      }
      try await api.describe("coins", "coins", type: .consumable)
      try await api.describe("lifetime", "lifetime", type: .nonConsumable)
      var replay = LifeReplay(api: api)
      try await replay.feed(arrivals, looking: looking ? life.moments : [])
      let found = try await LifeFindings(of: life, in: api, seen: replay.seen)
      findings.withLock { $0 = found }
    }
    return try #require(findings.withLock { $0 })
  }

  /// Something that arrives at a moment.
  struct Arrival: Sendable {
    var item: Life.Item
    var at: Timestamp

    /// When it is there.
    static func atOnce(_ item: Life.Item) -> Arrival { Arrival(item: item, at: item.at) }
  }

  private mutating func feed(_ arrivals: [Arrival], looking moments: [Timestamp]) async throws {
    let clock = api.apple.simulation.clock
    var rest = arrivals[...]
    for moment in moments {
      clock.advance(to: moment + .seconds(-1))
      try await look()
      while let arrival = rest.first, arrival.at <= moment {
        clock.advance(to: arrival.at)
        try await deliver(arrival.item)
        rest.removeFirst()
      }
      clock.advance(to: moment)
      try await look()
    }
    for arrival in rest {
      clock.advance(to: arrival.at)
      try await deliver(arrival.item)
    }
    clock.advance(to: Life.end)
  }

  // MARK: Delivering

  private func deliver(_ item: Life.Item) async throws {
    for (receipt, body) in item.receiptAnswers { api.apple.answer(receipt, with: body) }
    switch item.content {
    case .receipt(let receipt, let account):
      let answer = try await api.submit(account, receipt: receipt)
      #expect(answer.status == 200, "\(answer)")
    case .signed(let transactions, let renewalInfo, let account):
      let answer = try await api.submit(account, signed: transactions, renewalInfo: renewalInfo)
      #expect(answer.status == 200, "\(answer)")
    case .notification(let body):
      try await post(body)
    case .doorbell(let body):
      try await post(body)
      try await work()
    case .poll(let line, let revision):
      api.apple.answerServerAPI(with: item.serverAnswers)
      try await setLastRevision(revision, of: line)
      let polled = try await api.poll.poll(line, of: Life.app.bundleID)
      #expect(polled?.refusals == [])
    case .receiptPoll(let receipt):
      let polled = try await api.poll.poll(receipt: receipt)
      #expect(polled.recorded != nil, "\(polled.verification.verdict)")
    }
  }

  /// Lets the next poll start where the recorded one did.
  private func setLastRevision(_ revision: String?, of line: OriginalTransactionKey) async throws {
    _ = try await api.database.query(
      """
      DELETE FROM tenure.history_revision
      WHERE original_transaction_id = \(line.originalTransactionID.rawValue)
      """)
    guard let revision else { return }
    _ = try await api.database.query(
      """
      INSERT INTO tenure.history_revision
      VALUES (\(line.environment.rawValue), \(line.originalTransactionID.rawValue), 'transactions',
        \(revision))
      """)
  }

  private func post(_ body: [UInt8]) async throws {
    let answer = try await api.send(
      .post, "/v1/appstore/notifications", body, as: .anonymous,
      headers: [.contentType: "application/json"])
    #expect(answer.status == 200, "\(answer)")
  }

  /// Runs due jobs as a worker does.
  private func work() async throws {
    let jobs = try await api.ledger.claimJobs(
      limit: 10, worker: "w", at: api.apple.simulation.now, lease: .seconds(60))
    for job in jobs {
      guard job.kind == .processNotification else { continue }
      #expect(try await api.api.notifications.process(job.subject, worker: job.worker) == nil)
    }
  }

  // MARK: Looking

  /// Reads every account's entitlements.
  private mutating func look() async throws {
    let now = api.apple.simulation.now
    let answer = try await api.call(
      .post, "/v1/entitlements/query",
      ["account_ids": .array(Life.accounts.map { .string($0) })])
    for account in answer["accounts"]?.array ?? [] {
      let name = account["account_id"]?.string ?? ""
      seen[LifeFindings.Fact(.seen, "\(name) \(now.description.prefix(16))")] =
        LifeFindings.words(for: account["entitlements"])
    }
  }
}

extension TestAPI {
  /// Makes accounts as another ledger made them, with the tokens that it issued.
  fileprivate func adopt(_ accounts: [Account]) async throws {
    for account in accounts {
      let (id, key, token) = (account.id, account.key, account.appAccountToken)
      _ = try await database.batch([
        """
        INSERT INTO tenure.account (account_id, account_key, app_account_token, created_at)
        VALUES (\(id), \(key), \(token), \(account.createdAt))
        """,
        """
        INSERT INTO tenure.account_by_key (account_key, account_id, app_account_token)
        VALUES (\(key), \(id), \(token))
        """,
        """
        INSERT INTO tenure.account_by_token (app_account_token, account_key)
        VALUES (\(token), \(key))
        """,
        "SELECT tenure.seal(\(key), 'account')",
      ])
      let answer = try await call(.put, "/v1/accounts/\(id)")
      try #require(answer["app_account_token"]?.string == token.uuidString.lowercased())
    }
  }
}
