import Foundation
package import Postgres
package import Subscriptions

/// Charges, their owners and their history.
package struct OwnershipStore: LedgerStore {
  package let core: LedgerCore

  /// Reads an original transaction with those that Apple links; nil if nothing is recorded.
  ///
  /// - Parameters:
  ///   - claimant: An account about to claim charges, whose orders are read too.
  ///   - knownAt: Ignores later records; nil: ignores nothing.
  package func original(
    of id: OriginalTransactionKey, claimant: AccountKey? = nil, knownAt: Timestamp? = nil
  ) async throws -> RecordedOriginalTransaction? {
    try await database.withTransaction(isolation: .repeatableRead, readOnly: true) { transaction in
      guard let stored = try await transaction.originals([id], locking: false).first else {
        return nil
      }
      var line = stored.line
      if let knownAt {
        let items = try await entries(of: Array(stored.members.keys), in: transaction)
          .filter { $0.recordedAt <= knownAt }.flatMap { try $0.items() }
        line = OriginalTransaction(replaying: items.map(\.item), around: id)
        line.updateContext { $0.tokenHolders = stored.line.history.tokenHolders }
      }
      return try await recorded(stored, as: line, claimant: claimant, in: transaction)
    }
  }

  /// Reads original transactions, by the IDs of all that Apple links; those without entries are left
  /// out.
  package func originals(of ids: Set<OriginalTransactionKey>) async throws
    -> [OriginalTransactionKey: RecordedOriginalTransaction]
  {
    guard !ids.isEmpty else { return [:] }
    return try await database.withTransaction(isolation: .repeatableRead, readOnly: true) {
      transaction in
      var originals: [OriginalTransactionKey: RecordedOriginalTransaction] = [:]
      for stored in try await transaction.originals(ids, locking: false) {
        let original = try await recorded(stored, as: stored.line, claimant: nil, in: transaction)
        for id in stored.members.keys { originals[id] = original }
      }
      return originals
    }
  }

  /// Completes a stored original transaction with its accounts.
  private func recorded(
    _ stored: StoredOriginalTransaction, as line: OriginalTransaction, claimant: AccountKey?,
    in transaction: Transaction
  ) async throws -> RecordedOriginalTransaction {
    var line = line
    var context = try await recorder.context(
      of: stored, claimant: claimant, evidence: [], in: transaction)
    line.updateContext(context.apply)
    // An earlier state may have had other owners.
    let owners = Set(line.decisions.values.compactMap(\.decision.owner))
    let names = try await names(of: owners.subtracting(context.names.keys), in: transaction)
    context.names.merge(names) { $1 }
    return RecordedOriginalTransaction(
      stored, line: line, rule: OwnershipRule(recordedOn: line), names: context.names)
  }

  /// The original transactions that contain a transaction, in all environments.
  package func lines(of transaction: TransactionID) async throws -> [OriginalTransactionKey] {
    try await database.read(
      Self.lines("charge_lookup", "name = \(transaction) AND NOT is_line_item"))
  }

  /// The original transactions on which an account ever owned or claimed a charge.
  package func lines(of account: AccountKey, in transaction: Transaction? = nil) async throws
    -> [OriginalTransactionKey]
  {
    let runner: any StatementRunner = transaction ?? database
    return try await runner.read(
      Self.lines("account_original_transaction", "account_key = \(account)"))
  }

  /// Reads an account's original transactions one by one; linked ones come together.
  ///
  /// - Parameter knownAt: Ignores later records; nil: ignores nothing.
  package func originals(
    of account: AccountKey, knownAt: Timestamp? = nil
  ) async throws -> AccountOriginals {
    AccountOriginals(store: self, remaining: try await lines(of: account)[...], knownAt: knownAt)
  }

  package func lines(of lineItem: WebOrderLineItemID) async throws -> [OriginalTransactionKey] {
    try await database.read(Self.lines("charge_lookup", "name = \(lineItem) AND is_line_item"))
  }

  /// Reads a page of all original transactions, after one.
  func lines(
    after last: OriginalTransactionKey?, storedSince moment: Timestamp? = nil,
    where condition: SQL = "true", limit: Int,
    deadline: Duration? = nil
  ) async throws -> [OriginalTransactionKey] {
    try await database.query(
      """
      SELECT environment, original_transaction_id FROM tenure.original_transaction
      WHERE (environment, original_transaction_id)
        > (\(last?.environment.rawValue ?? ""), \(last?.originalTransactionID.rawValue ?? ""))
        AND \(condition)
        AND (\(moment)::timestamptz IS NULL OR head_stored_at >= \(moment))
      ORDER BY environment, original_transaction_id LIMIT \(limit)
      """, deadline: deadline
    ).decode(OriginalTransactionKey.self)
  }

  /// Extends original transactions by those that Apple links.
  func linked(
    to ids: [OriginalTransactionID], in environments: [Environment] = Environment.allCases
  ) async throws -> [OriginalTransactionID] {
    var (all, new) = (Set(ids), ids)
    while !new.isEmpty {
      let linked = try await database.query(
        """
        SELECT linked FROM tenure.original_transaction
        WHERE environment = ANY(\(environments)) AND original_transaction_id = ANY(\(new.sorted()))
        """
      ).decode([OriginalTransactionID].self)
      new = linked.joined().filter { all.insert($0).inserted }
    }
    return all.sorted()
  }

  private static func lines(_ table: String, _ condition: SQL) -> Query<[OriginalTransactionKey]> {
    Query(
      """
      SELECT environment, original_transaction_id FROM tenure.\(unescaped: table)
      WHERE \(condition)
      ORDER BY environment, original_transaction_id
      """
    ) { try $0.decode(OriginalTransactionKey.self) }
  }

  package func environments(of id: OriginalTransactionID) async throws -> [Environment] {
    try await database.query(
      """
      SELECT environment FROM tenure.original_transaction
      WHERE environment IN ('production', 'sandbox') AND original_transaction_id = \(id)
        AND head_number > 0
      ORDER BY environment
      """
    ).decode(Environment.self)
  }

  /// The entries of original transactions, each one's in order.
  func entries(of lines: [OriginalTransactionKey], in runner: some StatementRunner) async throws
    -> [StoredEntry]
  {
    let wanted = Set(lines)
    return try await runner.query(
      StoredEntry.select(
        "\(lines.condition) ORDER BY environment, original_transaction_id, number")
    ).decode(into: StoredEntry.read).filter { wanted.contains($0.line) }
  }

  /// The items of original transactions with their sources, each one's in order.
  package func history(of lines: Set<OriginalTransactionKey>) async throws -> [HistoryItem] {
    guard !lines.isEmpty else { return [] }
    return try await entries(of: lines.sorted(), in: database).flatMap { try $0.items() }
  }

  /// Reads account IDs by key; unknown keys are left out.
  package func accountIDs(of keys: Set<AccountKey>) async throws -> [AccountKey: String] {
    try await knownAccounts(keys).mapValues(\.id)
  }

  func knownAccounts(_ keys: Set<AccountKey>) async throws -> [AccountKey: KnownAccount] {
    try await database.read(KnownAccount.query(keys))
  }

  func names(of accounts: Set<AccountKey>, in transaction: Transaction) async throws
    -> [AccountKey: String]
  {
    try await transaction.read(KnownAccount.query(accounts)).mapValues(\.id)
  }
}

extension OriginalTransaction {
  /// Applies the items of an original transaction and of those linked to it.
  ///
  /// - Parameter items: In any order; those of unlinked original transactions are ignored.
  init(replaying items: [LedgerItem], around id: OriginalTransactionKey) {
    var neighbours: [OriginalTransactionKey: Set<OriginalTransactionKey>] = [:]
    for case .evidence(.link(let line, let previous)) in items.lazy.map(\.content) {
      neighbours[line, default: []].insert(previous)
      neighbours[previous, default: []].insert(line)
    }
    var (members, open): (Set<OriginalTransactionKey>, [OriginalTransactionKey]) = ([id], [id])
    while let next = open.popLast() {
      for other in neighbours[next] ?? [] where members.insert(other).inserted {
        open.append(other)
      }
    }
    self.init(members: members)
    for item in items.sorted(by: LedgerItem.wasRecorded) where members.contains(item.line) {
      replay(item)
    }
  }
}

extension LedgerItem {
  /// The order of recording, across linked original transactions.
  static func wasRecorded(_ lhs: LedgerItem, before rhs: LedgerItem) -> Bool {
    (lhs.recordedAt, lhs.line, lhs.number) < (rhs.recordedAt, rhs.line, rhs.number)
  }
}

extension StoredEntry {
  /// Selects the columns of an entry in the order of its properties.
  static func select(_ condition: SQL) -> SQL {
    """
    SELECT environment, original_transaction_id, number, recorded_at, source, source_id, format,
      body, stored_at, hash
    FROM tenure.ledger_entry WHERE \(condition)
    """
  }
}

/// An account's original transactions, with the first of the IDs that Apple links.
package struct AccountOriginals: AsyncSequence, AsyncIteratorProtocol, Sendable {
  package typealias Element = (id: OriginalTransactionKey, original: RecordedOriginalTransaction)

  let store: OwnershipStore
  var remaining: ArraySlice<OriginalTransactionKey>
  let knownAt: Timestamp?
  var read: Set<OriginalTransactionKey> = []

  package func makeAsyncIterator() -> Self { self }

  package mutating func next() async throws -> Element? {
    while let id = remaining.popFirst() {
      guard !read.contains(id), let original = try await store.original(of: id, knownAt: knownAt)
      else { continue }
      read.formUnion(original.line.heads.keys)
      return (id, original)
    }
    return nil
  }
}
