import JSONText
package import Subscriptions

/// The body of a request to the notification endpoint, classified by its shape.
package enum NotificationBody: Sendable {
  /// Version 2: a JWS, trusted once its signature is verified.
  case signed(payload: String)
  /// Version 1: unsigned and not trusted.
  case unsigned(NotificationV1)

  /// The maximum number of JSON values: a hundred transactions of twenty members, with a margin.
  package static let mostValues = 10_000

  package init?(parsing bytes: some Sequence<UInt8>) {
    guard
      let json = try? JSONValue(
        parsing: bytes, toleratesRepetitions: true, mostValues: Self.mostValues),
      case .object = json
    else { return nil }
    // If both shapes are present, only the signed one counts.
    if let payload = json["signedPayload"]?.string {
      self = .signed(payload: payload)
    } else if let notification = NotificationV1(json) {
      self = .unsigned(notification)
    } else {
      return nil
    }
  }
}

/// A notification signed by Apple, with its separately signed parts.
package struct SignedNotification: Hashable, Sendable {
  package let payload: ResponseBodyV2DecodedPayload
  /// Apple's ID of the notification, the same in every delivery attempt.
  package let notificationUUID: String
  package let notificationType: NotificationTypeV2
  /// Nil if Apple names none; for an external purchase it follows from the identifier.
  package let environment: Environment?
  /// The configured app; nil if Apple names none.
  package let bundleID: String?
  package let transaction: SignedTransaction?
  package let renewalInfo: SignedRenewalInfo?
  package let appTransaction: JWSAppTransactionDecodedPayload?

  /// Nil for notifications of 2022.
  package var signedAt: Timestamp? { payload.signedDate }

  package var evidence: [Evidence] {
    var evidence = transaction?.evidence(kind: payload.chargeKind) ?? []
    if let renewalInfo {
      let status = renewalInfo.status(latest: transaction?.record)
      evidence.append(.renewalStatus(status, line: renewalInfo.line))
    }
    return evidence
  }
}

extension ResponseBodyV2DecodedPayload {
  /// The kind of charge, for transactions that do not name it, if the notification reports a
  /// charge; others contain the latest transaction, whatever it is.
  var chargeKind: ChargeKind {
    switch (self.notificationType, self.subtype) {
    case (.didRenew, _): .renewal
    case (.subscribed, _), (.oneTimeCharge, _): .purchase
    case (.didChangeRenewalPref, .upgrade), (.offerRedeemed, .upgrade): .purchase
    default: .unknown
    }
  }
}
