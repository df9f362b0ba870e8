package import Subscriptions

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
