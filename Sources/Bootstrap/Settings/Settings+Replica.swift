extension Settings {
  /// At least a second: with less, every recent write would send reads to the primary.
  package static func readMaxStaleness(_ source: SettingSource) throws -> Duration? {
    try source.duration(
      "TENURE_READ_MAX_STALENESS", in: .seconds, atMost: .seconds(600), example: "5s")
  }
}
