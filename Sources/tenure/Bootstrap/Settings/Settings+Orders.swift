import Subscriptions

extension Settings {
  /// Ten years.
  private static let longestOrderExpiryDays = 3650

  static func orderExpiry(_ source: SettingSource) throws -> Duration? {
    let name = "TENURE_ORDER_EXPIRY"
    guard let text = try source.string(name)?.lowercased() else { return nil }
    let days = longestOrderExpiryDays
    switch (text.last, Int(text.dropLast())) {
    case ("d", let count?) where (1...days).contains(count): return .days(count)
    case ("h", let count?) where (1...days * 24).contains(count): return .hours(count)
    default:
      throw SettingError(
        name: name,
        fault: "must be a number of days or hours such as 7d or 12h, at most \(days)d "
          + "(got \"\(text)\")")
    }
  }
}
