import Foundation
import Subscriptions

extension LedgerAudit {
  /// Takes in what was found about one family.
  mutating func add(_ other: LedgerAudit) {
    charges += other.charges
    for difference in other.differences { append(difference) }
  }

  /// Recomputes a line's chain up to the head that its row names.
  mutating func checkChain(_ entries: [StoredEntry], of line: StoredLine) {
    var previous: [UInt8]?
    for (index, entry) in entries.enumerated() {
      if entry.number != index + 1 {
        report(.chain, line.id, "entry \(index + 1) is missing")
        return
      }
      if entry.hash != entry.chainedHash(after: previous) {
        report(.chain, line.id, "entry \(entry.number) does not have the hash that follows")
      }
      previous = entry.hash
    }
    if line.head.number != entries.count || line.head.hash != previous
      || line.head.recordedAt != entries.last?.recordedAt
    {
      report(
        .head, line.id,
        "the chain has \(entries.count) entries, its head names entry \(line.head.number)")
    }
  }

  /// Compares the recorded decisions with the rule, replayed.
  mutating func checkDecisions(of line: Line, replayed: OwnershipRule, line id: LineID) {
    for (charge, decision) in zip(replayed.charges, replayed.decisions) {
      let recorded = line.decisions[charge.id]?.decision
      if recorded?.owner != decision.owner || recorded?.rule != decision.rule {
        report(
          .decision, id,
          "transaction \(charge.id.transactionID) is recorded as "
            + "\(recorded?.rule.rawValue ?? "undecided"), the rule gives \(decision.rule.rawValue)")
      }
    }
  }

  /// Compares what the tables have with what the entries, folded again, give.
  ///
  /// - Parameters:
  ///   - family: The family with its entries.
  ///   - tables: What else is stored of it.
  ///   - catalogue: By what the journal is judged; nil: not at all.
  mutating func checkProjections(
    of family: AuditedFamily, in tables: AuditedTables, catalogue: Catalogue?
  ) {
    let (expected, actual) = (family.transactions, family.storedTransactions)
    for key in Set(expected.keys).union(actual.keys).sorted() where expected[key] != actual[key] {
      report(.projection, key.line, "the row of transaction \(key.transactionID) differs")
    }
    let summary = LineSummaryRow(LineSummary(line: family.folded, rule: family.rule))
    let bindings = BindingRow.rows(of: family.rule)
    for id in family.members {
      guard let member = family.stored.members[id] else { continue }
      if Set(member.statuses) != Set(family.statuses(of: id)) {
        report(.projection, id, "the renewal statuses differ")
      }
      if Set(member.acts) != Set(family.acts(of: id)) {
        report(.projection, id, "the claims or placements differ")
      }
      if tables.bindings[id] != bindings { report(.projection, id, "the bindings differ") }
      if tables.summaries[id] != summary { report(.projection, id, "the line's state differs") }
    }
    let holdings = family.holdings
    for row in holdings.subtracting(tables.holdings).sorted() {
      report(.projection, row.holding.charge.line, "\(row.description) is missing or differs")
    }
    for row in tables.holdings.sorted() where !holdings.contains(where: row.hasSameKey) {
      report(.projection, row.holding.charge.line, "\(row.description) should not be there")
    }
    if let catalogue { checkJournal(of: family, tables.movements, in: catalogue) }
    let names = Set(tables.lookups.map(\.name))
    for row in family.lookups.subtracting(tables.lookups).sorted(by: LookupRow.precedes)
    // A transaction or line item leads to the family by whichever of its lines.
    where row.table == .accountLine || !names.contains(row.name) {
      report(.projection, row.line, "\(row.description) is missing")
    }
  }

  /// Compares what the journal says now with what follows from the entries and the catalogue.
  private mutating func checkJournal(
    of family: AuditedFamily, _ movements: Set<MovementRow>, in catalogue: Catalogue
  ) {
    let expected = family.movements(in: catalogue)
    for row in expected.subtracting(movements).sorted() {
      report(.projection, row.family, "\(row.description) is missing or differs")
    }
    for row in movements.subtracting(expected).sorted()
    where !expected.contains(where: row.hasSameKey) {
      report(.projection, row.family, "\(row.description) should not be there")
    }
  }

  /// Compares the orders that charges of the family fulfilled with the orders themselves.
  mutating func checkOrders(of family: AuditedFamily, _ orders: [UUID: AuditedOrder]) {
    for (charge, orderID) in family.orders.sorted(by: { $0.key < $1.key }) {
      guard let order = orders[orderID], order.charge == charge else {
        report(
          .order, charge.line,
          "transaction \(charge.transactionID) fulfils order \(orderID), which does not say so")
        continue
      }
      if !family.justifies(order, fulfilledBy: charge) {
        report(
          .order, charge.line,
          "order \(orderID) is of an account that does not own transaction "
            + "\(charge.transactionID)")
      }
    }
  }
}

/// What is stored of a family beside what recording reads.
struct AuditedTables: Sendable {
  var bindings: [LineID: [BindingRow]] = [:]
  var summaries: [LineID: LineSummaryRow] = [:]
  var holdings: Set<HoldingRow> = []
  var lookups: Set<LookupRow> = []
  /// What the journal says now.
  var movements: Set<MovementRow> = []
}
