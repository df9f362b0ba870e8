import Subscriptions

/// The settings of the feed of events.
extension Settings {
  /// A hundred years are for ever.
  private static let longestRetentionDays = 36_500

  /// How long events are kept, in days or hours; nil where the setting does not say.
  package static func eventRetention(_ source: SettingSource) throws -> Duration? {
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
      fault: "\"\(text)\" is no number of days or hours: write 30d, or 36h, at most "
        + "\(longestRetentionDays)d")
  }
}
