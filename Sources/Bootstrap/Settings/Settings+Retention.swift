package import LedgerStorage
import Subscriptions

/// How long raw bodies are kept.
extension Settings {
  /// A hundred years are for ever.
  private static let longestRetentionDays = 36_500

  package static func rawRetention(_ source: SettingSource) throws -> RawRetention {
    RawRetention(
      submissions: try days("TENURE_RAW_RETENTION", source),
      notifications: try days("TENURE_NOTIFICATION_RETENTION", source))
  }

  /// Nil: for ever.
  private static func days(_ name: String, _ source: SettingSource) throws -> Duration? {
    guard let text = try source.string(name)?.lowercased(), text != "forever" else { return nil }
    guard text.hasSuffix("d"), let number = Int(text.dropLast()),
      (1...longestRetentionDays).contains(number)
    else {
      throw SettingError(
        name: name,
        fault: "\"\(text)\" is neither forever nor a number of days: write 400d, at most "
          + "\(longestRetentionDays)d")
    }
    return .days(number)
  }
}
