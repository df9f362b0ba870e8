extension OwnershipRule {
  /// What was added to a history at once.
  package struct News: Sendable {
    package var transactions: Set<TransactionKey> = []
    package var statusDates: [Timestamp] = []
    package var claims: [RecordedAct] = []
    /// Whether facts of known transactions changed, lines were linked, or charges placed.
    package var changesKnownCharges = false
    /// Whether later answers said what was known: that can change what holds of a charge with
    /// several reports, for the latest answer about any of them holds.
    package var confirmsKnownTransactions = false

    package init() {}
  }

  /// Decides only what is new, where that is all that can have changed; nil where only the replay
  /// will do.
  ///
  /// Applies if every change is newer than all that was known: new charges dated after the latest
  /// known one, statuses dated at or after it (evidence dated after a charge says nothing about
  /// it), and claims on new or on settled charges; and no placement of a whole line speaks for a
  /// new charge. A property test shows it equal to the replay.
  ///
  /// - Parameters:
  ///   - history: The history with everything new in it.
  ///   - known: The decisions that are recorded, by naming transaction.
  ///   - news: What was added to the history since they were made.
  package init?(_ history: LineHistory, known: [Charge.ID: Decision], news: News) {
    guard !news.changesKnownCharges, !history.hasPlacements, history.merges.isEmpty
    else { return nil }
    let charges = Charge.charges(in: history)
    let firstNew = charges.firstIndex { known[$0.id] == nil } ?? charges.endIndex
    let (old, new) = (charges[..<firstNew], charges[firstNew...])
    let decisions = old.compactMap { known[$0.id] }
    guard
      decisions.count == known.count,
      new.allSatisfy({ $0.transactions.allSatisfy(news.transactions.contains) }),
      !old.contains(where: { $0.transactions.contains(where: news.transactions.contains) }),
      !news.confirmsKnownTransactions || old.allSatisfy(\.aliases.isEmpty),
      !history.linePlacements.contains(where: { new.contains(where: $0.covers) })
    else { return nil }

    if let latest = old.last?.date {
      guard new.allSatisfy({ latest < $0.date }), news.statusDates.allSatisfy({ latest <= $0 }),
        !old.contains(where: { $0.isSuperseded(byChargeFrom: new.first?.date) })
      else { return nil }
    }
    let unsettled = Set(
      zip(old, decisions).flatMap { $1.isProvisional ? $0.transactions : [] })
    guard
      !news.claims.contains(where: { $0.act.transaction.map(unsettled.contains) ?? true })
    else { return nil }

    self.init(history, charges: charges, knowing: decisions, performing: news.claims)
  }

  /// Takes every decision as it is recorded, and works out none; nil if a charge has none.
  ///
  /// So nothing is asked of the history but its charges: what stood beside it when the decisions
  /// were made, orders and erasures, need not be known.
  ///
  /// - Parameters:
  ///   - history: The history.
  ///   - recorded: The decisions that are recorded, by naming transaction.
  package init?(_ history: LineHistory, recorded: [Charge.ID: Decision]) {
    let charges = Charge.charges(in: history)
    let decisions = charges.compactMap { recorded[$0.id] }
    guard decisions.count == charges.count else { return nil }
    self.init(history, charges: charges, knowing: decisions, performing: [])
  }
}

extension LineHistory {
  fileprivate var hasPlacements: Bool {
    acts.contains { if case .placement = $0.act { true } else { false } }
  }
}

extension Charge {
  /// Whether a charge from `date` on may be what turned this one's refund into an upgrade.
  fileprivate func isSuperseded(byChargeFrom date: Timestamp?) -> Bool {
    guard let supersededAt, let date else { return false }
    return supersededAt >= date - Charge.upgradeTolerance
  }
}
