package import LedgerStorage
import Subscriptions

extension Settings {
  package static func rawRetention(_ source: SettingSource) throws -> RawRetention {
    func days(_ name: String) throws -> Duration? {
      try source.duration(
        name, in: .days, atMost: .days(36_500), or: "forever", example: "400d")
    }
    return RawRetention(
      submissions: try days("TENURE_RAW_RETENTION"),
      notifications: try days("TENURE_NOTIFICATION_RETENTION"))
  }
}
