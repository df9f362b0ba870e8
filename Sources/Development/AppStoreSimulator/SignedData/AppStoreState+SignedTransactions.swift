import AppStore
import struct Foundation.UUID
import JSONText
package import Subscriptions

// Signed payloads of charges and renewals, from the current state.
extension AppStoreState {
  // https://developer.apple.com/documentation/appstoreserverapi/jwstransactiondecodedpayload
  func transactionPayload(of number: Int) -> JWSTransactionDecodedPayload {
    let charge = charges[number]
    let line = lines[charge.line]
    var payload = JWSTransactionDecodedPayload()
    payload.transactionID = charge.transactionID.rawValue
    payload.originalTransactionID = line.id.rawValue
    payload.previousOriginalTransactionID = line.previous.map { lines[$0].id.rawValue }
    payload.webOrderLineItemID = charge.webOrderLineItemID?.rawValue
    payload.bundleID = apps[line.app].bundleID
    payload.productID = charge.product.id.rawValue
    payload.subscriptionGroupIdentifier = line.group
    payload.purchaseDate = charge.purchaseDate
    payload.originalPurchaseDate = originalPurchaseDate(of: charge)
    payload.expiresDate = charge.expiresDate
    payload.quantity = Int64(charge.quantity)
    payload.type = ProductTypeName(charge.product.type)
    payload.appAccountToken = charge.appAccountToken?.text
    payload.inAppOwnershipType = line.ownership == .purchased ? .purchased : .familyShared
    payload.signedDate = now
    payload.environment = SignedEnvironment(line.environment)
    payload.transactionReason = charge.kind == .purchase ? .purchase : .renewal
    payload.appTransactionID = appTransactionID(customer: line.customer, app: line.app)
    let storefront = Storefront(currency: charge.product.currency)
    payload.storefront = storefront.country
    payload.storefrontID = storefront.id
    // Family members do not see the purchaser's price.
    if line.ownership == .purchased {
      payload.price = charge.priceMilliunits * Int64(charge.quantity)
      payload.currency = charge.product.currency
    }
    if charge.upgradedAt != nil { payload.isUpgraded = true }
    add(charge.revocation(asOf: now), of: line, to: &payload)
    addOffer(of: charge, to: &payload)
    return payload
  }

  private func add(
    _ revocation: Charge.Revocation?, of line: SimulatedSubscription,
    to payload: inout JWSTransactionDecodedPayload
  ) {
    guard let revocation else { return }
    payload.revocationDate = revocation.at
    payload.revocationReason = Int64(revocation.reason) ?? 0
    payload.revocationType = line.ownership == .purchased ? "REFUND_FULL" : "FAMILY_REVOKE"
    if line.ownership == .purchased { payload.revocationPercentage = 100_000 }
  }

  private func addOffer(of charge: Charge, to payload: inout JWSTransactionDecodedPayload) {
    let isFree = charge.priceMilliunits == 0
    switch charge.periodType {
    case .normal: return
    case .trial, .intro:
      payload.offerType = 1
      payload.offerPeriod = charge.product.introductoryOffer?.period.description
    case .offer:
      payload.offerType = charge.offer?.kind.number
      payload.offerIdentifier = charge.offer?.name
      payload.offerPeriod = charge.product.period?.description
    }
    payload.offerDiscountType =
      charge.product.type != .autoRenewable ? .oneTime : isFree ? .freeTrial : .payUpFront
  }

  /// The date of the original transaction, as in receipts for charges that were not restored.
  func originalPurchaseDate(of charge: Charge) -> Timestamp {
    let line = lines[charge.line]
    let first = line.charges.first.map { charges[$0].purchaseDate } ?? charge.purchaseDate
    // Real responses date a subscription's first purchase a second after its charge.
    return line.group == nil ? first : first + .seconds(1)
  }

  // MARK: Renewal

  /// Nil if nothing renews.
  ///
  /// See https://developer.apple.com/documentation/appstoreserverapi/jwsrenewalinfodecodedpayload.
  func renewalPayload(of number: Int) -> JWSRenewalInfoDecodedPayload? {
    let line = lines[number]
    guard let renewal = renewal(of: line), let current = currentCharge(of: number) else {
      return nil
    }
    let charge = charges[current]
    var payload = JWSRenewalInfoDecodedPayload()
    payload.originalTransactionID = line.id.rawValue
    payload.productID = charge.product.id.rawValue
    payload.autoRenewProductID = renewal.product.id.rawValue
    payload.autoRenewStatus = renewal.isOn ? 1 : 0
    payload.renewalDate = charge.expiresDate
    if line.ownership == .purchased {
      payload.renewalPrice = renewal.price
      payload.currency = renewal.product.currency
      payload.appAccountToken = renewal.appAccountToken?.text
    }
    switch renewal.phase {
    case .paid: break
    case .retrying(_, let graceUntil):
      payload.expirationIntent = 2
      payload.isInBillingRetryPeriod = true
      if let graceUntil, now < graceUntil { payload.gracePeriodExpiresDate = graceUntil }
    case .expired(let intent):
      payload.expirationIntent = Int64(intent)
      payload.isInBillingRetryPeriod = false
    }
    switch renewal.priceConsent {
    case .asked: payload.priceIncreaseStatus = 0
    case .accepted: payload.priceIncreaseStatus = 1
    case nil: break
    }
    if let offer = renewal.offer {
      payload.offerType = offer.kind.number
      payload.offerIdentifier = offer.name
      payload.offerPeriod = renewal.product.period?.description
      payload.offerDiscountType = offer.priceMilliunits == 0 ? .freeTrial : .payUpFront
    }
    payload.recentSubscriptionStartDate = recentStart(of: number)
    payload.appTransactionID = appTransactionID(customer: line.customer, app: line.app)
    payload.environment = SignedEnvironment(line.environment)
    payload.signedDate = now
    return payload
  }

  /// Gaps of less than sixty days do not end a run.
  private static let longestGap = Duration.days(60)

  private func recentStart(of line: Int) -> Timestamp? {
    var start: Timestamp?
    var end: Timestamp?
    for number in lines[line].charges {
      let charge = charges[number]
      if let last = end, charge.purchaseDate - last < Self.longestGap {
        end = max(last, charge.expiresDate ?? last)
      } else {
        start = charge.purchaseDate
        end = charge.expiresDate
      }
    }
    return start
  }

  /// The charge that represents a subscription: the paid one, otherwise the last that was not
  /// upgraded, even if it was refunded.
  func currentCharge(of line: Int) -> Int? {
    if let charge = validCharge(of: line),
      charges[charge].expiresDate.map({ $0 > now }) ?? true
    {
      return charge
    }
    return lines[line].charges.last { charges[$0].upgradedAt == nil } ?? lines[line].charges.last
  }

  /// Apple's status of a subscription; nil for other purchases.
  ///
  /// https://developer.apple.com/documentation/appstoreserverapi/status
  func subscriptionStatus(of line: Int) -> Int64? {
    guard let renewal = renewal(of: lines[line]), let current = currentCharge(of: line) else {
      return nil
    }
    if charges[current].revocation(asOf: now) != nil { return 5 }
    if let end = charges[current].expiresDate, end > now { return 1 }
    switch renewal.phase {
    case .retrying(_, let graceUntil): return graceUntil.map { now < $0 } ?? false ? 4 : 3
    case .paid, .expired: return 2
    }
  }

  // MARK: Numbers

  /// The ID of an Apple ID's download of an app.
  func appTransactionID(customer: Int, app: Int) -> String {
    String(Self.firstAppTransaction + customer * Self.mostApps + app)
  }

  /// The Apple ID and the app of a download's ID.
  func appTransaction(_ id: String) -> (customer: Int, app: Int)? {
    guard let number = Int(id), number >= Self.firstAppTransaction else { return nil }
    let (customer, app) = (number - Self.firstAppTransaction).quotientAndRemainder(
      dividingBy: Self.mostApps)
    return customers.indices.contains(customer) && apps.indices.contains(app)
      ? (customer, app) : nil
  }

  private static let firstAppTransaction = 704_000_000_000_000_000
  private static let mostApps = 1_000

  func appTransactionPayload(customer: Int, app: Int) -> JWSAppTransactionDecodedPayload {
    let environment = customers[customer].environment
    var payload = JWSAppTransactionDecodedPayload()
    payload.receiptType = SignedEnvironment(environment)
    if environment == .production { payload.appAppleID = Int64(apps[app].appAppleID) }
    payload.bundleID = apps[app].bundleID
    payload.applicationVersion = apps[app].version
    payload.receiptCreationDate = now
    payload.originalPurchaseDate = customers[customer].since.wholeSecond
    payload.originalApplicationVersion = environment == .production ? apps[app].version : "1.0"
    payload.appTransactionID = appTransactionID(customer: customer, app: app)
    payload.originalPlatform = "iOS"
    return payload
  }
}

/// The App Store of each currency.
struct Storefront {
  let country: String  // ISO 3166-1 alpha-3
  /// Apple's storefront ID.
  ///
  /// https://developer.apple.com/documentation/appstoreserverapi/storefrontid
  let id: String

  init(currency: String) {
    (country, id) =
      switch currency {
      case "EUR": ("DEU", "143443")
      case "GBP": ("GBR", "143444")
      case "JPY": ("JPN", "143462")
      case "CHF": ("CHE", "143459")
      default: ("USA", "143441")
      }
  }
}

extension SignedEnvironment {
  init(_ environment: Environment) {
    self = environment == .production ? .production : .sandbox
  }
}

extension ProductTypeName {
  init(_ type: ProductType) {
    self =
      switch type {
      case .autoRenewable: .autoRenewable
      case .nonConsumable: .nonConsumable
      case .consumable: .consumable
      case .nonRenewing: .nonRenewing
      }
  }
}

// Signed data as JWS: the data that StoreKit 2 gives to apps and the App Store Server API to
// servers. Each is signed at the current time with the current state. A charge has one ID here;
// further IDs from restores only appear in the original StoreKit's receipts.
extension AppStoreSimulation {
  /// The root certificate that verifiers must trust, in PEM.
  package var rootCertificatePEM: String { signer.rootCertificatePEM }

  /// A charge, by any of its transaction IDs.
  package func signedTransaction(of transaction: TransactionID) throws -> String {
    signer.sign(
      try act { state in
        state.transactionPayload(of: try state.chargeNumber(transaction)).json
      })
  }

  package func signedRenewalInfo(of line: OriginalTransactionID) throws -> String {
    signer.sign(
      try act { state in
        guard let payload = state.renewalPayload(of: try state.lineNumber(line)) else {
          throw SimulationError(.notPossible, "\(line) has no auto-renewal.")
        }
        return payload.json
      })
  }

  // MARK: A device's view

  /// StoreKit's `Transaction.all`: all charges of the Apple ID in an app, in booking order,
  /// without finished consumables.
  package func signedTransactions(on device: DeviceID, bundleID: String? = nil) throws -> [String] {
    try signed(on: device, bundleID) { state, lines in
      lines.flatMap { state.lines[$0].charges }.filter { state.charges[$0].finishedAt == nil }
        .sorted()
    }
  }

  /// StoreKit's `Transaction.currentEntitlements`.
  package func currentEntitlements(on device: DeviceID, bundleID: String? = nil) throws -> [String]
  {
    try signed(on: device, bundleID) { state, lines in
      lines.flatMap { state.entitlements(of: $0) }
    }
  }

  /// StoreKit's `SubscriptionInfo.RenewalInfo` of all subscriptions of the Apple ID in an app.
  package func signedRenewalInfos(on device: DeviceID, bundleID: String? = nil) throws -> [String] {
    try act { state in
      try state.lines(on: device, bundleID).compactMap { state.renewalPayload(of: $0)?.json }
    }.map(signer.sign)
  }

  /// StoreKit's `AppTransaction.shared`.
  package func signedAppTransaction(on device: DeviceID, bundleID: String? = nil) throws -> String {
    signer.sign(
      try act { state in
        let customer = try state.device(device).customer
        return state.appTransactionPayload(customer: customer, app: try state.appNumber(bundleID))
          .json
      })
  }

  private func signed(
    on device: DeviceID, _ bundleID: String?, _ choose: (AppStoreState, [Int]) -> [Int]
  ) throws -> [String] {
    try act { state in
      choose(state, try state.lines(on: device, bundleID)).map {
        state.transactionPayload(of: $0).json
      }
    }.map(signer.sign)
  }
}

extension AppStoreState {
  /// The original transactions in one app of the Apple ID signed in on a device.
  fileprivate func lines(on device: DeviceID, _ bundleID: String?) throws -> [Int] {
    let customer = try self.device(device).customer
    let app = try appNumber(bundleID)
    return customers[customer].lines.filter { lines[$0].app == app }
  }

  /// The charge that currently grants access, if any.
  ///
  /// https://developer.apple.com/documentation/storekit/transaction/currententitlements
  fileprivate func entitlements(of line: Int) -> [Int] {
    guard let current = currentCharge(of: line), charges[current].stands else { return [] }
    switch charges[current].product.type {
    case .consumable: return []
    case .nonConsumable, .nonRenewing: return [current]
    case .autoRenewable: return [1, 4].contains(subscriptionStatus(of: line)) ? [current] : []
    }
  }
}
