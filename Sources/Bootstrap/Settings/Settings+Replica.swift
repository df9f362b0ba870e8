/// The settings of the replica.
extension Settings {
  /// Below a second every write nearby would turn reads away; after ten minutes nobody would call
  /// an answer current.
  private static let stalenessSeconds = 1...600

  /// In seconds; nil where the setting does not say.
  package static func readMaxStaleness(_ source: SettingSource) throws -> Duration? {
    let name = "TENURE_READ_MAX_STALENESS"
    guard let text = try source.string(name)?.lowercased() else { return nil }
    guard text.hasSuffix("s"), let seconds = Int(text.dropLast()),
      stalenessSeconds.contains(seconds)
    else {
      throw SettingError(
        name: name,
        fault: "\"\(text)\" is no number of seconds: write 5s, at most "
          + "\(stalenessSeconds.upperBound)s")
    }
    return .seconds(seconds)
  }
}
