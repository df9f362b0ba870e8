extension OwnershipRule {
  /// Takes every decision as recorded and computes none; nil if a charge has none, and orders and
  /// erasures need not be loaded.
  package init?(_ history: EvidenceHistory, recorded: [Charge.ID: Decision]) {
    let charges = Charge.charges(in: history)
    let decisions = charges.compactMap { recorded[$0.id] }
    guard decisions.count == charges.count else { return nil }
    self.init(history, charges: charges, recorded: decisions)
  }

  package init(recordedOn line: OriginalTransaction) {
    self =
      OwnershipRule(line.history, recorded: line.decisions.mapValues(\.decision))
      ?? OwnershipRule(line.history)
  }
}
