import JSONText

/// What is posted to the notification endpoint, told apart by its shape.
package enum NotificationBody: Sendable {
  /// Version 2: a JWS, to be believed for its signatures.
  case signed(payload: String)
  /// Version 1: unsigned, to be believed in nothing.
  case unsigned(NotificationV1)

  /// How many values a body may have: a hundred transactions of twenty members, and room.
  package static let mostValues = 10_000

  /// Reads a body.
  ///
  /// - Returns: Nil for what is no notification of either version.
  package init?(parsing bytes: some Sequence<UInt8>) {
    guard
      let json = try? JSONValue(
        parsing: bytes, toleratesRepetitions: true, mostValues: Self.mostValues),
      case .object = json
    else { return nil }
    // Whoever sends both shapes at once is believed for the signatures alone.
    if let payload = json["signedPayload"]?.string {
      self = .signed(payload: payload)
    } else if let notification = NotificationV1(json) {
      self = .unsigned(notification)
    } else {
      return nil
    }
  }
}
