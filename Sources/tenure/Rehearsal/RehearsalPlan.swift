import Subscriptions

/// Who takes part in a rehearsal, and when things go wrong.
struct RehearsalPlan: Sendable {
  /// The same seed gives the same lives.
  var seed: UInt64
  /// Who was a customer of the old backend.
  var owners: Int
  /// Who comes in the week after the switch.
  var newcomers: Int

  /// A Monday, in the morning.
  let switchDay = Timestamp(CalendarDate(year: 2025, month: 1, day: 6)) + .hours(8)
  /// When the first of the owners bought.
  var past: Timestamp { switchDay - .days(100) }

  /// Wednesday: the schema's next version, while everybody is served.
  var upgrade: Timestamp { switchDay + .days(2) }
  /// Thursday: the database is lost.
  var failover: Timestamp { switchDay + .days(3) }
  /// Friday: a worker is killed.
  var murder: Timestamp { switchDay + .days(4) }

  /// How the week is lived, and the time after it in which what is late arrives.
  var week: YearPlan {
    var plan = YearPlan(seed: seed, customers: newcomers, start: switchDay)
    plan.length = CalendarPeriod(days: 7 + Int(YearPlan.restLength / .days(1)))
    // Whoever opens an order and gets no answer opens another one, and nobody names the first.
    plan.opensOrders = false
    plan.firstVisits = .days(5)
    plan.hoursBetweenVisits = 6...72
    plan.hasBadDays = false
    return plan
  }
}
