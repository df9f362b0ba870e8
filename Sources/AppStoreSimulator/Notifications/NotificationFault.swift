import Subscriptions

/// One way in which a notification does not arrive as it should.
package enum NotificationFault: Hashable, Sendable {
  /// The first attempt is made only so much later, in simulated time.
  case late(Duration)
  /// It is sent twice, whatever the answer.
  case doubled
  /// It is sent after the next one for the same server, or an hour late.
  case outOfOrder
  /// The first attempt gets lost; in production there are others.
  case lost
  /// The first attempt arrives, but its answer gets lost: in production it comes again.
  case answerLost
  /// Every attempt gets lost: only the notification history knows of it.
  case dropped
}

extension NotificationFault {
  /// Reads the words of the control interface.
  ///
  /// `late:SECONDS`, `doubled`, `out_of_order`, `lost`, `answer_lost`, `dropped`.
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

/// Which notifications do not arrive as they should: the next ones one by one, and then a share of
/// all by chance from a seed.
package struct NotificationFaultPlan: Sendable {
  /// What the next notifications meet, one each; nil lets one through.
  package var next: [NotificationFault?] = []
  /// The share of notifications with a fault; from 0 to 1.
  package var rate = 0.0
  /// What a notification meets by chance, each as likely as it is often here.
  package var kinds: [NotificationFault] = NotificationFaultPlan.usualKinds

  private var random: SplitMix64

  /// A plan without faults, whose chance comes from the seed.
  package init(seed: UInt64) {
    random = SplitMix64(seed: seed)
  }

  /// Everything after which the news is there in the end, in production.
  package static let usualKinds: [NotificationFault] = [
    .late(.minutes(10)), .late(.hours(30)), .late(.days(6)), .doubled, .outOfOrder, .lost,
    .answerLost,
  ]

  /// The fault that the next notification meets; nil: it arrives well.
  package mutating func takeFault() -> NotificationFault? {
    if !next.isEmpty { return next.removeFirst() }
    guard rate > 0, random.chance(rate) else { return nil }
    return random.choice(of: kinds)
  }
}
