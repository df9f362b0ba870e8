package import Foundation
import Postgres
package import Subscriptions

package struct AccountCharge: Hashable, Sendable {
  package let id: Charge.ID
  package let chargedAt: Timestamp
  package let owner: AccountKey?
  package let isClaimed: Bool
  package let orderID: UUID?
  package let deliveredAt: Timestamp?
  /// When the account last lost it to another one or by a release; nil if the account owns it, or
  /// never did.
  package let lostAt: Timestamp?
}

package struct RelatedAccounts: Sendable {
  package let account: AccountKey
  /// Original transactions on which the account ever owned or claimed a charge.
  package let lines: [OriginalTransactionKey]
  /// Charges that the account owns, owned or claimed, or that are unclaimed; latest first.
  package let charges: [AccountCharge]
  /// The transactions that report charges owned by the account, aliases included.
  fileprivate let ownedTransactions: Set<TransactionKey>

  /// Charges that the account owned once, latest loss first.
  package var lost: [AccountCharge] {
    charges.filter { $0.lostAt != nil }
      .sorted { ($0.lostAt ?? $0.chargedAt) > ($1.lostAt ?? $1.chargedAt) }
  }
}

/// The position of an item in an account's history, which is ordered by recording date.
package struct HistoryPosition: Hashable, Codable, Sendable {
  package let recordedAt: Timestamp
  package let line: OriginalTransactionKey
  package let number: Int

  package init(recordedAt: Timestamp, line: OriginalTransactionKey, number: Int) {
    (self.recordedAt, self.line, self.number) = (recordedAt, line, number)
  }

  package init(_ item: LedgerItem) {
    self.init(recordedAt: item.recordedAt, line: item.line, number: item.number)
  }

  /// Whether an item of the same recording was shown up to this position, latest first.
  fileprivate func hasShown(_ item: LedgerItem) -> Bool {
    recordedAt == item.recordedAt && line == item.line && number <= item.number
  }
}

package typealias HistoryItem = (item: LedgerItem, source: EntrySource)

/// A page of the items that concern an account.
package struct AccountHistory: Sendable {
  /// Latest first.
  package let items: [HistoryItem]
  /// Where the search stopped without enough items; nil: at the beginning, or with enough.
  package let lookedBackTo: HistoryPosition?
}

extension AccountStore {
  /// Entries read per batch; most of them concern the account.
  package static let historyBatch = 200
  /// Batches per page: an original transaction shared for years has many items of others.
  package static let historyBatches = 10

  /// Reads an account's original transactions and charges in three queries.
  package func ties(of account: AccountKey) async throws -> RelatedAccounts {
    let lines = try await ownership.lines(of: account)
    guard !lines.isEmpty else {
      return RelatedAccounts(
        account: account, lines: [], charges: [], ownedTransactions: [])
    }
    let claims: [TransactionKey] = try await database.query(
      """
      SELECT environment, original_transaction_id, transaction_id, product_id
      FROM tenure.ownership_action
      WHERE \(lines.condition) AND account_key = \(account) AND is_claim
      """
    ).decode(TransactionKey.self)
    let rows = try await database.query(
      """
      SELECT environment, original_transaction_id, transaction_id, product_id,
        environment, charge_original_transaction_id, charge_transaction_id, charge_product_id,
        rule IS NOT NULL, charged_at, owner_account_key, order_id, delivered_at,
        lost_at[array_position(lost_by_keys, \(account))]
      FROM tenure.store_transaction
      WHERE \(lines.condition)
      ORDER BY charged_at DESC, environment DESC, original_transaction_id DESC,
        transaction_id DESC, product_id DESC
      """
    ).decode(
      TransactionKey.self, TransactionKey.self, Bool.self, Timestamp.self, AccountKey?.self,
      UUID?.self, Timestamp?.self, Timestamp?.self
    ).map {
      (
        key: $0, charge: $1, isCharge: $2, chargedAt: $3, owner: $4, order: $5, deliveredAt: $6,
        lostAt: $7
      )
    }
    // Claiming an alias claims its charge.
    let claimed = Set(claims)
    let claimedCharges = Set(rows.filter { claimed.contains($0.key) }.map(\.charge))
    let charges = rows.filter(\.isCharge).map { row in
      AccountCharge(
        id: row.key, chargedAt: row.chargedAt, owner: row.owner,
        isClaimed: claimedCharges.contains(row.key), orderID: row.order,
        deliveredAt: row.deliveredAt, lostAt: row.owner == account ? nil : row.lostAt)
    }.filter {
      $0.owner == nil || $0.owner == account || $0.isClaimed || $0.lostAt != nil
    }
    let owned = Set(charges.filter { $0.owner == account }.map(\.id))
    return RelatedAccounts(
      account: account, lines: lines, charges: charges,
      ownedTransactions: Set(rows.filter { owned.contains($0.charge) }.map(\.key)))
  }

  /// Reads the items that concern an account, latest first.
  ///
  /// Those are its claims, decisions and overrides for or away from it, reports on charges it owns,
  /// and renewal statuses while it was bound.
  package func history(
    of ties: RelatedAccounts, kinds: Set<LedgerItem.Kind> = Set(LedgerItem.Kind.allCases),
    before position: HistoryPosition?, limit: Int,
    batches: Int = historyBatches, of size: Int = historyBatch
  ) async throws -> AccountHistory {
    var found: [HistoryItem] = []
    // An entry whose items were not all shown is read again.
    var last = position.map {
      HistoryPosition(recordedAt: $0.recordedAt, line: $0.line, number: Int(Int32.max))
    }
    guard !ties.lines.isEmpty, !kinds.isEmpty else {
      return AccountHistory(items: [], lookedBackTo: nil)
    }
    for _ in 0..<batches {
      let batch = try await storedEntries(ties.lines.condition, before: last, limit: size)
      let items = try batch.flatMap { try $0.items().reversed() }
      let wanted = items.filter { item, _ in
        kinds.contains(item.content.kind) && position?.hasShown(item) != true
      }
      let bindings = try await bindings(amid: wanted)
      found += wanted.filter { concerns(ties, $0.item, bindings: bindings) }
      guard batch.count == size, let end = items.last else { last = nil; break }
      last = HistoryPosition(end.item)
      if found.count >= limit { break }
    }
    return AccountHistory(
      items: Array(found.prefix(limit)), lookedBackTo: found.count < limit ? last : nil)
  }

  /// Reads owner overrides on some original transactions, latest first.
  package func ownerOverrides(on lines: Set<OriginalTransactionKey>) async throws -> [HistoryItem] {
    guard !lines.isEmpty else { return [] }
    return try await storedEntries(
      """
      \(lines.sorted().condition)
        AND source IN (\(EntrySource.Kind.administrator), \(EntrySource.Kind.import))
      """, before: nil, limit: Self.mostOverrides
    ).flatMap { try $0.items().reversed() }.filter { $0.item.content.kind == .placed }
  }

  /// Several times the charges shown on one page.
  private static let mostOverrides = 5000

  private func concerns(
    _ ties: RelatedAccounts, _ item: LedgerItem,
    bindings: [OriginalTransactionKey: [Subscriptions.Binding]]
  ) -> Bool {
    switch item.content {
    case .evidence(.transaction(let record)): ties.ownedTransactions.contains(record.key)
    case .evidence(.renewalStatus(let status, let line)):
      bindings[line]?.account(asOf: status.asOf) == ties.account
    case .evidence(.link): false
    case .action(.claim(let claim)): claim.account == ties.account
    case .action(.ownerOverride(let ownerOverride)): ownerOverride.account == ties.account
    case .action(.importedOverride(let ownerOverride)): ownerOverride.account == ties.account
    case .ownership(let change):
      change.decision.owner == ties.account || change.previousOwner == ties.account
    }
  }

  // MARK: Statements

  private func storedEntries(
    _ condition: SQL, before position: HistoryPosition?, limit: Int
  ) async throws -> [StoredEntry] {
    let rest =
      position.map { position -> SQL in
        """
        (recorded_at, environment, original_transaction_id, number)
          < (\(position.recordedAt), \(position.line.environment),
            \(position.line.originalTransactionID), \(position.number))
        """
      } ?? "true"
    return try await database.query(
      StoredEntry.select(
        """
        \(condition) AND \(rest)
        ORDER BY recorded_at DESC, environment DESC, original_transaction_id DESC, number DESC
        LIMIT \(limit)
        """)
    ).decode(into: StoredEntry.read)
  }

  /// Reads the bindings of the original transactions whose renewal statuses are among some items.
  private func bindings(amid items: [HistoryItem]) async throws
    -> [OriginalTransactionKey: [Subscriptions.Binding]]
  {
    let lines = Set(
      items.compactMap { item, _ -> OriginalTransactionKey? in
        if case .evidence(.renewalStatus(_, let line)) = item.content { line } else { nil }
      })
    guard !lines.isEmpty else { return [:] }
    return try await database.withTransaction(isolation: .repeatableRead, readOnly: true) {
      transaction in
      try await transaction.originals(lines, locking: false).reduce(into: [:]) {
        bindings, original in
        let found = Subscriptions.Binding.bindings(
          of: original.rule.charges, decisions: original.rule.decisions)
        for line in original.members.keys { bindings[line] = found }
      }
    }
  }
}

/// An event of the feed: its type is a ``LedgerEvent/Kind`` or a newer one, its data JSON.
package typealias PublishedEvent = (id: Int64, type: String, occurredAt: Timestamp, data: String)

package typealias EventPosition = (occurredAt: Timestamp, id: Int64)

package struct EventPruning: Hashable, Sendable {
  /// The storage date of the last pruned event, by the database's clock; nil if not recorded.
  package let storedAt: Timestamp?
}

extension AccountStore {
  package func latestOrders(of account: Account, limit: Int) async throws -> [StoredOrder] {
    try await orders(of: account, "true ORDER BY created_at DESC, order_id LIMIT \(limit)")
  }

  func orders(of account: Account, _ condition: SQL) async throws -> [StoredOrder] {
    try StoredOrder.orders(
      from: await database.query(
        StoredOrder.select("account_key = \(account.key) AND \(condition)")),
      of: (account.key, account.id, account.appAccountToken), lifetime: orderLifetime)
  }

  package func latestSubmissions(of account: AccountKey, before last: UUID? = nil, limit: Int)
    async throws -> [Submission]
  {
    let rest = last.map { "submission_id < \($0)" as SQL } ?? "true"
    return try await submissions.submissions(
      """
      account_key = \(account) AND \(rest) ORDER BY submission_id DESC LIMIT \(limit)
      """)
  }

  /// Reads events of an account by their dates, latest first, before `last`.
  package func latestEvents(
    of account: AccountKey, before last: EventPosition?, limit: Int
  ) async throws -> [PublishedEvent] {
    try await database.query(Self.selectEvents(of: account, before: last, limit: limit))
      .decode(Int64.self, String.self, Timestamp.self, CompressedText.self)
      .map { ($0, $1, $2, $3.text) }
  }

  static func selectEvents(of account: AccountKey, before last: EventPosition?, limit: Int) -> SQL {
    let rest =
      last.map { "(occurred_at, event_id) < (\($0.occurredAt), \($0.id))" as SQL } ?? "true"
    return """
      SELECT event_id, type, occurred_at, data FROM tenure.event
      WHERE account_key = \(account) AND \(rest)
      ORDER BY occurred_at DESC, event_id DESC LIMIT \(limit)
      """
  }

  /// Nil if nothing was pruned.
  package func eventPruning() async throws -> EventPruning? {
    let (trimmedTo, storedAt) = try await database.query(
      "SELECT trimmed_to, trimmed_stored_at FROM tenure.feed"
    ).decodeOnly(Int64.self, Timestamp?.self)
    return trimmedTo > 0 ? EventPruning(storedAt: storedAt) : nil
  }
}

package typealias NotificationSummary = (
  id: String, type: String?, subtype: String?, receivedAt: Timestamp, signedAt: Timestamp?,
  environment: Subscriptions.Environment?, originalTransactionID: OriginalTransactionID?
)

extension AccountStore {
  /// Reads notifications by ID; pruned ones are omitted.
  package func notificationSummaries(_ ids: [String]) async throws
    -> [ExactText: NotificationSummary]
  {
    guard !ids.isEmpty else { return [:] }
    let summaries: [NotificationSummary] = try await database.query(
      """
      SELECT notification_id, notification_type, subtype, received_at, signed_at, environment,
        original_transaction_id
      FROM tenure.notification WHERE notification_id = ANY (\(ids))
      """
    ).decode(
      String.self, String?.self, String?.self, Timestamp.self, Timestamp?.self,
      Subscriptions.Environment?.self, OriginalTransactionID?.self
    ).map { $0 }
    return Dictionary(uniqueKeysWithValues: summaries.map { (ExactText($0.id), $0) })
  }

  package func submitters(of ids: [UUID]) async throws -> [UUID: String] {
    guard !ids.isEmpty else { return [:] }
    let rows = try await database.query(
      """
      SELECT submission_id, account_key FROM tenure.submission
      WHERE submission_id = ANY (\(ids))
      """
    ).decode(UUID.self, AccountKey.self)
    let accounts = try await ownership.accountIDs(of: Set(rows.map(\.1)))
    return Dictionary(uniqueKeysWithValues: rows.map { ($0, $1) }).compactMapValues { accounts[$0] }
  }
}
