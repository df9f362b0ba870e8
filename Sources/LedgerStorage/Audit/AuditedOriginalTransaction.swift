import Foundation
import Postgres
import Subscriptions

/// A stored original transaction, with linked ones, next to the state that its entries give.
struct AuditedOriginalTransaction: Sendable {
  let id: OriginalTransactionKey
  let stored: StoredOriginalTransaction
  /// The items that can be read, with their sources, in the order of recording.
  private let sourced: [HistoryItem]
  /// The state that the entries give.
  private(set) var replayed: OriginalTransaction
  private(set) var rule: OwnershipRule
  /// The account ids behind the keys that occur.
  private(set) var names: [AccountKey: String] = [:]
  /// The accounts into which others were merged.
  private var mergedInto: [AccountKey: AccountKey] = [:]
  var audit = LedgerAudit()
  /// The differences of the stored movements; empty if they were not compared.
  var movements: [MovementChange] = []

  /// Applies the entries, and checks the chains.
  init(_ id: OriginalTransactionKey, stored: StoredOriginalTransaction, chain: [StoredEntry]) {
    (self.id, self.stored) = (id, stored)
    var sourced: [HistoryItem] = []
    var chains: [OriginalTransactionKey: [LedgerAudit.ChainLink]] = [:]
    for entry in chain {
      var count: Int?
      do {
        let found = try entry.items()
        count = found.count
        sourced += found
      } catch {
        audit.report(.unreadable, entry.line, "\(error)")
      }
      chains[entry.line, default: []].append(
        (entry.number, count, [entry.recordedAt, entry.storedAt], entry.fields, entry.hash))
    }
    self.sourced = sourced.sorted { LedgerItem.wasRecorded($0.item, before: $1.item) }
    replayed = OriginalTransaction(members: stored.members.keys)
    for (item, _) in self.sourced { replayed.replay(item) }
    rule = OwnershipRule(recordedOn: replayed)
    for member in stored.members.values.sorted(by: { $0.id < $1.id }) {
      let head = member.head
      audit.checkChain(
        chains[member.id] ?? [],
        endingAt: (head.number, [head.recordedAt, head.storedAt], head.hash), member.id)
    }
  }

  private var items: LazyMapSequence<[HistoryItem], LedgerItem> { sourced.lazy.map(\.item) }

  mutating func apply(_ context: Recorder.Context, names: [AccountKey: String]) {
    replayed.updateContext(context.apply)
    rule = OwnershipRule(recordedOn: replayed)
    self.names = names
    mergedInto = context.mergedInto
  }

  var members: [OriginalTransactionKey] { stored.members.keys.sorted() }

  var evidence: [Evidence] {
    items.compactMap { if case .evidence(let evidence) = $0.content { evidence } else { nil } }
  }

  var accounts: Set<AccountKey> { Set(items.compactMap(\.account)) }

  /// Whether the tables can be written again: they differ, and the entries are intact.
  var isRepairable: Bool {
    let kinds = Set(audit.differences.map(\.kind))
    return kinds.contains(.projection) && kinds.isDisjoint(with: [.chain, .head, .unreadable])
  }

  // MARK: Expected rows

  /// The original transactions with which the entries link a member.
  func links(of member: OriginalTransactionKey) -> Set<OriginalTransactionKey> {
    Set(
      items.compactMap { item in
        guard case .evidence(.link(let line, let previous)) = item.content else { return nil }
        return line == member ? previous : previous == member ? line : nil
      })
  }

  func statuses(of member: OriginalTransactionKey) -> [StatusRow] {
    items.compactMap { item in
      guard item.line == member, case .evidence(.renewalStatus(let status, _)) = item.content
      else { return nil }
      return StatusRow(
        number: item.number, recordedAt: item.recordedAt, status: status,
        tokenHolder: replayed.history.holder(of: status.appAccountToken))
    }
  }

  /// The claims, which a submission made unless they were found in a notification or a poll.
  func claims(of member: OriginalTransactionKey) -> [AuditedClaim] {
    sourced.filter { $0.item.line == member && $0.item.content.kind == .claim }.map {
      AuditedClaim(line: member, number: $0.item.number, submission: $0.source.id)
    }
  }

  func actions(of member: OriginalTransactionKey) -> [RecordedAction] {
    items.compactMap { item in
      guard item.line == member, case .action(let action) = item.content else { return nil }
      return RecordedAction(
        action, recorded: RecordingOrder(at: item.recordedAt, number: item.number))
    }
  }

  var transactions: [TransactionKey: TransactionRow] {
    Dictionary(
      uniqueKeysWithValues: TransactionRow.rows(of: replayed, rule: rule).map {
        ($0.transaction.key, $0)
      })
  }

  var holdings: Set<HoldingRow> {
    stored.lastRecordedAt.map { HoldingRow.rows(of: replayed, rule: rule, asOf: $0) } ?? []
  }

  var lookups: Set<LookupRow> {
    var lookups: Set<LookupRow> = []
    for transaction in replayed.history.transactions {
      let line = transaction.key.line
      lookups.insert(LookupRow(.transactionLookup, transaction.key.transactionID.rawValue, line))
      if let item = transaction.webOrderLineItemID {
        lookups.insert(LookupRow(.webOrderLineItem, item.rawValue, line))
      }
    }
    // An account that lost everything before a link may be unknown to the other members.
    let accounts = stored.accounts.union(replayed.decisions.values.compactMap(\.decision.owner))
    for account in accounts {
      for line in members { lookups.insert(LookupRow(account: account, line: line)) }
    }
    for item in items {
      if let account = item.account {
        lookups.insert(LookupRow(account: account, line: item.line))
      }
    }
    return lookups
  }

  /// Whether the entries give a row or once gave it: old look-up rows stay.
  func accounts(for row: LookupRow) -> Bool {
    guard stored.members[row.line] != nil else { return false }
    switch row.table {
    case .holding:
      return holdings.contains {
        names[$0.account].map(ExactText.init(_:)) == row.key && $0.holding.charge == row.charge
      }
    case .transactionLookup:
      return replayed.history.transactions.contains {
        $0.key.line == row.line && ExactText($0.key.transactionID.rawValue) == row.key
      }
    case .webOrderLineItem:
      return evidence.contains {
        if case .transaction(let record) = $0 {
          record.key.line == row.line
            && record.webOrderLineItemID.map { ExactText($0.rawValue) } == row.key
        } else {
          false
        }
      }
    case .accountLookup:
      return accounts.contains { LookupRow(account: $0, line: row.line) == row }
    }
  }

  var orders: [Charge.ID: UUID] {
    stored.members.values.reduce(into: [:]) { orders, member in
      for (charge, fulfilment) in member.fulfilments { orders[charge] = fulfilment.orderID }
    }
  }

  /// Whether a charge can have fulfilled an order: its account owns it, or did until an override.
  ///
  /// During a merge orders move before charges, also those of an earlier merge.
  func justifies(_ order: AuditedOrder, fulfilledBy transaction: TransactionKey) -> Bool {
    let accounts = [order.account, order.openedBy]
    guard let position = rule.position(of: transaction),
      let decision = replayed.decisions[rule.charges[position].id]?.decision
    else { return false }
    var owner = decision.owner
    for _ in 0...mergedInto.count {
      guard let account = owner else { break }
      if accounts.contains(account) { return true }
      owner = mergedInto[account]
    }
    return decision.rule == .administrator
      && items.contains { item in
        guard case .ownership(let change) = item.content, change.charge == transaction,
          let owner = change.decision.owner
        else { return false }
        return accounts.contains(owner)
      }
  }

  /// The statements that correct the links, on which everything else depends.
  var linkRepairs: [SQL] {
    members.compactMap { member in
      let expected = links(of: member)
      return expected == Set(stored.members[member]?.linked ?? [])
        ? nil : OriginalTransactionRows.setLinked(member, to: expected)
    }
  }
}

extension AuditedOriginalTransaction {
  /// The statements that write the projections again from the entries.
  ///
  /// Heads, orders and deliveries are kept. Only wrong movements are closed, for earlier reports.
  func rebuild(in catalogue: Catalogue, at now: Timestamp) throws -> [SQL] {
    let nothing = StoredOriginalTransaction(
      stored.members.values.map { member in
        var empty = member
        empty.transactions = []
        empty.statuses = []
        empty.actions = []
        return empty
      })
    let writes = ProjectionWriter(
      stored: nothing, line: replayed, rule: rule, items: sourced,
      holdings: HoldingChange(from: nothing, to: replayed, rule, by: Array(items))
        .leavingOut(by: catalogue),
      names: names, catalogue: nil)
    return members.flatMap(clear)
      + stored.rows.keys.filter { replayed.history[$0] == nil }.sorted().map {
        "DELETE FROM tenure.store_transaction WHERE \($0.condition)"
      }
      + TransactionLookup(replayed.history.transactions.map { ($0.key, $0.webOrderLineItemID) })
      .inserts
      + (try writes.projections(heads: stored.members.mapValues(\.head)))
      + movements.flatMap { $0.statements(at: stored.movementChange(at: now)) }
  }

  /// Empties the tables that ``ProjectionWriter`` only adds to.
  private func clear(_ line: OriginalTransactionKey) -> [SQL] {
    ["renewal_status", "ownership_action"].map { table in
      "DELETE FROM tenure.\(unescaped: table) WHERE \(line.condition)"
    } + names.values.sorted().map { HoldingRow.deleteAll(name: $0, line: line) }
  }
}
