import Foundation
import Postgres
package import Subscriptions

/// A locked account with its holdings and published entitlements.
struct PublishedEntitlements: Sendable {
  var key: AccountKey
  var id: String
  /// The end of access of each entitlement that events have reported as active; nil: never.
  var published: [ExactText: Timestamp?]
  /// The moment as of which they were published last.
  var publishedAt: Timestamp?
  var held: AccountHoldings
  /// Whether its grants change in this transaction.
  var hasChangedGrants = false

  /// The statements that lock accounts, in an order that all programs keep to.
  ///
  /// One for each, because Citus locks rows by their account alone. Original transactions and
  /// orders are locked before.
  ///
  /// - Parameter waits: Whether to wait for locked accounts; else they return no row.
  static func lock(_ ids: some Sequence<String>, waits: Bool = true) -> [SQL] {
    ids.map(AccountID.init(_:)).sorted().map(\.rawValue).map { id in
      """
      SELECT account_id FROM tenure.account WHERE account_id = \(id)
      FOR NO KEY UPDATE\(waits ? "" : " SKIP LOCKED" as SQL)
      """
    }
  }

  /// Reads locked accounts, by key.
  ///
  /// - Parameter submission: A submission whose provisional grants end here; nil: all grants count.
  static func query(_ names: [AccountKey: String], withoutGrantsOf submission: UUID? = nil)
    -> Query<[PublishedEntitlements]>
  {
    let ids = Array(names.values)
    return Query(
      Query(
        """
        SELECT a.account_id, a.published_at, t.entitlement, t.access_ends_at
        FROM tenure.account AS a LEFT JOIN tenure.published_entitlement AS t USING (account_id)
        WHERE a.account_id \(anyOf: ids)
        """
      ) {
        try $0.decode(String.self, Timestamp?.self, String?.self, Timestamp?.self)
      },
      Query(
        HoldingBatcher.statement(ids, withoutGrantsOf: submission), decode: HoldingRows.init)
    ).map { rows, held in
      var published: [AccountID: [ExactText: Timestamp?]] = [:]
      var publishedAt: [AccountID: Timestamp] = [:]
      for (id, at, name, end) in rows {
        publishedAt[AccountID(id)] = at
        if let name {
          published[AccountID(id), default: [:]].updateValue(end, forKey: ExactText(name))
        }
      }
      return try names.sorted { $0.key < $1.key }.map { key, id in
        PublishedEntitlements(
          key: key, id: id, published: published[AccountID(id)] ?? [:],
          publishedAt: publishedAt[AccountID(id)],
          held: try held.holdings(of: id))
      }
    }
  }

  /// Replaces the holdings by those after a recording.
  mutating func apply(_ recording: Recording) {
    for original in recording.distinctOriginals {
      guard !original.items.isEmpty else { continue }
      held.holdings.removeAll { original.line.heads[$0.charge.line] != nil }
      held.holdings += original.holdings.after.filter { $0.account == key }.sorted().map(\.holding)
    }
  }
}

/// The changes of an account's entitlements.
struct AccountEvents: Sendable {
  let key: AccountKey
  let id: String
  /// Inactive ones included.
  let entitlements: [Entitlement]
  let events: [LedgerEvent]
  /// The next change by time; nil: none.
  let nextChange: Timestamp?
  private let publishedAt: Timestamp
  private let before: [ExactText: Timestamp?]
  private let after: [ExactText: Timestamp?]

  /// - Parameter now: The moment, unless the account was published as of a later one: clocks differ
  ///   between processes, and ended access must not reappear.
  init(_ account: PublishedEntitlements, terms: AccessTerms, at now: Timestamp) {
    let now = max(now, account.publishedAt ?? now)
    publishedAt = now
    (key, id) = (account.key, account.id)
    let (holdings, grants) = (account.held.holdings, account.held.grants)
    entitlements = terms.entitlements(of: id, holding: holdings, granted: grants, at: now)
    nextChange = terms.nextChange(of: id, holding: holdings, granted: grants, after: now)
    before = account.published
    (events, after) = EntitlementEvents.events(
      for: key, published: before, now: entitlements, at: now)
  }

  var changesPublished: Bool { before != after }

  static func write(_ newEvents: [AccountEvents]) -> [SQL] {
    var statements = newEvents.filter(\.changesPublished).map { account -> SQL in
      """
      UPDATE tenure.account SET published_at = \(account.publishedAt) WHERE account_id = \(account.id)
      """
    }
    let published = newEvents.flatMap { account in
      account.after.sorted { $0.key < $1.key }.filter { account.before[$0.key] != .some($0.value) }
        .map { "(\(account.id), \($0.key.rawValue), \($0.value))" as SQL }
    }
    statements += published.rowLists.map { rows in
      """
      INSERT INTO tenure.published_entitlement (account_id, entitlement, access_ends_at)
      VALUES \(rows)
      ON CONFLICT (account_id, entitlement)
      DO UPDATE SET access_ends_at = excluded.access_ends_at
      """
    }
    for account in newEvents {
      statements += account.before.keys.sorted().filter { account.after[$0] == nil }.map {
        """
        DELETE FROM tenure.published_entitlement
        WHERE account_id = \(account.id) AND entitlement = \($0.rawValue)
        """
      }
    }
    return statements
  }

  func schedule(at now: Timestamp) -> [SQL] {
    nextChange.map { [Job.schedule(.publishEntitlements(key), runAt: $0, at: now)] } ?? []
  }
}

extension AccountStore {
  /// Publishes changes caused by time: access that ended or began.
  ///
  /// The events and the ends of the jobs are one commit, so that each is published exactly once.
  ///
  /// - Parameter jobs: Jobs of kind `publish_entitlements`, claimed by one worker.
  /// - Returns: Jobs to run one by one, because their accounts are locked and several must not be
  ///   waited for at once.
  package func publish(_ jobs: [Job], terms: AccessTerms, at now: Timestamp) async throws -> [Job] {
    let keys = try jobs.map { AccountKey(rawValue: try $0.subjectID) }
    let (left, channels) = try await database.withTransaction { transaction in
      let (published, busy) = try await recorder.lockPublished(
        Set(keys), waits: jobs.count == 1, in: transaction)
      let newEvents = published.map { AccountEvents($0, terms: terms, at: now) }
      let nextChanges = Dictionary(
        uniqueKeysWithValues: newEvents.compactMap { newEvents in
          newEvents.nextChange.map { (newEvents.key, $0) }
        })
      let consequences = Outbox(newEvents, rescheduling: [], at: now)
      var (statements, ended, left) = (consequences.statements, [Job](), [Job]())
      for (job, key) in zip(jobs, keys) {
        if busy.contains(key) {
          left.append(job)
        } else if let next = nextChanges[key] {
          statements += job.repetition(at: next, now: now)
        } else {
          ended.append(job)
        }
      }
      try await transaction.commit(with: statements + ended.completion)
      return (left, consequences.channels)
    }
    notifier.notify(channels)
    return left
  }
}
