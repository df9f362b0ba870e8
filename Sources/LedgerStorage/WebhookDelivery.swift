package import Subscriptions

/// An event that is still to be pushed to the webhook, or was given up.
package struct WebhookDelivery: Hashable, Sendable {
  package let eventID: Int64
  /// Deliveries of a stream are made in their order, one after the other.
  package let stream: String
  /// How often it has failed.
  package let attempts: Int
  /// From when on patience counts.
  package let dueSince: Timestamp
  /// The event as the feed tells it, in JSON.
  package let body: String

  /// After this time an event is given up: a receiver that breaks on a Friday is mended on Monday.
  package static let patience: Duration = .days(3)
}

/// A delivery that was given up, for those who look after it.
package struct ParkedDelivery: Hashable, Sendable {
  package let eventID: Int64
  /// Its place in the feed.
  package let position: Int64
  package let type: String
  /// Nil: it concerns a charge that nobody owns.
  package let accountID: String?
  package let attempts: Int
  package let parkedAt: Timestamp
  package let reason: String
}

/// How the pushing of events stands.
package struct WebhookStanding: Hashable, Sendable {
  /// Whether any event was ever to be pushed.
  package let isOn: Bool
  package let waiting: Int
  /// Since when the oldest of those that wait is due.
  package let oldestDueSince: Timestamp?
  /// How many of those that wait have failed before.
  package let failing: Int
  package let parked: Int
}

/// What came of a request to push an event again.
package enum Redelivery: Hashable, Sendable {
  /// It will be pushed, ahead of whatever waits of its stream.
  case scheduled
  /// There is no such event, or it is older than the retention.
  case unknownEvent
  /// No worker was ever given a webhook.
  case webhooksOff
}
