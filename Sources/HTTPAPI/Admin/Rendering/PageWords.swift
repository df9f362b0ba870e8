import Subscriptions

extension Moment {
  /// A moment in UTC.
  init(_ moment: Timestamp) {
    let iso = moment.description
    self.init(iso: iso, text: "\(iso.prefix(10)) \(iso.dropFirst(11).prefix(5))")
  }
}

extension Timestamp {
  /// The day in UTC, as in `2026-11-22`.
  var dayText: String { String(description.prefix(10)) }
}

/// How long something is ago, or lasts.
enum Age {
  /// In its two largest units, as in `6 d 3 h`.
  static func text(_ duration: Duration) -> String {
    max(duration, .zero).words(isRough: true)
  }
}

/// How many there are of something.
enum Count {
  /// For example `1 charge`, `3 charges`.
  static func text(_ number: Int, _ one: String, _ many: String? = nil) -> String {
    "\(ChartUnit.count.text(Int64(number))) \(number == 1 ? one : many ?? one + "s")"
  }
}
