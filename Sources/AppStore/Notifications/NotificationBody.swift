import JSONText
package import Subscriptions

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

/// A notification that Apple has signed, and each part of it that Apple has signed on its own.
package struct SignedNotification: Hashable, Sendable {
  package let payload: ResponseBodyV2DecodedPayload
  /// Apple's name of the notification, the same in every attempt to deliver it.
  package let notificationUUID: String
  package let notificationType: NotificationTypeV2
  /// Nil where Apple names none.
  ///
  /// An external purchase names it by its identifier.
  package let environment: Environment?
  /// The configured app that it belongs to; nil where Apple names none.
  package let bundleID: String?
  package let transaction: SignedTransaction?
  package let renewalInfo: SignedRenewalInfo?
  package let appTransaction: JWSAppTransactionDecodedPayload?

  /// When Apple signed it; nil for notifications of 2022.
  package var signedAt: Timestamp? { payload.signedDate }

  /// Everything that it says, in the vocabulary of the rules.
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
  /// Why the charge was made that this is about, for transactions that don't say so themselves.
  ///
  /// Only notifications that report a charge tell: others come with whichever transaction was last.
  var chargeKind: ChargeKind {
    switch (notificationType, subtype) {
    case (.didRenew, _): .renewal
    case (.subscribed, _), (.oneTimeCharge, _): .purchase
    case (.didChangeRenewalPref, .upgrade), (.offerRedeemed, .upgrade): .purchase
    default: .unknown
    }
  }
}
