import Subscriptions
import Testing

/// The invariants of the ownership rule, for random evidence, claims and placements.
struct InvariantTests {
  @Test("Apple's evidence in every order, with repeats: the same owners, bindings and holdings")
  func orderOfArrival() {
    forAll("The order of arrival does not matter", iterations: 100) { generator in
      let history = RandomHistory(isHostile: generator.once(in: 2), using: &generator)
      let answers =
        generator.once(in: 2) ? withLaterAnswers(history.items, using: &generator) : history.items
      let items = rearranged(answers, using: &generator)
      var ledger = history.ledger
      ledger.record(batches(items, using: &generator), using: &generator)
      let expected = Outcome(ledger)

      for _ in 0..<3 {
        var other = history.ledger
        let repeated = withRepeats(rearranged(items, using: &generator), using: &generator)
        other.record(batches(repeated, using: &generator), using: &generator)
        let outcome = Outcome(other)
        if outcome != expected { return difference(outcome, expected) }
      }
      return nil
    }
  }

  @Test("Recording the same again appends nothing")
  func repeats() {
    forAll("The same again appends nothing", iterations: 100) { generator in
      let history = RandomHistory(isHostile: generator.once(in: 2), using: &generator)
      let items = rearranged(history.items, using: &generator)
      var ledger = history.ledger
      let batches = batches(items, using: &generator)
      for batch in batches { ledger.record(batch) }
      // The first claim after a release is not a repetition.
      if items.contains(where: isRelease) { ledger.record(withoutOverrides(items)) }
      let before = Outcome(ledger)
      for batch in batches + [withoutOverrides(items)] {
        let entries = ledger.record(withoutOverrides(batch))
        if let first = entries.first { return "appended \(first)" }
      }
      return Outcome(ledger) == before ? nil : "something changed"
    }
  }

  @Test("Repetitions change no decision, holding or movement")
  func repetitions() {
    var count = 0
    forAll("The rule needs no repetitions", iterations: 300) { generator in
      let history = RandomHistory(isHostile: generator.once(in: 2), using: &generator)
      var ledger = history.ledger
      let items = withLaterAnswers(history.items, using: &generator)
      ledger.record(
        batches(rearranged(items, using: &generator), using: &generator), using: &generator)
      let (line, rule) = (ledger.line, ledger.rule)
      let full = OriginalTransaction(
        history: line.history.adding(line.repeated), repeated: [:], decisions: line.decisions,
        heads: line.heads, links: line.links)
      let fullRule = OwnershipRule(full.history)
      if rule.charges != fullRule.charges { return "other charges" }
      for (one, other) in zip(rule.decisions, fullRule.decisions) where one != other {
        return "\(one)\nagainst \(other)"
      }
      if Set(line.allHoldings(rule).map(\.holding))
        != Set(full.allHoldings(fullRule).map(\.holding))
      {
        return "other holdings"
      }
      if Movement.movements(of: line, rule: rule, in: catalogue)
        != Movement.movements(of: full, rule: fullRule, in: catalogue)
      {
        let (one, other) = (
          Movement.movements(of: line, rule: rule, in: catalogue),
          Movement.movements(of: full, rule: fullRule, in: catalogue)
        )
        return
          "\(Set(one).subtracting(other))\nagainst \(Set(other).subtracting(one)) with \(full.history.statuses) of \(line.history.statuses) and \(rule.charges)"
      }
      count += full.history.statuses.count - line.history.statuses.count
      return nil
    }
    #expect(count > 0, "the property is about something")
  }

  @Test("Replaying the entries gives the same original transaction")
  func replaying() {
    forAll("The line is a function of its entries", iterations: 100) { generator in
      let history = RandomHistory(isHostile: generator.once(in: 2), using: &generator)
      var ledger = history.ledger
      let items = rearranged(history.items, using: &generator)
      ledger.record(batches(items, using: &generator), using: &generator)
      let (line, replayed) = (ledger.line, ledger.replayed)
      if replayed.decisions != line.decisions { return "other decisions" }
      if replayed.heads != line.heads { return "other heads" }
      if replayed.history.transactions != line.history.transactions { return "other transactions" }
      if replayed.history.statuses != line.history.statuses { return "other statuses" }
      if replayed.history.actions != line.history.actions { return "other acts" }
      for line in history.members {
        let numbers = ledger.items.filter { $0.line == line }.map(\.number)
        if numbers != Array(1..<(numbers.count + 1)) { return "gaps in \(numbers)" }
      }
      return nil
    }
  }

  @Test("Only entries change owners, and only to what the replay says")
  func owners() {
    forAll("Every owner has an entry", iterations: 100) { generator in
      let history = RandomHistory(isHostile: generator.once(in: 2), using: &generator)
      var ledger = history.ledger
      var owners: [Charge.ID: AccountKey] = [:]
      for batch in batches(rearranged(history.items, using: &generator), using: &generator) {
        for entry in ledger.record(batch) {
          guard case .ownership(let change) = entry.content else { continue }
          if owners[change.charge] != change.previousOwner { return "a wrong previous owner" }
          owners[change.charge] = change.decision.owner
        }
        if owners != ledger.line.decisions.compactMapValues(\.decision.owner) {
          return "an owner without an entry"
        }
        let rule = ledger.rule
        let recorded = rule.charges.map { ledger.line.decisions[$0.id]?.decision }
        if recorded != rule.decisions { return "not what the replay says" }
        if ledger.line.decisions.count != rule.charges.count { return "a decision too many" }
      }
      return nil
    }
  }

  @Test("A claim never corrects: what is settled stays")
  func claimsNeverCorrect() {
    forAll("Claims leave settled owners alone", iterations: 100) { generator in
      let history = RandomHistory(isHostile: generator.once(in: 2), using: &generator)
      var ledger = history.ledger
      for item in rearranged(history.items, using: &generator) { ledger.record([item]) }
      let before = ledger.line.decisions
      let keys = ledger.line.history.transactions.map(\.key)
      for _ in 0..<4 {
        ledger.claim(generator.pick(from: keys), by: generator.pick(a, b, c, t))
      }
      for (charge, recorded) in before where !recorded.decision.isProvisional {
        let decision = ledger.line.decisions[charge]?.decision
        if decision?.owner != recorded.decision.owner || decision?.rule != recorded.decision.rule {
          return "\(recorded.decision) became \(String(describing: decision))"
        }
      }
      return nil
    }
  }

  @Test("No entitlement without an unrevoked charge of that account")
  func entitlements() {
    forAll("Entitlements rest on charges", iterations: 100) { generator in
      let history = RandomHistory(isHostile: generator.once(in: 2), using: &generator)
      var ledger = history.ledger
      for batch in batches(rearranged(history.items, using: &generator), using: &generator) {
        ledger.record(batch)
      }
      let moment = RandomHistory.moment(
        near: day(Double(generator.number(0...9)) * 30), using: &generator)
      let rule = ledger.rule
      for account in [a, b, c, t] {
        for entitlement in ledger.entitlements(of: account, at: moment) where entitlement.isActive {
          let charge = rule.charges.first {
            $0.id.transactionID == entitlement.transactionID
              && $0.id.line.originalTransactionID == entitlement.originalTransactionID
          }
          guard let charge, ledger.line.decisions[charge.id]?.decision.owner == account else {
            return "not that account's"
          }
          if charge.date > moment + .clockTolerance { return "not begun" }
          if let revocation = charge.revocation, revocation.at <= moment { return "revoked" }
          if let supersededAt = charge.supersededAt, supersededAt <= moment { return "superseded" }
          if let end = entitlement.accessEndsAt, end <= moment { return "over" }
        }
      }
      return nil
    }
  }

  @Test("Leaving out what cannot matter any more changes no entitlement from then on")
  func pruning() {
    var dropped = 0
    forAll("Pruned holdings entitle to the same", iterations: 100) { generator in
      let history = RandomHistory(isHostile: generator.once(in: 2), using: &generator)
      var ledger = history.ledger
      for batch in batches(rearranged(history.items, using: &generator), using: &generator) {
        ledger.record(batch)
      }
      let moment = RandomHistory.moment(
        near: day(Double(generator.number(0...9)) * 30), using: &generator)
      let known =
        generator.once(in: 2)
        ? catalogue
        : Catalogue(
          catalogue.products.filter { $0.id == generator.pick(.monthly, .quarterly) })
      let rule = ledger.rule
      let (all, pruned) = (
        ledger.line.allHoldings(rule), ledger.line.holdings(rule, asOf: moment)
      )
      dropped += all.count - pruned.count
      for account in [a, b, c, t] {
        for later in [.zero, ms, .seconds(60), .days(1), .days(30), .days(200)] as [Duration] {
          let entitlements = [all, pruned].map { holdings in
            Entitlement.entitlements(
              holdings: holdings.filter { $0.account == account }.map(\.holding),
              catalogue: known, at: moment + later)
          }
          if entitlements[0] != entitlements[1] {
            return "\(entitlements[0]) against \(entitlements[1])"
          }
        }
      }
      return nil
    }
    #expect(dropped > 0, "the property is about something")
  }

  // MARK: Parts

  /// Most of Apple's answers again, some time later.
  private func withLaterAnswers(_ items: [Item], using generator: inout SeededGenerator) -> [Item] {
    items.flatMap { item -> [Item] in
      guard case .evidence(let evidence) = item else { return [item] }
      let delays = (0..<generator.number(0...3)).map { _ in
        generator.pick(ms, .hours(5), .hours(24), .days(2), .days(7), .days(30), .days(61))
      }
      return [item]
        + delays.map { delay in
          switch evidence {
          case .transaction(var record):
            record.asOf = record.asOf + delay
            return .evidence(.transaction(record))
          case .renewalStatus(var status, let line):
            status.asOf = status.asOf + delay
            return .evidence(.renewalStatus(status, line: line))
          case .link: return item
          }
        }
    }
  }

  private func withRepeats(_ items: [Item], using generator: inout SeededGenerator) -> [Item] {
    var result: [Item] = []
    for item in items {
      result.append(item)
      let earlier = generator.pick(from: result)
      if case .actions = earlier, result.contains(where: isRelease) { continue }
      if generator.once(in: 3), withoutOverrides([earlier]) == [earlier] {
        result.append(earlier)
      }
    }
    return result
  }

  /// An administrator who says the same twice has said it twice.
  private func withoutOverrides(_ items: [Item]) -> [Item] {
    items.filter { item in
      guard case .actions(let actions) = item else { return true }
      return !actions.contains { if case .ownerOverride = $0 { true } else { false } }
    }
  }

  private func isRelease(_ item: Item) -> Bool {
    guard case .actions(let actions) = item else { return false }
    return actions.contains {
      if case .ownerOverride(let ownerOverride) = $0 { ownerOverride.isRelease } else { false }
    }
  }

  private func difference(_ one: Outcome, _ other: Outcome) -> String {
    for (left, right) in zip(one.charges, other.charges) where left != right {
      return "\(left)\nagainst \(right)"
    }
    if one.bindings != other.bindings { return "other bindings" }
    if one.statuses != other.statuses { return "other statuses" }
    return "other holdings or charges"
  }
}
