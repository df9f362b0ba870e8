/// Progress lines for a long wait, with an estimate of the time left.
struct RehearsalProgress {
  /// The time between two lines.
  static let interval: Duration = .seconds(10)

  let total: Int
  private let begin: ContinuousClock.Instant
  private var nextAt: ContinuousClock.Instant

  init(total: Int, from begin: ContinuousClock.Instant = .now) {
    self.total = total
    self.begin = begin
    nextAt = begin + Self.interval
  }

  /// The next line if it is due.
  mutating func line(waiting: Int, at now: ContinuousClock.Instant) -> String? {
    guard now >= nextAt, waiting > 0 else { return nil }
    nextAt = now + Self.interval
    let done = max(0, total - waiting)
    let text = "\(done) of \(total) owners confirmed"
    guard done > 0 else { return text + "." }
    let left = (now - begin) * (Double(waiting) / Double(done))
    let seconds = Int(left.components.seconds)
    let time = seconds < 120 ? "\(max(1, seconds)) seconds" : "\((seconds + 30) / 60) minutes"
    return text + ", about \(time) left."
  }
}
