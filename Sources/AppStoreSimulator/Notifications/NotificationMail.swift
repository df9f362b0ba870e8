import HeapModule
import Subscriptions

import struct Foundation.UUID

/// What was written to apps' servers, and when each letter is to be carried there.
struct NotificationMail: Sendable {
  /// An app in one environment: each has URLs of its own.
  struct Addressee: Hashable, Sendable {
    let app: Int
    let environment: Environment
  }

  /// One notification on its way to one URL.
  struct Delivery: Sendable {
    let notification: Int
    let target: NotificationTarget
    let environment: Environment
    let fault: NotificationFault?
    /// The attempt that is to be made next; what was planned for another time is void.
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
  /// What is held back until the next delivery to its target.
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

  // MARK: Letters

  /// A UUID from the seed, in the form of a random one (RFC 9562, version 4).
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

  /// Keeps a notification, and plans its first attempts.
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

  /// When a doubled notification comes again.
  private static let doubleDelay = Duration.minutes(1)
  /// How long one is held back that nothing follows.
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

  // MARK: Carrying

  /// The delivery whose attempt is due first, with that time; it is not due again before
  /// `putBack` or `note`.
  mutating func takeDue(until moment: Timestamp) -> (delivery: Int, dueAt: Timestamp)? {
    while let due = dues.min, due.at <= moment {
      dues.removeMin()
      guard deliveries[due.delivery].dueAt == due.at else { continue }
      deliveries[due.delivery].dueAt = nil
      return (due.delivery, due.at)
    }
    return nil
  }

  /// Plans again what could not be tried.
  mutating func putBack(_ delivery: Int, at moment: Timestamp) {
    schedule(delivery, at: moment)
  }

  /// Keeps the outcome of an attempt, and plans the next where there is to be one.
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

/// How long after an attempt that failed Apple makes the next one.
///
/// Apple's documentation of App Store Server Notifications, "Responding to App Store Server
/// Notifications".
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
