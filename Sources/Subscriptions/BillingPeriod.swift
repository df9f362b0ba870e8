/// For how long one charge of a subscription pays, among the lengths that Apple sells.
package enum BillingPeriod: String, CaseIterable, Sendable {
  case day
  case week
  case twoWeeks = "two_weeks"
  case month
  case twoMonths = "two_months"
  case threeMonths = "three_months"
  case sixMonths = "six_months"
  case year

  /// How many twelfths of a period's price one month comes to.
  ///
  /// A day counts thirty times, a week four times and two weeks twice; of longer periods a month is
  /// a part. Twelfths make all of these whole numbers, so that sums are exact.
  package var monthlyTwelfths: Int64 {
    switch self {
    case .day: 360
    case .week: 48
    case .twoWeeks: 24
    case .month: 12
    case .twoMonths: 6
    case .threeMonths: 4
    case .sixMonths: 2
    case .year: 1
    }
  }

  /// Finds the period that a length of time comes nearest to, a tenth more or less.
  ///
  /// A tenth is enough for February and for clocks that change, and too little for two periods to
  /// be within it of one length. Nil for any other length: the sandbox's minutes, say.
  package init?(nearest length: Duration) {
    let milliseconds = length.inMilliseconds
    let nearest = Self.allCases.first { period in
      let deviation = (milliseconds - period.milliseconds).magnitude
      return deviation <= period.milliseconds.magnitude / 10
    }
    guard let nearest else { return nil }
    self = nearest
  }

  /// Finds the period that the catalogue means: `P1M`, `P4W` and `P30D` are all a month.
  package init?(_ period: CalendarPeriod) {
    self.init(nearest: Self.length(months: period.months, days: period.days))
  }

  private var milliseconds: Int64 {
    switch self {
    case .day: Self.length(days: 1).inMilliseconds
    case .week: Self.length(days: 7).inMilliseconds
    case .twoWeeks: Self.length(days: 14).inMilliseconds
    case .month: Self.length(months: 1).inMilliseconds
    case .twoMonths: Self.length(months: 2).inMilliseconds
    case .threeMonths: Self.length(months: 3).inMilliseconds
    case .sixMonths: Self.length(months: 6).inMilliseconds
    case .year: Self.length(months: 12).inMilliseconds
    }
  }

  /// A month has 487/16 days on average.
  private static func length(months: Int = 0, days: Int = 0) -> Duration {
    .minutes((months * 487 + days * 16) * 90)
  }
}
