package import Hummingbird
package import Subscriptions
import Synchronization

/// Delays the answers to wrong keys and refused notifications, longer with each failure.
///
/// A valid key is never delayed: clients behind one proxy can't lock out others. Each process
/// counts alone: keys are too long to be guessed, so the delay only limits load and log lines.
package final class FailureBrake: Sendable {
  /// The time after which failures are forgotten.
  static let memory: Duration = .minutes(15)
  static let shortest: Duration = .milliseconds(100)
  package static let longest: Duration = .seconds(5)
  /// Remembered sources of each kind, which take a few hundred kilobytes.
  static let mostSources = 10_000

  /// Kinds of sources, counted separately so that made-up sources of one can't displace others.
  enum Kind: Hashable {
    /// The address that sent a wrong key in `Authorization`.
    case requestAddress
    /// The address that sent a refused notification.
    case notificationAddress
    /// All senders of refused notifications together.
    case notification
    /// The address that sent a wrong login.
    case loginAddress
    /// The same with the address in `X-Forwarded-For`, which clients can make up.
    case forwardedLoginAddress
    /// The name of a key that may not log in.
    case loginKey
  }

  struct Source: Sendable {
    var kind: Kind
    var name: String
    /// The number of failures that are not delayed.
    var free: Int
  }

  /// The sources that one failure is counted for; the longest of their delays applies.
  package struct Client: Sendable {
    var sources: [Source]
  }

  private struct Failures {
    var count: Int
    var last: Timestamp
  }

  private let failures = Mutex<[Kind: [ExactText: Failures]]>([:])

  /// Counts a failure, and sleeps until it may be answered.
  package func delay(_ client: Client, at now: Timestamp) async {
    let delay = count(client, at: now)
    if delay > .zero { try? await Task.sleep(for: delay) }
  }

  /// Counts a failure; the delay of its answer doubles with each failure beyond the free ones.
  func count(_ client: Client, at now: Timestamp) -> Duration {
    failures.withLock { failures in
      client.sources.map { source in
        Self.count(source, in: &failures[source.kind, default: [:]], at: now)
      }.max() ?? .zero
    }
  }

  private static func count(
    _ source: Source, in failures: inout [ExactText: Failures], at now: Timestamp
  ) -> Duration {
    let name = ExactText(source.name)
    let known = failures[name].flatMap { now < $0.last + memory ? $0.count : nil } ?? 0
    failures[name] = Failures(count: known + 1, last: now)
    if failures.count > mostSources {
      failures = Dictionary(
        uniqueKeysWithValues: failures.sorted { $0.value.last > $1.value.last }
          .prefix(mostSources / 2).map { ($0.key, $0.value) })
    }
    guard known >= source.free else { return .zero }
    return min(shortest * (1 << min(known - source.free, 16)), longest)
  }
}

extension FailureBrake.Client {
  /// Enough for a misconfigured app server.
  static let freeRequests = 100
  /// Enough for Apple's first notifications while the shared secret is wrong.
  static let freeNotifications = 60
  static let freeNotificationsOfAll = 120
  /// Enough for a few mistyped keys.
  static let freeLogins = 5
  /// More, because all clients behind a proxy share one address.
  static let freeLoginsOfAddress = 50

  static func bearer(_ context: APIContext) -> Self {
    Self(sources: [
      .init(kind: .requestAddress, name: context.remoteAddress, free: freeRequests)
    ])
  }

  static func notification(_ context: APIContext) -> Self {
    Self(sources: [
      .init(kind: .notificationAddress, name: context.remoteAddress, free: freeNotifications),
      .init(kind: .notification, name: "", free: freeNotificationsOfAll),
    ])
  }

  /// The sender of a failed login: its address, with and without the one that the nearest proxy
  /// reports, and the name of the key if it has another role.
  package static func login(_ request: Request, _ context: APIContext, key: APIKeys.Caller?) -> Self
  {
    let address = context.remoteAddress
    let chain = Array((request.headers[values: .forwardedFor].last ?? "").utf8)
    let last = chain.split(separator: UInt8(ascii: ",")).last ?? []
    let forwarded = String(
      decoding: last.filter { (0x21...0x7E).contains($0) }.prefix(64), as: UTF8.self)
    return Self(
      sources: [
        .init(
          kind: .forwardedLoginAddress, name: "\(address) for \(forwarded)", free: freeLogins),
        .init(kind: .loginAddress, name: address, free: freeLoginsOfAddress),
      ] + (key.map { [.init(kind: .loginKey, name: $0.name, free: freeLogins)] } ?? []))
  }
}
