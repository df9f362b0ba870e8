package import struct Foundation.UUID
import HeapModule
package import Subscriptions

/// The notifications to apps' servers and the schedule of their deliveries.
struct NotificationQueue: Sendable {
  /// An app in one environment, with its own URLs.
  struct Addressee: Hashable, Sendable {
    let app: Int
    let environment: Environment
  }

  /// The delivery of one notification to one URL.
  struct Delivery: Sendable {
    let notification: Int
    let target: NotificationTarget
    let environment: Environment
    let fault: NotificationFault?
    /// The time of the next attempt; attempts scheduled for other times are void.
    var dueAt: Timestamp?
    var attemptsMade = 0
  }

  private struct Due: Comparable, Sendable {
    let at: Timestamp
    let sequence: Int
    let delivery: Int

    static func < (lhs: Due, rhs: Due) -> Bool {
      (lhs.at, lhs.sequence) < (rhs.at, rhs.sequence)
    }
  }

  var faults: NotificationFaultPlan
  private(set) var notifications: [SimulatedNotification] = []
  private(set) var deliveries: [Delivery] = []
  private var targets: [Addressee: [NotificationTarget]] = [:]
  private var dues = Heap<Due>()
  private var dueSequence = 0
  /// Deliveries held back until the next one to the same target.
  private var held: [NotificationTarget: Int] = [:]
  private var random: SplitMix64

  init(seed: UInt64) {
    var seeds = SplitMix64(seed: seed)
    random = SplitMix64(seed: seeds.next())
    faults = NotificationFaultPlan(seed: seeds.next())
  }

  // MARK: Targets

  var hasTargets: Bool { !targets.isEmpty }

  func targets(of addressee: Addressee) -> [NotificationTarget] { targets[addressee] ?? [] }

  mutating func setTargets(_ list: [NotificationTarget], of addressee: Addressee) {
    targets[addressee] = list.isEmpty ? nil : list
  }

  // MARK: Notifications

  /// A UUID derived from the seed, in the form of a random one (RFC 9562, version 4).
  mutating func nextUUID() -> UUID {
    let (high, low) = (random.next(), random.next())
    var bytes = (0..<8).map { UInt8(truncatingIfNeeded: high >> (56 - 8 * $0)) }
    bytes += (0..<8).map { UInt8(truncatingIfNeeded: low >> (56 - 8 * $0)) }
    bytes[6] = bytes[6] & 0x0F | 0x40
    bytes[8] = bytes[8] & 0x3F | 0x80
    return UUID(
      uuid: (
        bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7], bytes[8],
        bytes[9], bytes[10], bytes[11], bytes[12], bytes[13], bytes[14], bytes[15]
      ))
  }

  var nextNumber: Int { notifications.count + 1 }

  /// Stores a notification and schedules its first attempts.
  mutating func post(_ notification: SimulatedNotification, to targets: [NotificationTarget]) {
    notifications.append(notification)
    for target in targets {
      let fault = faults.takeFault()
      plan(notification, target, fault, at: notification.at)
      if fault == .doubled {
        plan(notification, target, nil, at: notification.at + Self.doubleDelay)
      }
    }
  }

  /// When a doubled notification is sent again.
  private static let doubleDelay = Duration.minutes(1)
  /// The maximum time for which a notification is held back.
  private static let longestHold = Duration.hours(1)

  private mutating func plan(
    _ notification: SimulatedNotification, _ target: NotificationTarget,
    _ fault: NotificationFault?, at moment: Timestamp
  ) {
    deliveries.append(
      Delivery(
        notification: notification.number - 1, target: target,
        environment: notification.environment, fault: fault))
    let delivery = deliveries.count - 1
    let overtaken = held.removeValue(forKey: target)
    var dueAt = moment
    switch fault {
    case .late(let delay): dueAt = moment + delay
    case .outOfOrder:
      dueAt = moment + Self.longestHold
      held[target] = delivery
    case .doubled, .lost, .answerLost, .dropped, nil: break
    }
    schedule(delivery, at: dueAt)
    if let overtaken, let planned = deliveries[overtaken].dueAt, dueAt < planned {
      schedule(overtaken, at: dueAt)
    }
  }

  private mutating func schedule(_ delivery: Int, at moment: Timestamp) {
    dueSequence += 1
    deliveries[delivery].dueAt = moment
    dues.insert(Due(at: moment, sequence: dueSequence, delivery: delivery))
  }

  // MARK: Delivery

  /// Takes the first due delivery, with its time; it is not due again before `putBack` or `note`.
  mutating func takeDue(until moment: Timestamp) -> (delivery: Int, dueAt: Timestamp)? {
    while let due = dues.min, due.at <= moment {
      dues.removeMin()
      guard deliveries[due.delivery].dueAt == due.at else { continue }
      deliveries[due.delivery].dueAt = nil
      return (due.delivery, due.at)
    }
    return nil
  }

  mutating func giveUp() {
    for due in dues.unordered { deliveries[due.delivery].dueAt = nil }
    dues = Heap()
    held = [:]
  }

  /// Schedules an attempt that could not be made again.
  mutating func putBack(_ delivery: Int, at moment: Timestamp) {
    schedule(delivery, at: moment)
  }

  /// Records an attempt and schedules the next one if necessary.
  mutating func note(_ attempt: SendAttempt, of delivery: Int) {
    let made = deliveries[delivery].attemptsMade
    deliveries[delivery].attemptsMade = made + 1
    notifications[deliveries[delivery].notification].attempts.append(attempt)
    let delays = RetryDelays.of(
      deliveries[delivery].target.version, deliveries[delivery].environment)
    guard attempt.result != .success, made < delays.count else { return }
    schedule(delivery, at: attempt.at + delays[made])
  }
}

/// The delays between Apple's attempts to deliver a notification.
///
/// App Store Server Notifications documentation, "Responding to App Store Server Notifications".
enum RetryDelays {
  static func of(_ version: SimulatedNotification.Version, _ environment: Environment) -> [Duration]
  {
    guard environment == .production else { return [] }
    switch version {
    case .v2: return [.hours(1), .hours(12), .hours(24), .hours(48), .hours(72)]
    case .v1, .v1Before2021: return [.hours(6), .hours(24), .hours(48)]
    }
  }
}

package enum NotificationFault: Hashable, Sendable {
  /// The first attempt is delayed, in simulated time.
  case late(Duration)
  /// It is sent twice, whatever the response.
  case doubled
  /// It is sent after the next one to the same server, or an hour late.
  case outOfOrder
  /// The first attempt is lost; production retries.
  case lost
  /// The first attempt arrives, but its response is lost; production retries.
  case answerLost
  /// All attempts are lost; only the notification history contains it.
  case dropped
}

extension NotificationFault {
  /// Parses the control interface's `late:SECONDS`, `doubled`, `out_of_order`, `lost`,
  /// `answer_lost`, `dropped`.
  package init?(name: String) {
    switch name {
    case "doubled": self = .doubled
    case "out_of_order": self = .outOfOrder
    case "lost": self = .lost
    case "answer_lost": self = .answerLost
    case "dropped": self = .dropped
    default:
      let parts = name.split(separator: ":", maxSplits: 1)
      guard parts.count == 2, parts[0] == "late", let seconds = Int(parts[1]),
        (0...Self.mostSeconds).contains(seconds)
      else { return nil }
      self = .late(.seconds(seconds))
    }
  }

  /// A year.
  private static let mostSeconds = 366 * 86_400
}

/// The faults of notifications: first for the next ones in sequence, then for a random share of
/// all.
package struct NotificationFaultPlan: Sendable {
  /// Faults of the next notifications, one each; nil for none.
  package var next: [NotificationFault?] = []
  /// The share of notifications with a fault, from 0 to 1.
  package var rate = 0.0
  /// Random faults; repeated ones are likelier.
  package var kinds: [NotificationFault] = NotificationFaultPlan.usualKinds

  private var random: SplitMix64

  package init(seed: UInt64) {
    random = SplitMix64(seed: seed)
  }

  /// Faults after which the notification still arrives, in production.
  package static let usualKinds: [NotificationFault] = [
    .late(.minutes(10)), .late(.hours(30)), .late(.days(6)), .doubled, .outOfOrder, .lost,
    .answerLost,
  ]

  /// The fault of the next notification; nil for none.
  package mutating func takeFault() -> NotificationFault? {
    if !next.isEmpty { return next.removeFirst() }
    guard rate > 0, random.chance(rate) else { return nil }
    return random.choice(of: kinds)
  }
}

/// A notification URL, as configured in App Store Connect.
package struct NotificationTarget: Hashable, Sendable {
  package var version: SimulatedNotification.Version
  package var url: String

  package init(_ version: SimulatedNotification.Version, url: String) {
    self.version = version
    self.url = url
  }
}

package struct SimulatedNotification: Hashable, Sendable {
  package enum Version: String, CaseIterable, Sendable {
    /// Unsigned, with the entire receipt and the shared secret.
    case v1
    /// The same in the format used until 2021-03-10, based on iOS 6.
    case v1Before2021 = "v1-before-2021"
    /// Signed.
    case v2
  }

  enum Content: Hashable, Sendable {
    case signed(String)
    case plain([UInt8])
  }

  package let number: Int  // Counted from 1
  /// The same in every attempt.
  package let uuid: UUID
  package let version: Version
  /// Apple's name, for example `DID_RENEW`.
  package let type: String
  package let subtype: String?
  package let environment: Environment
  package let bundleID: String
  package let at: Timestamp
  /// Nil for a test and for the result of a mass extension.
  package let event: SimulatedEvent?
  /// The charge concerned; for a purchaser's event, a family member's notification has its own
  /// charge.
  package let transactionID: TransactionID?
  package let originalTransactionID: OriginalTransactionID?
  package internal(set) var attempts: [SendAttempt] = []  // In order

  let content: Content

  /// The JWS of version 2.
  package var signedPayload: String? {
    if case .signed(let payload) = content { payload } else { nil }
  }

  package var body: [UInt8] {
    switch content {
    case .signed(let payload): Array(#"{"signedPayload":"\#(payload)"}"#.utf8)
    case .plain(let bytes): bytes
    }
  }

  package var hasArrived: Bool { attempts.contains { $0.result == .success } }
}

package struct SendAttempt: Hashable, Sendable {
  /// Apple's `sendAttemptResult`.
  ///
  /// https://developer.apple.com/documentation/appstoreserverapi/sendattemptresult
  package enum Result: String, Sendable {
    case success = "SUCCESS"
    case timedOut = "TIMED_OUT"
    case tlsIssue = "TLS_ISSUE"
    case noResponse = "NO_RESPONSE"
    case socketIssue = "SOCKET_ISSUE"
    case invalidResponse = "INVALID_RESPONSE"
    case prematureClose = "PREMATURE_CLOSE"
    case unsuccessfulStatus = "UNSUCCESSFUL_HTTP_RESPONSE_CODE"
    case other = "OTHER"
  }

  package let url: String
  package let at: Timestamp  // In simulated time
  package let result: Result
  /// Nil without a response.
  package let httpStatus: Int?
}
