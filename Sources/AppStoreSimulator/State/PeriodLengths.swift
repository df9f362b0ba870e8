import Subscriptions

/// How long periods take: by the calendar, or on the rates of Apple's sandbox.
struct PeriodLengths: Sendable {
  let areSandboxRates: Bool

  /// How many times a tester's subscription renews before Apple ends it.
  ///
  /// App Store Connect help, "Manage Sandbox Apple Account settings".
  static let sandboxRenewalLimit = 12
  /// Apple documents no lengths for grace and retry on its rates; this one makes 60 days 10
  /// minutes.
  private static let sandboxScale = 8_640

  /// The end of the `count`th period that follows another from `anchor` on.
  func end(of period: CalendarPeriod, count: Int, from anchor: Timestamp) -> Timestamp {
    guard areSandboxRates else {
      return CalendarPeriod(months: period.months * count, days: period.days * count)
        .end(from: anchor)
    }
    return anchor + Self.sandboxLength(of: period) * count
  }

  /// A span other than a paid period, as grace and retry are.
  func span(_ duration: Duration) -> Duration {
    areSandboxRates ? duration / Self.sandboxScale : duration
  }

  // https://developer.apple.com/documentation/storekit/testing-an-auto-renewable-subscription
  private static func sandboxLength(of period: CalendarPeriod) -> Duration {
    if period.months > 0 { return .minutes(5 * period.months) }
    return period.days <= 3 ? .minutes(2) : .minutes(3)
  }
}
