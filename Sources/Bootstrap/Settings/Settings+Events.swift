import Subscriptions

extension Settings {
  package static func eventRetention(_ source: SettingSource) throws -> Duration? {
    try source.duration(
      "TENURE_EVENT_RETENTION", in: .days, .hours, atMost: .days(36_500), example: "30d or 36h")
  }
}
