import Subscriptions
import Testing

/// The date at which auto-renew was switched off, from a source that can't prove it.
///
/// A owns P, a month from day 0 to day 30; Apple's answer of a day says that auto-renew is off.
struct ReportedSwitchOffTests {
  private static let margin = Duration.hours(24) + .seconds(60)

  struct Case: Sendable, CustomTestStringConvertible {
    var name: String
    var received: [RenewalStatus]
    var reported: Timestamp
    var isUsed: Bool
    var more: [TransactionRecord] = []

    var testDescription: String { name }
  }

  // swift-format-ignore
  static let cases: [Case] = [
    Case(name: "before Apple's off",             received: [off(day(12))], reported: day(10), isUsed: true),
    Case(name: "with P",                         received: [off(day(12))], reported: day(0), isUsed: true),
    Case(name: "before P",                       received: [off(day(12))], reported: day(0, minus(ms)), isUsed: false),
    Case(name: "as Apple said",                  received: [off(day(12))], reported: day(12), isUsed: false),
    Case(name: "after Apple's off",              received: [off(day(12))], reported: day(12, ms), isUsed: false),
    Case(name: "Apple said nothing",             received: [], reported: day(10), isUsed: false),
    Case(name: "Apple said on",                  received: [on(day(12))], reported: day(10), isUsed: false),
    Case(name: "Apple said on since",            received: [off(day(12)), on(day(14))], reported: day(10), isUsed: false),
    Case(name: "on before it",                   received: [on(day(9)), off(day(12))], reported: day(10), isUsed: true),
    Case(name: "on at it",                       received: [on(day(10)), off(day(12))], reported: day(10), isUsed: false),
    Case(name: "on after it",                    received: [on(day(11)), off(day(12))], reported: day(10), isUsed: false),
    Case(name: "a token before it",              received: [status(day(9), .undisturbed, token: b), off(day(12))], reported: day(10), isUsed: true),
    Case(name: "a token after it",               received: [status(day(11), .undisturbed, token: b), off(day(12))], reported: day(10), isUsed: false),
    Case(name: "a token with Apple's off",       received: [off(day(12), token: issuedToken(b))], reported: day(10), isUsed: true),
    Case(name: "off known before",               received: [off(day(9)), off(day(12))], reported: day(10), isUsed: false),
    Case(name: "more than a day before the end", received: [off(day(30, minus(margin + ms)))], reported: day(10), isUsed: true),
    Case(name: "a day before the end",           received: [off(day(30, minus(margin)))], reported: day(10), isUsed: false),
    Case(name: "in the last day",                received: [off(day(29.5))], reported: day(10), isUsed: false),
    Case(name: "after the end",                  received: [off(day(31))], reported: day(10), isUsed: false),
    Case(name: "before a later charge",          received: [off(day(35))], reported: day(10), isUsed: false,
         more: [charge("2", from: day(30), to: day(60))]),
    Case(name: "after a later charge",           received: [off(day(35))], reported: day(32), isUsed: true,
         more: [charge("2", from: day(30), to: day(60))]),
    Case(name: "a charge that is dated ahead",   received: [off(day(12))], reported: day(10), isUsed: false,
         more: [charge("2", from: day(30), to: day(60), asOf: day(11))]),
  ]

  @Test(arguments: cases)
  func `counts where Apple says the same, and no charge hangs on it`(row: Case) {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30)))
    for record in row.more { ledger.receive(record) }
    ledger.receive(row.received)
    let evidence = ledger.line.evidence(of: AutoRenewOffDate(line: mainKey, at: row.reported))
    let expected = Evidence.renewalStatus(off(row.reported), line: mainKey)
    #expect(evidence == (row.isUsed ? expected : nil))
  }

  /// A status from Apple that does not mention auto-renew.
  private static func status(
    _ asOf: Timestamp, _ phase: RenewalStatus.Phase, token account: AccountKey
  ) -> RenewalStatus {
    RenewalStatus(
      asOf: asOf, autoRenews: nil, phase: phase, appAccountToken: issuedToken(account))
  }

  @Test func `what is bought once has none`() {
    var ledger = Ledger()
    ledger.receive(charge("1", .lifetime, from: day(0)))
    ledger.receive([off(day(12))])
    #expect(ledger.line.evidence(of: AutoRenewOffDate(line: mainKey, at: day(10))) == nil)
  }

  /// An invented date changes no owner, whatever evidence comes later.
  ///
  /// Orders opened between the two dates are the exception: an invented date could as well open
  /// an order then.
  @Test func `a date that is made up moves no charge`() {
    forAll("a date that is made up moves no charge", iterations: 1000) { generator in
      let history = RandomHistory(isHostile: false, using: &generator)
      let (past, future) = Self.split(history.items, using: &generator)
      var believed = Ledger(members: history.members, erasures: history.erasures)
      believed.record(past)
      var doubted = believed
      guard let last = believed.rule.charges.last else { return nil }
      let report = AutoRenewOffDate(
        line: mainKey, at: RandomHistory.moment(near: last.date, using: &generator))
      guard let evidence = believed.line.evidence(of: report),
        !future.contains(where: { Self.isRenewal($0, before: last.end ?? last.date) })
      else { return nil }
      believed.record([.evidence(evidence)])
      believed.record(future)
      doubted.record(future)
      let (left, right) = (believed.line.decisions, doubted.line.decisions)
      let changed = left.filter { $0.value.decision.owner != right[$0.key]?.decision.owner }
      return changed.isEmpty ? nil : "\(report): \(changed.keys)"
    }
  }

  /// Splits items by when Apple answered: the answer lists every charge that was made before it,
  /// and all later items have later dates.
  private static func split(_ items: [Item], using generator: inout SeededGenerator)
    -> (past: [Item], future: [Item])
  {
    // Near an end: there the rule looks at days and minutes.
    let ends = items.compactMap { item -> Timestamp? in
      if case .evidence(.transaction(let record)) = item { record.expiresDate } else { nil }
    }
    let end = ends.isEmpty ? day(30) : generator.pick(from: ends)
    let moment = RandomHistory.moment(near: end, using: &generator)
    let (past, future) = (
      items.filter { date(of: $0) <= moment }, items.filter { date(of: $0) > moment }
    )
    return (past + [.evidence(.renewalStatus(off(moment), line: mainKey))], future)
  }

  /// Whether an item is a renewal in the middle of a period, which Apple never makes.
  private static func isRenewal(_ item: Item, before end: Timestamp) -> Bool {
    guard case .evidence(.transaction(let record)) = item else { return false }
    return record.kind == .renewal && record.chargedAt < end - .gapTolerance
  }

  private static func date(of item: Item) -> Timestamp {
    switch item {
    case .evidence(.transaction(let record)): max(record.chargedAt, record.asOf)
    case .evidence(.renewalStatus(let status, _)): status.asOf
    case .evidence(.link): day(0)
    case .actions(let actions):
      actions.map { action in
        switch action {
        case .claim(let claim): claim.receivedAt
        case .ownerOverride(let ownerOverride): ownerOverride.effectiveFrom
        case .importedOverride(let ownerOverride): ownerOverride.boughtUntil
        }
      }.max() ?? day(0)
    }
  }
}
