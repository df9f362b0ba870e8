import Subscriptions
import Testing

/// Invariants of every subscription's movements, for random evidence.
struct MovementPropertyTests {
  @Test("The same movements, whatever the order in which Apple's evidence arrives")
  func orderOfArrival() {
    forAll("Movements don't depend on the order of arrival", iterations: 75) { generator in
      let history = RandomHistory(isHostile: generator.once(in: 2), using: &generator)
      let items = priced(rearranged(history.items, using: &generator), using: &generator)
      var ledger = history.ledger
      ledger.record(batches(items, using: &generator), using: &generator)
      let expected = Counted.all(ledger)
      for _ in 0..<3 {
        var other = history.ledger
        other.record(
          batches(rearranged(items, using: &generator), using: &generator), using: &generator)
        if Counted.all(other) != expected {
          return "\(other.movements(in: .priced).map(\.words)) differ from "
            + "\(ledger.movements(in: .priced).map(\.words))"
        }
      }
      return nil
    }
  }

  @Test("Stocks are possible at every moment and by every dimension")
  func stocks() {
    forAll("Sums of movements are stocks", iterations: 150) { generator in
      let history = RandomHistory(isHostile: generator.once(in: 2), using: &generator)
      let items = priced(rearranged(history.items, using: &generator), using: &generator)
      var ledger = history.ledger
      ledger.record(batches(items, using: &generator), using: &generator)
      let movements = ledger.movements(in: .priced)
      if movements != movements.sorted() { return "not in order" }
      if Set(movements.map(\.key)).count != movements.count { return "two of one key" }
      var stocks = Stocks()
      for (index, movement) in movements.enumerated() {
        stocks.add(movement)
        let isMomentOver = index + 1 == movements.count || movements[index + 1].at != movement.at
        guard isMomentOver, let fault = stocks.fault else { continue }
        return "\(fault) on \(movement.words): \(movements.map(\.words))"
      }
      if let open = stocks.open { return "\(open) in the end: \(movements.map(\.words))" }
      return nil
    }
  }

  @Test("A timeline has no gap, and its end is what the line comes to now")
  func timelines() {
    forAll("Timelines are whole", iterations: 150) { generator in
      let history = RandomHistory(isHostile: generator.once(in: 2), using: &generator)
      var ledger = history.ledger
      let items = rearranged(history.items, using: &generator)
      ledger.record(batches(items, using: &generator), using: &generator)
      let rule = ledger.rule
      let spans = SubscriptionTimeline(of: ledger.line, rule: rule, in: .priced).spans
      let all = rule.charges.filter(\.isSubscription)
      // Not by the product's own function, which it is to be compared with.
      let ran = all.filter { !$0.neverBegan }
      let subscriptions = ran.isEmpty ? all : ran
      if spans.first?.start != subscriptions.first?.date { return "begins elsewhere" }
      if zip(spans, spans.dropFirst()).contains(where: { $0.end != $1.start }) { return "a gap" }
      if spans.contains(where: { span in span.end.map { $0 <= span.start } ?? false }) {
        return "a span without time"
      }
      if let last = spans.last, last.end != nil || last.isPaid || last.isTrial {
        return "something runs forever"
      }
      guard let position = rule.charges.latestPosition, rule.charges[position].isSubscription,
        let running = spans.last(where: { $0.isPaid || $0.isTrial }),
        running.terms.charge == rule.charges[position].id, running.state != .inGracePeriod
      else { return nil }
      // A status from after its end says nothing about the time before.
      let isOn = running.state == .activeRenewing || running.state == .trialRenewing
      let lateStatuses = ledger.line.history.statuses.contains { status in
        status.autoRenews != nil && running.end.map { status.asOf >= $0 } ?? false
      }
      if !lateStatuses, isOn != rule.renewal(ofChargeAt: position).autoRenews {
        return "another word on auto-renew than the rule's"
      }
      return nil
    }
  }
}

/// A movement in words that don't depend on which of a charge's transactions was recorded first.
private struct Counted: Hashable {
  var movement: Movement
  var reports: Set<TransactionKey>

  static func all(_ ledger: Ledger) -> Set<Counted> {
    let rule = ledger.rule
    return Set(
      ledger.movements(in: .priced).map { movement in
        let charge = rule.charges.first {
          $0.id == movement.terms.charge && $0.productID == movement.terms.productID
        }
        var movement = movement
        movement.terms.charge = key("")
        // When it was decided is a matter of when it arrived.
        movement.ownership = nil
        // The end is Apple's for the first transaction, which names the charge.
        movement.expiry = nil
        return Counted(movement: movement, reports: Set(charge?.transactions ?? []))
      })
  }
}

/// The sums of movements up to a moment.
private struct Stocks {
  struct Place: Hashable {
    var product: ProductID
    var ownership: OwnershipType
    var period: PeriodType?
    var state: String?
  }

  struct Price: Hashable {
    var currency: String?
    var source: ChargePrice.Source?
  }

  private var paid: [Place: Int] = [:]
  private var trials: [Place: Int] = [:]
  private var states: [Place: Int] = [:]
  private var monthly: [Price: Int64] = [:]
  private var troubles = 0
  private var hasBegun = false

  mutating func add(_ movement: Movement) {
    let place = Place(
      product: movement.terms.productID, ownership: movement.terms.ownershipType,
      period: movement.terms.periodType)
    switch movement.kind {
    case .state:
      hasBegun = true
      var place = place
      place.state = movement.cause
      states[place, default: 0] += movement.number
    case .started, .resumed, .ended, .changedFrom, .changedTo, .repriced:
      var place = place
      place.period = nil
      paid[place, default: 0] += movement.number
      let price = Price(
        currency: movement.terms.price?.currency, source: movement.terms.price?.source)
      monthly[price, default: 0] += movement.monthlyTwelfths
    case .trialStarted, .trialEnded: trials[place, default: 0] += movement.number
    case .graceEntered, .retryEntered: troubles = 1
    case .billingRecovered, .billingLost: troubles -= 1
    case .charged, .refunded, .autoRenewOff, .autoRenewOn: break
    }
  }

  /// A violated invariant.
  var fault: String? {
    let all = [("paid", paid), ("trials", trials), ("states", states)]
    for (name, stock) in all {
      if stock.values.contains(where: { $0 != 0 && $0 != 1 }) { return "\(name): \(stock)" }
      if stock.values.reduce(0, +) > 1 { return "several \(name)" }
    }
    if states.values.reduce(0, +) != (hasBegun ? 1 : 0) { return "no state" }
    if !(0...1).contains(troubles) { return "\(troubles) troubles" }
    if monthly.values.contains(where: { $0 < 0 }) { return "a negative sum" }
    let isPaid = paid.values.contains(1)
    let state = states.first { $0.value == 1 }?.key.state
    let mayBePaid = ["active_renewing", "active_cancelled", "in_grace_period"]
    if isPaid, trials.values.contains(1) { return "paid for, and a trial" }
    if isPaid, !mayBePaid.contains(state ?? "") { return "paid for, but \(state ?? "")" }
    if !isPaid, monthly.values.contains(where: { $0 != 0 }) { return "brings in something unpaid" }
    if monthly.values.count(where: { $0 != 0 }) > 1 { return "brings in two prices" }
    return nil
  }

  /// A stock that should be empty at the end.
  var open: String? {
    if paid.values.contains(1) { return "paid for" }
    if trials.values.contains(1) { return "a trial" }
    return troubles == 0 ? nil : "trouble"
  }
}

/// The same items with prices, offers and trials, the same for each transaction wherever it occurs.
private func priced(_ items: [Item], using generator: inout SeededGenerator) -> [Item] {
  var known: [TransactionID: TransactionRecord] = [:]
  return items.map { item in
    guard case .evidence(.transaction(var record)) = item else { return item }
    if known[record.key.transactionID] == nil {
      record.priceMilliunits = generator.pick(nil, 0, 9990, 12000)
      record.currency = generator.pick("EUR", "EUR", "CHF")
      record.periodType = generator.pick(.normal, .normal, .normal, .trial, .intro, .offer)
      record.ownershipType = generator.once(in: 12) ? .familyShared : .purchased
      known[record.key.transactionID] = record
    }
    if let first = known[record.key.transactionID] {
      record.priceMilliunits = first.priceMilliunits
      record.currency = first.currency
      record.periodType = first.periodType
      record.ownershipType = first.ownershipType
    }
    return .evidence(.transaction(record))
  }
}
