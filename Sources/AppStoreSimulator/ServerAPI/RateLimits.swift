import Subscriptions

/// How many requests were made of which kind, hour by hour.
struct RateLimits: Sendable {
  private struct Key: Hashable, Sendable {
    let endpoint: SimulatedEndpoint
    let app: Int
    let environment: Environment
  }

  private struct Window: Sendable {
    var end: Timestamp
    var count: Int
  }

  /// How many times Apple's number is allowed; nil: any number.
  var scale: Double?
  private var windows: [Key: Window] = [:]

  private static let window = Duration.hours(1)
  private static let secondsOfWindow = 3_600
  /// The sandbox takes a tenth.
  private static let sandboxShare = 0.1

  init(scale: Double?) {
    self.scale = scale
  }

  /// Counts a request; the moment from which on there may be others, where it is one too many.
  mutating func take(
    _ endpoint: SimulatedEndpoint, app: Int, environment: Environment, at now: Timestamp
  ) -> Timestamp? {
    guard let scale else { return nil }
    let share = environment == .sandbox ? scale * Self.sandboxShare : scale
    let most = Int(Double(endpoint.requestsPerSecond * Self.secondsOfWindow) * share)
    let key = Key(endpoint: endpoint, app: app, environment: environment)
    var window = windows[key] ?? Window(end: now + Self.window, count: 0)
    if window.end <= now { window = Window(end: now + Self.window, count: 0) }
    defer { windows[key] = window }
    guard window.count < most else { return window.end }
    window.count += 1
    return nil
  }
}
