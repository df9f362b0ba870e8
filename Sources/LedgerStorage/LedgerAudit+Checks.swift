import Subscriptions

extension LedgerAudit {
  /// Sums up what was found about one family.
  mutating func add(_ other: LedgerAudit) {
    lines += other.lines
    entries += other.entries
    charges += other.charges
    holdings += other.holdings
    differences += other.differences
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
    if line.head.number != entries.count || line.head.hash != previous {
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
  mutating func checkProjections(
    stored: StoredFamily, bindings: [LineID: [BindingRow]], holdings: Set<HoldingRow>,
    folded: Line, rule: OwnershipRule, line id: LineID
  ) {
    let expected = Dictionary(
      uniqueKeysWithValues: TransactionRow.rows(of: folded, rule: rule).map {
        ($0.transaction.key, $0)
      })
    let storedRule = OwnershipRule(recordedOn: stored.line)
    let actual = Dictionary(
      uniqueKeysWithValues: TransactionRow.rows(of: stored.line, rule: storedRule).map {
        ($0.transaction.key, $0)
      })
    for key in Set(expected.keys).union(actual.keys).sorted()
    where expected[key] != actual[key] || stored.rows[key]?.charge != expected[key]?.charge {
      report(.projection, id, "the row of transaction \(key.transactionID) differs")
    }
    if folded.history.statuses != stored.line.history.statuses {
      report(.projection, id, "the renewal statuses differ")
    }
    if folded.history.acts != stored.line.history.acts {
      report(.projection, id, "the claims or placements differ")
    }
    for (line, rows) in bindings where rows != BindingRow.rows(of: rule) {
      report(.projection, line, "the bindings differ")
    }
    let asOf = stored.lastRecordedAt
    let due = asOf.map { HoldingRow.rows(of: folded, rule: rule, asOf: $0) } ?? []
    for row in due.symmetricDifference(holdings).sorted() {
      report(
        .projection, id,
        "the holding of transaction \(row.holding.charge.transactionID) "
          + (due.contains(row) ? "is missing or differs" : "should not be there"))
    }
  }
}
