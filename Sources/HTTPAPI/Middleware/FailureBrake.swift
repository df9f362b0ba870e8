import Hummingbird
import Subscriptions
import Synchronization

/// Delays the answers to wrong keys and refused notifications, longer the more there are.
///
/// A right key is never delayed, whatever others have tried from the same address: so strangers
/// behind the proxy of the administrators can't keep them out. In memory, and each process for
/// itself: keys are too long to be guessed, this keeps the attempts and their log lines few.
final class FailureBrake: Sendable {
  /// Failures are forgotten after this time.
  static let memory: Duration = .minutes(15)
  static let shortest: Duration = .milliseconds(100)
  static let longest: Duration = .seconds(5)
  /// More clients than this are not remembered: a few hundred kilobytes.
  static let mostClients = 10_000

  /// What a failure is counted under, each with the number of failures that are not delayed.
  struct Client: Sendable {
    var names: [(name: String, free: Int)]
  }

  private struct Failures {
    var count: Int
    var last: Timestamp
  }

  private let failures = Mutex<[ExactText: Failures]>([:])

  /// Counts a failure, and returns when it may be answered.
  func delay(_ client: Client, at now: Timestamp) async {
    let delay = count(client, at: now)
    if delay > .zero { try? await Task.sleep(for: delay) }
  }

  /// Counts a failure.
  ///
  /// - Returns: How long to delay its answer: twice as long after each that is not free.
  func count(_ client: Client, at now: Timestamp) -> Duration {
    failures.withLock { failures in
      if failures.count + client.names.count > Self.mostClients {
        failures = failures.filter { now < $0.value.last + Self.memory }
        if failures.count + client.names.count > Self.mostClients { failures = [:] }
      }
      return client.names.map { name, free in
        let name = ExactText(name)
        let known = failures[name].flatMap { now < $0.last + Self.memory ? $0.count : nil } ?? 0
        failures[name] = Failures(count: known + 1, last: now)
        guard known >= free else { return .zero }
        return min(Self.shortest * (1 << min(known - free, 16)), Self.longest)
      }.max() ?? .zero
    }
  }
}

extension FailureBrake.Client {
  /// A misconfigured app server is not slowed at its first requests.
  static let freeRequests = 100
  /// Neither are Apple's notifications while the shared secret is wrong.
  static let freeNotifications = 60
  /// A few mistyped keys are not slowed.
  static let freeLogins = 5
  /// Behind a proxy all have one address; and what it says of theirs, others can say as well.
  static let freeLoginsOfAddress = 50

  /// The sender of a request with a wrong key.
  static func bearer(_ request: Request, _ context: APIContext) -> Self {
    Self(names: [("key from \(context.remoteAddress ?? "unknown")", freeRequests)])
  }

  /// The sender of a refused notification.
  static func notification(_ context: APIContext) -> Self {
    Self(names: [("notification from \(context.remoteAddress ?? "unknown")", freeNotifications)])
  }

  /// The sender of a wrong login: its address, as the nearest proxy says and as it is, and the name
  /// of the key if it is one of another role.
  static func login(_ request: Request, _ context: APIContext, key: APIKeys.Caller?) -> Self {
    let address = context.remoteAddress ?? "unknown"
    let chain = Array((request.headers[values: .forwardedFor].last ?? "").utf8)
    let behind = chain.split(separator: UInt8(ascii: ",")).last ?? []
    let said = String(
      decoding: behind.filter { (0x21...0x7E).contains($0) }.prefix(64), as: UTF8.self)
    return Self(
      names: [
        ("login from \(address) for \(said)", freeLogins),
        ("login from \(address)", freeLoginsOfAddress),
      ] + (key.map { [("login with \($0.name)", freeLogins)] } ?? []))
  }
}
