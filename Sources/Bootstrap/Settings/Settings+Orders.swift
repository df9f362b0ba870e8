import Subscriptions

/// The settings of orders.
extension Settings {
  /// Whoever wants an order to wait longer wants it to wait for ever, which no program need know.
  private static let longestOrderExpiryDays = 3650

  /// Days or hours.
  package static func orderExpiry(_ source: SettingSource) throws -> Duration? {
    let name = "TENURE_ORDER_EXPIRY"
    guard let text = try source.string(name)?.lowercased() else { return nil }
    let days = longestOrderExpiryDays
    switch (text.last, Int(text.dropLast())) {
    case ("d", let count?) where (1...days).contains(count): return .days(count)
    case ("h", let count?) where (1...days * 24).contains(count): return .hours(count)
    default:
      throw SettingError(
        name: name,
        fault: "\"\(text)\" is no number of days or hours: write 7d or 12h, at most \(days)d")
    }
  }
}
