import Subscriptions

extension EntitlementRow {
  init(_ entitlement: Entitlement) {
    let line = entitlement.originalTransactionID.flatMap { id in
      entitlement.environment.map { LineID($0, id) }
    }
    self.init(
      name: entitlement.name, state: Badge(entitlement.state), because: entitlement.inWords,
      until: entitlement.accessEndsAt.map(Moment.init),
      isEndless: entitlement.isActive && entitlement.accessEndsAt == nil,
      productID: entitlement.productID?.rawValue,
      source: entitlement.originalTransactionID?.rawValue ?? "grant", href: line?.href,
      isSandbox: entitlement.environment == .sandbox)
  }
}

extension Entitlement {
  /// Where it comes from and how it goes on, in a sentence.
  var inWords: String {
    switch source {
    case .grant: grantInWords
    case .provisional:
      "Given until Apple can be asked about what the app submitted."
    case .appStore: purchaseInWords
    }
  }

  private var grantInWords: String {
    switch state {
    case .revoked: "An administrator gave it, and took it back\(on(accessEndsAt))."
    case .expired: "An administrator gave it; it ended\(on(accessEndsAt))."
    default: "An administrator gave it."
    }
  }

  private var purchaseInWords: String {
    let product = productID?.rawValue ?? "It"
    switch state {
    case .active where expiresAt == nil: return "\(product) was bought for good."
    case .active where willRenew: return "\(product) renews\(on(expiresAt))."
    case .active: return "\(product) is paid for and does not renew; it ends\(on(expiresAt))."
    case .inGracePeriod:
      return "\(product) could not be charged\(on(expiresAt)); access goes on while Apple tries "
        + "again."
    case .inBillingRetry:
      return "\(product) could not be charged\(on(expiresAt)), and Apple tries again: there is no "
        + "access until it succeeds."
    case .revoked: return "\(product) was refunded or taken back\(on(accessEndsAt))."
    case .expired: return "\(product) ended\(on(accessEndsAt ?? expiresAt))."
    }
  }

  private func on(_ moment: Timestamp?) -> String { moment.map { " on \($0.dayText)" } ?? "" }
}
