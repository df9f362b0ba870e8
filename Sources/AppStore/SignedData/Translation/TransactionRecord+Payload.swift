import Subscriptions

extension TransactionRecord {
  /// The transaction as evidence of the date at which it was signed.
  ///
  /// - Throws: ``SignedDataFault`` naming the field, where it isn't said what was bought, when and
  ///   on which line.
  init(
    _ payload: JWSTransactionDecodedPayload, environment: Environment
  ) throws(SignedDataFault) {
    typealias Fields = PayloadFields
    let original = try Fields.required(
      Fields.number(payload.originalTransactionID, "originalTransactionId"),
      "originalTransactionId")
    let transaction = try Fields.required(
      Fields.number(payload.transactionID, "transactionId"), "transactionId")
    let product = try Fields.required(
      Fields.identifier(payload.productID, "productId"), "productId")
    let type = payload.type?.productType
    // A subscription without its expiry would pass for a purchase for ever.
    if type == .autoRenewable { _ = try Fields.required(payload.expiresDate, "expiresDate") }
    self.init(
      key: TransactionKey(
        line: LineID(environment, OriginalTransactionID(original)),
        transactionID: TransactionID(transaction), productID: ProductID(product)),
      asOf: try Fields.required(payload.signedDate, "signedDate"),
      kind: payload.transactionReason?.kind ?? .unknown,
      purchaseDate: try Fields.required(payload.purchaseDate, "purchaseDate"),
      originalPurchaseDate: payload.originalPurchaseDate, expiresDate: payload.expiresDate,
      webOrderLineItemID: WebOrderLineItemID(
        reported: try Fields.number(payload.webOrderLineItemID, "webOrderLineItemId")),
      productType: type,
      subscriptionGroup: try Fields.identifier(
        payload.subscriptionGroupIdentifier, "subscriptionGroupIdentifier"),
      quantity: try Fields.integer(payload.quantity, "quantity", in: 1...Int(Int32.max)) ?? 1,
      appAccountToken: Fields.token(payload.appAccountToken),
      ownershipType: payload.inAppOwnershipType == .familyShared ? .familyShared : .purchased,
      periodType: payload.periodType,
      offerID: try Fields.identifier(payload.offerIdentifier, "offerIdentifier"),
      isUpgraded: payload.isUpgraded ?? false, revocation: payload.revocation,
      priceMilliunits: payload.price.flatMap {
        ChargePrice.believable.contains($0) ? $0 : nil
      },
      currency: try Fields.currency(payload.currency, "currency"),
      isCommitment: payload.billingPlanType == .monthly || payload.commitmentInfo != nil)
  }
}

extension JWSTransactionDecodedPayload {
  /// A trial is a trial even when an offer code gave it, as in receipts.
  fileprivate var periodType: PeriodType {
    if offerDiscountType == .freeTrial { return .trial }
    switch offerType {
    case nil: return offerIdentifier == nil ? .normal : .offer
    case 1: return .intro
    default: return .offer
    }
  }

  /// What Apple signs is current: that no revocation is named means that there is none.
  fileprivate var revocation: RevocationStatus {
    guard let revocationDate else { return .notRevoked }
    return .revoked(
      Revocation(
        at: revocationDate, reason: revocationReason.map(String.init),
        // Longer names than the table's are none of Apple's.
        type: revocationType.flatMap { 1...64 ~= $0.utf8.count ? $0 : nil },
        percentage: revocationPercentage))
  }
}

extension TransactionReason {
  fileprivate var kind: ChargeKind {
    switch self {
    case .purchase: .purchase
    case .renewal: .renewal
    default: .unknown
    }
  }
}

extension ProductTypeName {
  fileprivate var productType: ProductType? {
    switch self {
    case .autoRenewable: .autoRenewable
    case .nonConsumable: .nonConsumable
    case .consumable: .consumable
    case .nonRenewing: .nonRenewing
    default: nil
    }
  }
}
