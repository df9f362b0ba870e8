import Subscriptions

extension Settings {
  /// A hundred years.
  private static let longestRetentionDays = 36_500

  static func eventRetention(_ source: SettingSource) throws -> Duration? {
    let name = "TENURE_EVENT_RETENTION"
    guard let text = try source.string(name) else { return nil }
    let number = Int(text.dropLast())
    switch text.lowercased().last {
    case "d":
      if let number, (1...longestRetentionDays).contains(number) { return .days(number) }
    case "h":
      if let number, (1...longestRetentionDays * 24).contains(number) { return .hours(number) }
    default: break
    }
    throw SettingError(
      name: name,
      fault: "must be a number of days or hours such as 30d or 36h, at most "
        + "\(longestRetentionDays)d (got \"\(text)\")")
  }
}
