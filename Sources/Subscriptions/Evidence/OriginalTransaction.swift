/// An original transaction, with those that Apple links: its history and the recorded decisions.
///
/// Everything enters through `record`, which appends items and applies them: applying the same
/// items again gives the same value.
///
/// ```swift
/// var line = OriginalTransaction(members: [id])
/// let (items, rule) = line.record(evidence, actions: claims, at: now)
/// ```
package struct OriginalTransaction: Sendable {
  /// Without repetitions.
  package private(set) var history = EvidenceHistory()
  package private(set) var repeated: [OriginalTransactionKey: RepeatedEvidence] = [:]
  /// By the transactions that name the charges.
  package private(set) var decisions: [Charge.ID: RecordedDecision] = [:]
  /// The number of each member's last item.
  package private(set) var heads: [OriginalTransactionKey: Int]
  /// The other original transactions with which Apple links each.
  package private(set) var links: [OriginalTransactionKey: Set<OriginalTransactionKey>] = [:]

  package struct RecordedDecision: Hashable, Sendable {
    package var decision: Decision
    package var decidedAt: Timestamp
    package var correctedAt: Timestamp?
    /// The earlier owners, and when each last lost the charge, in that order.
    package var losses: [Loss] = []

    package struct Loss: Hashable, Sendable {
      package var account: AccountKey
      package var at: Timestamp

      package init(account: AccountKey, at: Timestamp) {
        (self.account, self.at) = (account, at)
      }
    }

    package init(
      decision: Decision, decidedAt: Timestamp, correctedAt: Timestamp? = nil
    ) {
      self.decision = decision
      self.decidedAt = decidedAt
      self.correctedAt = correctedAt
    }
  }

  package init(members: some Sequence<OriginalTransactionKey>) {
    heads = Dictionary(members.map { ($0, 0) }) { first, _ in first }
  }

  package init(
    history: EvidenceHistory, repeated: [OriginalTransactionKey: RepeatedEvidence],
    decisions: [Charge.ID: RecordedDecision], heads: [OriginalTransactionKey: Int],
    links: [OriginalTransactionKey: Set<OriginalTransactionKey>] = [:]
  ) {
    self.history = history
    self.repeated = repeated
    self.decisions = decisions
    self.heads = heads
    self.links = links
  }

  package var statusAsOf: Timestamp? {
    ([history.statuses.last] + repeated.values.map(\.statuses.last)).compactMap { $0?.asOf }.max()
  }

  /// Sets token holders, orders, erasures and merges, which are not part of the items.
  package mutating func updateContext(_ update: (inout EvidenceHistory) -> Void) {
    update(&history)
  }

  /// Records evidence from one source and people's actions; the same again adds nothing.
  ///
  /// - Parameters:
  ///   - actions: In order; claims only on transactions that are recorded or in `evidence`.
  ///   - now: The recording date, later than that of every earlier item, because it orders the
  ///     actions of several original transactions.
  /// - Returns: The items to append, and the rule whose decisions they record; nil without any.
  package mutating func record(
    _ evidence: [Evidence], actions: [OwnershipAction] = [], at now: Timestamp
  ) -> (items: [LedgerItem], rule: OwnershipRule?) {
    var items = record(evidence, at: now)

    for action in actions {
      if history.says(action) { continue }
      items.append(append(.action(action), to: action.line, at: now))
    }
    guard !items.isEmpty else { return ([], nil) }

    let rule = OwnershipRule(history)
    return (items + recordDecisions(of: rule, actions: actions, at: now), rule)
  }

  package mutating func replay(_ item: LedgerItem) {
    heads[item.line] = max(heads[item.line] ?? 0, item.number)
    switch item.content {
    case .evidence(.transaction(let record)): history.add(record, recorded: item.recorded)
    case .evidence(.renewalStatus(let status, _)): history.add(status)
    case .evidence(.link(let line, let previous)):
      links[line, default: []].insert(previous)
      links[previous, default: []].insert(line)
    case .action(let action): history.add(action, recorded: item.recorded)
    case .ownership(let change): replay(change, at: item.recordedAt)
    }
  }

  // MARK: Parts of recording

  private mutating func append(
    _ content: LedgerItem.Content, to line: OriginalTransactionKey, at now: Timestamp
  ) -> LedgerItem {
    let item = LedgerItem(
      line: line, number: (heads[line] ?? 0) + 1, recordedAt: now, content: content)
    replay(item)
    return item
  }

  /// Appends new evidence, and then the repetitions to which it gives a meaning.
  private mutating func record(_ evidence: [Evidence], at now: Timestamp) -> [LedgerItem] {
    var items: [LedgerItem] = []
    var known = history.adding(repeated)
    let positions = history.positionsInLines
    for item in evidence {
      switch item {
      case .transaction(let record):
        if let transaction = known[record.key] {
          var merged = transaction
          merged.merge(record)
          if merged == transaction { continue }
          if let position = positions[record.key],
            let form = transaction.form(ofRepetition: record)
          {
            repeated[item.line, default: RepeatedEvidence()].add(
              form, about: position, asOf: record.asOf)
            known.add(record, recorded: transaction.recorded)
            continue
          }
          if var recorded = history[record.key] {
            recorded.merge(record)
            if !recorded.statesTheSame(as: merged) {
              items += appendAnswers(about: [record.key], at: now)
            }
          }
        }
      case .link(let line, let previous):
        if links[line]?.contains(previous) == true { continue }
      case .renewalStatus: continue
      }
      let appended = append(.evidence(item), to: item.line, at: now)
      if case .transaction(let record) = item { known.add(record, recorded: appended.recorded) }
      items.append(appended)
    }

    let hasRepetitions = repeated.contains { !$0.value.isEmpty }
    let hasStatuses = evidence.contains { $0.renewalStatus != nil }
    guard hasRepetitions || hasStatuses else { return items }
    var charges = Charge.charges(in: history)
    for case .renewalStatus(let status, let line) in evidence where known.add(status) {
      if history.isRepeated(status, among: charges) {
        repeated[line, default: RepeatedEvidence()].add(status)
      } else {
        items.append(append(.evidence(.renewalStatus(status, line: line)), to: line, at: now))
      }
    }
    // Dates of one transaction also count against those of others that report the same charge.
    if charges.contains(where: { !$0.aliases.isEmpty }) {
      let repeatedCharges = Charge.charges(in: history.adding(repeated))
      if charges != repeatedCharges {
        items += appendAnswers(about: Set(history.transactions.map(\.key)), at: now)
        charges = repeatedCharges
      }
    }
    for (line, statuses) in repeated.mapValues(\.statuses).sorted(by: { $0.key < $1.key }) {
      for status in statuses where !history.isRepeated(status, among: charges) {
        repeated[line]?.statuses.removeAll { $0 == status }
        items.append(append(.evidence(.renewalStatus(status, line: line)), to: line, at: now))
      }
    }
    return items
  }

  private mutating func appendAnswers(about keys: Set<TransactionKey>, at now: Timestamp)
    -> [LedgerItem]
  {
    var items: [LedgerItem] = []
    for (line, answers) in repeated.sorted(by: { $0.key < $1.key }) {
      for (position, transaction) in history.transactions(of: line).enumerated()
      where keys.contains(transaction.key) {
        repeated[line]?.removeAnswers(about: position)
        for record in answers.records(of: transaction, at: position) {
          items.append(append(.evidence(.transaction(record)), to: line, at: now))
        }
      }
    }
    return items
  }

  private mutating func recordDecisions(
    of rule: OwnershipRule, actions: [OwnershipAction], at now: Timestamp
  ) -> [LedgerItem] {
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
    if change.changesOwner {
      recorded.losses.removeAll {
        $0.account == change.previousOwner || $0.account == change.decision.owner
      }
      if let account = change.previousOwner {
        recorded.losses.append(RecordedDecision.Loss(account: account, at: now))
      }
    }
    recorded.decision = change.decision
    decisions[change.charge] = recorded
  }
}
