/// An original transaction, with those that Apple links: its history and the recorded decisions.
///
/// Everything enters through `record`, which appends entries and applies them: applying the same
/// entries again gives the same value.
///
/// ```swift
/// var line = OriginalTransaction(members: [id])
/// let (entries, rule) = line.record(evidence, actions: claims, at: now)
/// ```
package struct OriginalTransaction: Sendable {
  package private(set) var history = EvidenceHistory()
  /// By the transactions that name the charges.
  package private(set) var decisions: [Charge.ID: RecordedDecision] = [:]
  /// The number of each member's last entry.
  package private(set) var heads: [OriginalTransactionKey: Int]
  /// The original transactions that each continues, as Apple reports.
  package private(set) var links: [OriginalTransactionKey: Set<OriginalTransactionKey>] = [:]

  package struct RecordedDecision: Hashable, Sendable {
    package var decision: Decision
    package var decidedAt: Timestamp
    /// The date of the latest correction by late evidence.
    package var correctedAt: Timestamp?

    package init(decision: Decision, decidedAt: Timestamp, correctedAt: Timestamp? = nil) {
      self.decision = decision
      self.decidedAt = decidedAt
      self.correctedAt = correctedAt
    }
  }

  /// - Parameter members: The keys that Apple links.
  package init(members: some Sequence<OriginalTransactionKey>) {
    heads = Dictionary(members.map { ($0, 0) }) { first, _ in first }
  }

  package init(
    history: EvidenceHistory, decisions: [Charge.ID: RecordedDecision],
    heads: [OriginalTransactionKey: Int],
    links: [OriginalTransactionKey: Set<OriginalTransactionKey>] = [:]
  ) {
    self.history = history
    self.decisions = decisions
    self.heads = heads
    self.links = links
  }

  /// Sets token holders, orders, erasures and merges, which are not part of the entries.
  package mutating func updateContext(_ update: (inout EvidenceHistory) -> Void) {
    update(&history)
  }

  /// Records evidence from one source and people's actions.
  ///
  /// Recording the same again adds nothing.
  ///
  /// - Parameters:
  ///   - actions: Actions in order; claims only on transactions that are recorded or in `evidence`.
  ///   - now: The recording date. It must be later than that of every earlier entry, because it
  ///     orders the actions of several original transactions.
  /// - Returns: The entries to append, in order, and the rule whose decisions they record; no rule
  ///   if there are no entries.
  package mutating func record(
    _ evidence: [Evidence], actions: [OwnershipAction] = [], at now: Timestamp
  ) -> (entries: [LedgerEntry], rule: OwnershipRule?) {
    var entries: [LedgerEntry] = []
    var confirmations: [TransactionRecord] = []
    for item in evidence {
      switch item {
      case .transaction(let record):
        switch history.change(by: record) {
        case .nothing: continue
        case .confirmation:
          confirmations.append(record)
          continue
        case .facts: break
        }
      case .renewalStatus(let status, _):
        guard !history.statuses.contains(status) else { continue }
      case .link(let line, let previous):
        guard links[line]?.contains(previous) != true else { continue }
      }
      entries.append(append(.evidence(item), to: item.line, at: now))
    }
    entries += confirm(confirmations, at: now)

    for action in actions {
      if history.says(action) { continue }
      entries.append(append(.action(action), to: action.line, at: now))
    }
    guard !entries.isEmpty else { return ([], nil) }

    let rule = OwnershipRule(history)
    return (entries + recordDecisions(of: rule, actions: actions, at: now), rule)
  }

  package mutating func replay(_ entry: LedgerEntry) {
    heads[entry.line] = max(heads[entry.line] ?? 0, entry.number)
    switch entry.content {
    case .evidence(.transaction(let record)):
      history.add(record, recorded: entry.recorded)
    case .evidence(.renewalStatus(let status, _)):
      history.add(status)
    case .evidence(.link(let line, let previous)):
      links[line, default: []].insert(previous)
    case .confirmation(let asOf):
      history.confirm(entry.line, asOf: asOf)
    case .action(let action):
      history.add(action, recorded: entry.recorded)
    case .ownership(let change):
      replay(change, at: entry.recordedAt)
    }
  }

  // MARK: Parts of recording

  private mutating func append(
    _ content: LedgerEntry.Content, to line: OriginalTransactionKey, at now: Timestamp
  ) -> LedgerEntry {
    let entry = LedgerEntry(
      line: line, number: (heads[line] ?? 0) + 1, recordedAt: now, content: content)
    replay(entry)
    return entry
  }

  /// Records a later answer without new facts.
  ///
  /// The date matters, because an older answer that differs can still arrive. One entry is enough
  /// for an answer that repeats everything known of an original transaction.
  private mutating func confirm(_ records: [TransactionRecord], at now: Timestamp)
    -> [LedgerEntry]
  {
    struct Answer: Hashable {
      let line: OriginalTransactionKey
      let asOf: Timestamp
    }
    let answers = Dictionary(grouping: records) { Answer(line: $0.key.line, asOf: $0.asOf) }
    return answers.sorted { ($0.key.line, $0.key.asOf) < ($1.key.line, $1.key.asOf) }
      .flatMap { answer, records in
        if records.count > 1,
          history.isConfirmed(by: records, of: answer.line, asOf: answer.asOf)
        {
          return [append(.confirmation(asOf: answer.asOf), to: answer.line, at: now)]
        }
        return records.compactMap { record in
          // An answer may list a transaction twice.
          if history.change(by: record) == .nothing { return nil }
          return append(.evidence(.transaction(record)), to: answer.line, at: now)
        }
      }
  }

  private mutating func recordDecisions(
    of rule: OwnershipRule, actions: [OwnershipAction], at now: Timestamp
  ) -> [LedgerEntry] {
    let placed = Set(
      actions.compactMap {
        if case .ownerOverride(let ownerOverride) = $0 { ownerOverride.transaction } else { nil }
      })
    let isPlacing = actions.contains { if case .claim = $0 { false } else { true } }
    func action(on charge: Charge, from recorded: Decision?, to decision: Decision)
      -> OwnershipChange.Action
    {
      if charge.transactions.contains(where: placed.contains) { return .placed }
      guard let recorded, !recorded.isProvisional else {
        return switch decision.rule {
        case .administrator: .placed
        case .submitter: .claimed
        case .activelyAutoRenewing, .appAccountToken, .unclaimed: .decided
        }
      }
      if recorded.owner == decision.owner { return .decided }
      // A charge that the merged account still got follows the merge.
      let follows = recorded.owner.map { history.successor(of: $0) == decision.owner } ?? false
      return isPlacing || follows ? .placed : .corrected
    }

    var changes: [OwnershipChange] = []
    for (charge, decision) in zip(rule.charges, rule.decisions) {
      let recorded = decisions[charge.id]?.decision
      guard recorded != decision else { continue }
      changes.append(
        OwnershipChange(
          action: action(on: charge, from: recorded, to: decision), charge: charge.id,
          previousOwner: recorded?.owner, decision: decision))
    }
    return (changes + retirements(by: rule)).map {
      append(.ownership($0), to: $0.charge.line, at: now)
    }
  }

  /// Withdraws the decisions on transactions that turned out to report another charge.
  private func retirements(by rule: OwnershipRule) -> [OwnershipChange] {
    let names = Set(rule.charges.map(\.id))
    return decisions.filter { !names.contains($0.key) }
      .sorted { $0.key < $1.key }
      .map { retired, recorded in
        let charge = rule.position(of: retired).map { rule.charges[$0].id }
        return OwnershipChange(
          action: recorded.decision.isProvisional ? .decided : .corrected, charge: retired,
          previousOwner: recorded.decision.owner,
          decision: Decision(
            owner: nil, rule: .unclaimed,
            renewal: RenewalEvidence(reason: .reportsAnotherCharge, previous: charge)))
      }
  }

  private mutating func replay(_ change: OwnershipChange, at now: Timestamp) {
    if change.retiresCharge {
      decisions[change.charge] = nil
      return
    }
    var recorded =
      decisions[change.charge] ?? RecordedDecision(decision: change.decision, decidedAt: now)
    // A correction keeps the date of the decision that it corrects.
    if change.action == .corrected {
      recorded.correctedAt = now
    } else if change.changesOwner {
      recorded.decidedAt = now
    }
    recorded.decision = change.decision
    decisions[change.charge] = recorded
  }
}
