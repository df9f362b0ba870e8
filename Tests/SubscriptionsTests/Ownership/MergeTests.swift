import Subscriptions
import Testing

/// Charges of merged accounts, from before and after the merge.
struct MergeTests {
  private static let month = charge("1", from: day(0), to: day(30))
  private static let renewal = charge("2", from: day(30), to: day(60), kind: .renewal)

  @Test func `what the guest had and what renews later are the member's`() {
    var ledger = Ledger()
    ledger.receive(Self.month)
    ledger.claim(key("1"), by: a)
    ledger.merge(a, into: b)
    #expect(ledger.owner("1") == b)
    #expect(ledger.decision("1")?.rule == .administrator)
    ledger.receive(Self.renewal)
    #expect(ledger.owner("2") == b)
    #expect(ledger.line.decisions == ledger.replayed.decisions)
  }

  @Test func `a token of the guest's is the member's from then on`() {
    var ledger = Ledger()
    // Bought by the guest, submitted by the member.
    ledger.receive(charge("1", from: day(0), to: day(30), token: issuedToken(a)))
    ledger.claim(key("1"), by: b)
    ledger.merge(a, into: b)
    // Switched off and on again: otherwise the token would be another account's.
    ledger.receive([off(day(5)), on(day(10))])
    ledger.receive(
      charge("2", from: day(30), to: day(60), kind: .renewal, token: issuedToken(a)))
    #expect(ledger.owner("2") == b)
    #expect(ledger.decision("2")?.rule == .activelyAutoRenewing)

    var other = Ledger()
    other.receive(Self.month)
    other.merge(a, into: b)
    other.receive(charge("9", from: day(70), to: day(100), token: issuedToken(a)))
    #expect(other.owner("9") == b)
    #expect(other.decision("9")?.rule == .appAccountToken)
  }

  @Test func `an earlier charge that is reported late belongs to the member, too`() {
    var ledger = Ledger()
    ledger.receive(charge("2", from: day(30), to: day(60), token: issuedToken(a)))
    ledger.merge(a, into: b)
    ledger.receive(charge("1", from: day(0), to: day(30), token: issuedToken(a)))
    #expect(ledger.owner("1") == b)
    #expect(ledger.owner("2") == b)
  }

  @Test func `nothing belongs to the guest any more, and no other owner changes`() {
    var moved = 0
    forAll("What was the guest's is the member's", iterations: 150) { generator in
      let history = RandomHistory(isHostile: generator.once(in: 2), using: &generator)
      var ledger = Ledger(
        members: history.members, orders: history.orders, erasures: history.erasures)
      let batches = batches(rearranged(history.items, using: &generator), using: &generator)
      let split = generator.number(0...batches.count)
      for batch in batches.prefix(split) { ledger.record(batch) }
      let before = ledger.line.decisions
      let entries = ledger.merge(a, into: b)
      let owned = before.values.filter { $0.decision.owner == a }.count
      moved += owned
      if owned == 0, !entries.isEmpty || Self.differs(ledger) {
        return "a line on which the guest had nothing changed: \(entries)"
      }
      for (charge, decision) in before where decision.decision.owner == a {
        if ledger.line.decisions[charge]?.decision.owner != b { return "not the member's" }
      }
      for batch in batches.dropFirst(split) {
        ledger.record(batch)
        if ledger.line.decisions.values.contains(where: { $0.decision.owner == a }),
          !batch.isOverride
        {
          return "the guest's again"
        }
        if Self.differs(ledger) { return "not what the replay says" }
      }
      if ledger.replayed.decisions != ledger.line.decisions { return "other decisions" }
      return nil
    }
    #expect(moved > 0, "the property is about something")
  }

  private static func differs(_ ledger: Ledger) -> Bool {
    let rule = ledger.rule
    return rule.decisions != rule.charges.map { ledger.line.decisions[$0.id]?.decision }
  }
}

extension [Item] {
  fileprivate var isOverride: Bool {
    contains {
      guard case .actions(let actions) = $0 else { return false }
      return actions.contains { if case .ownerOverride = $0 { true } else { false } }
    }
  }
}
