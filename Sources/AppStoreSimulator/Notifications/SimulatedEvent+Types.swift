import AppStore
import Subscriptions

/// What Apple calls an event in each version of its notifications.
extension SimulatedEvent {
  /// Type and subtype of version 2; nil for what Apple does not tell.
  ///
  /// https://developer.apple.com/documentation/appstoreservernotifications/notificationtype
  var type2: (type: NotificationTypeV2, subtype: NotificationSubtype?)? {
    switch kind {
    case .subscribed: (.subscribed, .initialBuy)
    case .resubscribed: (.subscribed, .resubscribe)
    case .renewed: (.didRenew, nil)
    case .recovered: (.didRenew, .billingRecovery)
    case .upgraded: (.didChangeRenewalPref, .upgrade)
    case .renewalProductChanged(let product):
      (.didChangeRenewalPref, product == productID ? nil : .downgrade)
    case .autoRenewTurnedOff: (.didChangeRenewalStatus, .autoRenewDisabled)
    case .autoRenewTurnedOn: (.didChangeRenewalStatus, .autoRenewEnabled)
    case .renewalFailed(let graceUntil):
      (.didFailToRenew, graceUntil == nil ? nil : .gracePeriod)
    case .gracePeriodExpired: (.gracePeriodExpired, nil)
    case .expired(let intent): (.expired, Self.expirySubtype(intent))
    case .boughtOnce: (.oneTimeCharge, nil)
    case .refunded: (.refund, nil)
    case .refundReversed: (.refundReversed, nil)
    case .familyAccessRevoked: (.revoke, nil)
    case .restored: nil
    case .priceIncreaseAsked: (.priceIncrease, .pending)
    case .priceIncreaseAccepted: (.priceIncrease, .accepted)
    case .offerRedeemed(.renewal): (.offerRedeemed, nil)
    case .offerRedeemed(.upgrade): (.offerRedeemed, .upgrade)
    case .offerRedeemed(.downgrade): (.offerRedeemed, .downgrade)
    case .renewalExtended: (.renewalExtended, nil)
    case .refundRequested: (.consumptionRequest, nil)
    case .refundDeclined: (.refundDeclined, nil)
    case .migrated: (.migration, nil)
    }
  }

  private static func expirySubtype(_ intent: Int) -> NotificationSubtype? {
    switch intent {
    case 1: .voluntary
    case 2: .billingRetry
    case 3: .priceIncrease
    case 4: .productNotForSale
    default: nil
    }
  }

  /// The types of version 1, of which one event can have several.
  ///
  /// https://developer.apple.com/documentation/appstoreservernotifications/notification_type
  func types1(ofSubscription isSubscription: Bool, before2021: Bool) -> [String] {
    switch kind {
    case .subscribed: ["INITIAL_BUY"]
    case .resubscribed: ["INTERACTIVE_RENEWAL"]
    case .renewed: ["DID_RENEW"]
    case .recovered: [before2021 ? "RENEWAL" : "DID_RECOVER"]
    case .upgraded, .offerRedeemed(.upgrade):
      ["CANCEL", "DID_CHANGE_RENEWAL_STATUS", "INTERACTIVE_RENEWAL"]
    case .renewalProductChanged, .offerRedeemed(.downgrade): ["DID_CHANGE_RENEWAL_PREF"]
    case .autoRenewTurnedOff, .autoRenewTurnedOn: ["DID_CHANGE_RENEWAL_STATUS"]
    case .renewalFailed: ["DID_FAIL_TO_RENEW"]
    case .refunded: [isSubscription ? "CANCEL" : "REFUND"]
    case .familyAccessRevoked: ["REVOKE"]
    case .priceIncreaseAsked: ["PRICE_INCREASE_CONSENT"]
    case .refundRequested: ["CONSUMPTION_REQUEST"]
    case .gracePeriodExpired, .expired, .boughtOnce, .refundReversed, .restored,
      .priceIncreaseAccepted, .offerRedeemed(.renewal), .renewalExtended, .refundDeclined,
      .migrated:
      []
    }
  }

  /// Whether a purchaser's event is news of the family's shares, too, which have no events of
  /// their own for it.
  var concernsShares: Bool {
    switch kind {
    case .renewalProductChanged, .autoRenewTurnedOff, .autoRenewTurnedOn, .renewalFailed,
      .gracePeriodExpired, .expired, .refundReversed, .renewalExtended:
      true
    default: false
    }
  }
}
