import Subscriptions

extension Settings {
  package static func orderExpiry(_ source: SettingSource) throws -> Duration? {
    try source.duration(
      "TENURE_ORDER_EXPIRY", in: .days, .hours, atMost: .days(3650), example: "7d or 12h")
  }
}
