import Foundation
import Postgres
import Subscriptions

/// The statements that bring the tables from the stored to the new state, table by table, only for
/// changed rows.
struct ProjectionWriter {
  let stored: StoredOriginalTransaction
  let line: OriginalTransaction
  let rule: OwnershipRule
  let items: [HistoryItem]
  let holdings: HoldingChange
  /// The account ids behind the keys of all owners.
  let names: [AccountKey: String]
  /// The products by which movements are derived; nil leaves movements as they are.
  let catalogue: Catalogue?
  /// Where the evidence came from; nil leaves repetitions as they are.
  var source: EntrySource?
  /// The transactions of the recording that get another order, or with nil, none.
  var orders: [TransactionKey: UUID?] = [:]

  /// The entry of the items, chained to the one before, and all projections, in an order that foreign
  /// keys allow.
  ///
  /// - Returns: The new ends of the hash chains, too.
  func statements() throws -> (
    statements: [SQL], heads: [OriginalTransactionKey: OriginalTransactionRows.Head]
  ) {
    var inserts: [SQL] = []
    var heads: [OriginalTransactionKey: OriginalTransactionRows.Head] = [:]
    for (id, appended) in Dictionary(grouping: items, by: \.item.line)
      .sorted(by: { $0.key < $1.key })
    {
      guard let member = stored.members[id], let source else {
        preconditionFailure("Items are recorded on a locked original transaction, from a source.")
      }
      let chain = try StoredEntry.chain(
        appended.map(\.item), source: source,
        at: max(member.readAt, member.head.storedAt ?? member.readAt), after: member.head.hash)
      inserts += StoredEntry.insert(chain)
      heads[id] = chain.last.map(OriginalTransactionRows.Head.init)
    }
    return (inserts + (try projections(heads: heads)), heads)
  }

  /// Only the projections.
  ///
  /// - Parameter heads: The new ends of the hash chains.
  func projections(heads: [OriginalTransactionKey: OriginalTransactionRows.Head]) throws -> [SQL] {
    let repetitions = try repetitions()
    guard !items.isEmpty else {
      return repetitions.sorted { $0.key < $1.key }.map { id, values in
        "UPDATE tenure.original_transaction SET \(values) WHERE \(id.condition)"
      }
        + transactionWrites(
          orders.keys.sorted().compactMap {
            TransactionRow.row(of: $0, in: line, rule: rule)
          })
    }
    // Every linked original transaction shows the state of all of them.
    let heads = stored.members.mapValues(\.head).merging(heads) { $1 }
    return heads.sorted { $0.key < $1.key }.map {
      headUpdate($0.key, $0.value, repetitions[$0.key])
    }
      + transactionWrites(TransactionRow.rows(of: line, rule: rule)) + itemProjections()
      + lookups() + holdingWrites() + movementWrites()
  }

  private func headUpdate(
    _ id: OriginalTransactionKey, _ head: OriginalTransactionRows.Head, _ repetition: SQL?
  ) -> SQL {
    let state = OriginalTransactionState(line: line, rule: rule)
    let others: SQL = repetition.map { ", \($0)" } ?? ""
    return """
      UPDATE tenure.original_transaction SET
        head_number = \(head.number), head_hash = \(head.hash),
        head_recorded_at = \(head.recordedAt), head_stored_at = \(head.storedAt),
        latest_charged_at = \(state.latest?.date), latest_owner_key = \(state.latestOwner),
        paid_through = \(state.paidThrough), auto_renew_product_id = \(state.autoRenewProductID),
        linked = \((line.links[id] ?? []).map(\.originalTransactionID).sorted())
        \(others)
      WHERE \(id.condition)
      """
  }

  /// The new values of the columns for repetitions, where they changed.
  private func repetitions() throws -> [OriginalTransactionKey: SQL] {
    guard let source else { return [:] }
    let encoder = JSONEncoder()
    encoder.outputFormatting = .sortedKeys
    var values: [OriginalTransactionKey: SQL] = [:]
    for (id, member) in stored.members {
      let repeated = line.repeated[id] ?? RepeatedEvidence()
      guard repeated != member.repeated else { continue }
      let json =
        repeated.isEmpty
        ? nil : String(decoding: try encoder.encode(repeated), as: UTF8.self)
      values[id] = """
        repeated = \(json), repeated_as_of = \(repeated.asOf), repeated_by = \(source.kind)
        """
    }
    return values
  }

  // MARK: Projections

  private func transactionWrites(_ rows: [TransactionRow]) -> [SQL] {
    let storedRows = stored.rows
    var changed: [TransactionRow.Ordered] = []
    for row in rows {
      let key = row.transaction.key
      let known = stored.members[key.line]?.fulfilments[key] ?? Fulfilment()
      var fulfilment = known
      if let order = orders[key] { fulfilment.orderID = order }
      guard storedRows[key] != row || fulfilment != known else { continue }
      changed.append((row, fulfilment.orderID))
    }
    return TransactionRow.upsert(changed)
  }

  /// The rows derived from one item each.
  private func itemProjections() -> [SQL] {
    var statuses: [(line: OriginalTransactionKey, row: StatusRow)] = []
    var actions: [SQL] = []
    for (item, source) in items {
      switch item.content {
      case .evidence(.renewalStatus(let status, _)):
        let holder = line.history.holder(of: status.appAccountToken)
        statuses.append(
          (
            item.line,
            StatusRow(
              number: item.number, recordedAt: item.recordedAt, status: status, tokenHolder: holder)
          ))
      case .action(let action):
        let recorded = RecordedAction(
          action, recorded: RecordingOrder(at: item.recordedAt, number: item.number))
        actions.append(recorded.values(source: source))
      case .evidence(.transaction), .evidence(.link), .ownership: break
      }
    }
    return StatusRow.insert(statuses) + RecordedAction.insert(actions)
  }

  /// The look-up rows of accounts; ``TransactionLookup`` wrote those of transactions and line items.
  private func lookups() -> [SQL] {
    let newcomers = Set(items.compactMap(\.item.account)).union(
      holdings.isOfNewlyLinked ? stored.accounts : [])
    return newcomers.sorted().flatMap { account in
      stored.members.keys.sorted().map { line in
        "(\(account), \(line.environment), \(line.originalTransactionID))" as SQL
      }
    }.rowLists.map { rows in
      """
      INSERT INTO tenure.account_original_transaction (account_key, environment,
        original_transaction_id)
      VALUES \(rows)
      ON CONFLICT (account_key, environment, original_transaction_id) DO NOTHING
      """
    }
  }

  /// The change of holdings.
  ///
  /// Reconciliation corrects rows that were left out, or not, by an older catalogue.
  private func holdingWrites() -> [SQL] {
    let holdings = catalogue.map(holdings.leavingOut) ?? holdings
    let (before, after) = (holdings.before, holdings.after)
    guard !holdings.isOfNewlyLinked else {
      // Newly linked original transactions were pruned separately, and had charges that are aliases
      // now: their stored holdings are deleted.
      return stored.members.keys.sorted().flatMap { line in
        names.values.sorted().map { HoldingRow.deleteAll(name: $0, line: line) }
      } + HoldingRow.upsert(named(after))
    }
    let removed = before.filter { row in !after.contains { $0.hasSameKey(as: row) } }
    return removed.sorted().compactMap { row in names[row.account].map(row.delete) }
      + HoldingRow.upsert(named(after.subtracting(before)))
  }

  private func named(_ rows: Set<HoldingRow>) -> [HoldingRow.Named] {
    rows.sorted().compactMap { row in names[row.account].map { (row, $0) } }
  }

  /// The change of movements.
  ///
  /// The previous movements are derived again from today's catalogue instead of read;
  /// reconciliation corrects rows written under an older one.
  private func movementWrites() -> [SQL] {
    guard let catalogue, let recordedAt = items.map(\.item.recordedAt).max(),
      let first = line.heads.keys.min()
    else { return [] }
    let after = Movement.movements(of: line, rule: rule, in: catalogue)
    let moment = stored.movementChange(at: recordedAt)
    guard !holdings.isOfNewlyLinked else {
      return MovementTable.replaceAll(of: stored.members.keys, by: after, at: moment)
    }
    let before = Movement.movements(of: stored.line, rule: stored.rule, in: catalogue)
    return MovementChange(of: first, from: before, to: after)
      .statements(at: moment, isFirst: !stored.hasMovements)
  }
}

extension LedgerItem {
  /// The account that the item connects with its original transaction.
  var account: AccountKey? {
    switch content {
    case .action(let action): action.account
    case .ownership(let change): change.decision.owner
    case .evidence: nil
    }
  }
}
