import LedgerStorage
import Subscriptions

extension Settings {
  /// A hundred years.
  private static let longestRetentionDays = 36_500

  static func rawRetention(_ source: SettingSource) throws -> RawRetention {
    RawRetention(
      submissions: try days("TENURE_RAW_RETENTION", source),
      notifications: try days("TENURE_NOTIFICATION_RETENTION", source))
  }

  /// Nil means forever.
  private static func days(_ name: String, _ source: SettingSource) throws -> Duration? {
    guard let text = try source.string(name)?.lowercased(), text != "forever" else { return nil }
    guard text.hasSuffix("d"), let number = Int(text.dropLast()),
      (1...longestRetentionDays).contains(number)
    else {
      throw SettingError(
        name: name,
        fault: "must be forever or a number of days such as 400d, at most \(longestRetentionDays)d "
          + "(got \"\(text)\")")
    }
    return .days(number)
  }
}
