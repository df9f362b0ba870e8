extension Settings {
  /// With less than a second, every recent write would send reads to the primary.
  private static let stalenessSeconds = 1...600

  static func readMaxStaleness(_ source: SettingSource) throws -> Duration? {
    let name = "TENURE_READ_MAX_STALENESS"
    guard let text = try source.string(name)?.lowercased() else { return nil }
    guard text.hasSuffix("s"), let seconds = Int(text.dropLast()),
      stalenessSeconds.contains(seconds)
    else {
      throw SettingError(
        name: name,
        fault: "must be a number of seconds such as 5s, at most \(stalenessSeconds.upperBound)s "
          + "(got \"\(text)\")")
    }
    return .seconds(seconds)
  }
}
