import AppStore
import struct Foundation.UUID
import JSONText
import Subscriptions

// Notifications of version 2, and their recipients.
extension AppStoreState {
  struct Subject {
    let charge: Int
    let line: Int
  }

  /// Creates an event's notifications for the app's servers.
  mutating func notify(about event: SimulatedEvent) {
    guard let charge = chargeNumbers[event.transactionID] else { return }
    let line = charges[charge].line
    let targets = mail.targets(
      of: NotificationQueue.Addressee(app: lines[line].app, environment: event.environment))
    guard !targets.isEmpty else { return }
    for subject in [Subject(charge: charge, line: line)] + shares(of: event, charge, line) {
      for version in SimulatedNotification.Version.allCases {
        let targets = targets.filter { $0.version == version }
        guard !targets.isEmpty else { continue }
        switch version {
        case .v1, .v1Before2021: notify(about: event, subject, as: version, at: targets)
        case .v2: write(about: event, subject, to: targets)
        }
      }
    }
  }

  /// The family members' shares affected by an event of the purchaser's.
  private func shares(of event: SimulatedEvent, _ charge: Int, _ line: Int) -> [Subject] {
    guard event.concernsShares, lines[line].ownership == .purchased else { return [] }
    return customers[lines[line].customer].familyMembers.flatMap { customers[$0].lines }
      .filter { lines[$0].sharedFrom == line }
      .compactMap { share in
        let own = charges[charge].shares.first { charges[$0].line == share }
        return (own ?? validCharge(of: share)).map { Subject(charge: $0, line: share) }
      }
  }

  private mutating func write(
    about event: SimulatedEvent, _ subject: Subject, to targets: [NotificationTarget]
  ) {
    guard let (type, subtype) = event.type2 else { return }
    var data = data(about: subject)
    if case .refundRequested(let reason) = event.kind {
      data.consumptionRequestReason = reason.rawValue
    }
    write(type, subtype, about: event, subject, to: targets) { $0.data = data }
  }

  private func data(about subject: Subject) -> NotificationData {
    let line = lines[subject.line]
    var data = NotificationData()
    data.environment = SignedEnvironment(line.environment)
    if line.environment == .production { data.appAppleID = Int64(apps[line.app].appAppleID) }
    data.bundleID = apps[line.app].bundleID
    data.bundleVersion = apps[line.app].version
    data.signedTransactionInfo = signer.sign(transactionPayload(of: subject.charge).json)
    data.signedRenewalInfo = renewalPayload(of: subject.line).map { signer.sign($0.json) }
    data.status = subscriptionStatus(of: subject.line)
    return data
  }

  private mutating func write(
    _ type: NotificationTypeV2, _ subtype: NotificationSubtype?, about event: SimulatedEvent?,
    _ subject: Subject, to targets: [NotificationTarget],
    _ fill: (inout ResponseBodyV2DecodedPayload) -> Void
  ) {
    let uuid = mail.nextUUID()
    post(
      signed(type, subtype, uuid: uuid, fill), uuid: uuid, version: .v2, type: type.rawValue,
      subtype: subtype?.rawValue, about: event, subject, to: targets)
  }

  private func signed(
    _ type: NotificationTypeV2, _ subtype: NotificationSubtype?, uuid: UUID,
    _ fill: (inout ResponseBodyV2DecodedPayload) -> Void
  ) -> SimulatedNotification.Content {
    var payload = ResponseBodyV2DecodedPayload()
    payload.notificationType = type
    payload.subtype = subtype
    payload.notificationUUID = uuid.text
    payload.version = "2.0"
    payload.signedDate = now
    fill(&payload)
    return .signed(signer.sign(payload.json))
  }

  mutating func post(
    _ content: SimulatedNotification.Content, uuid: UUID, version: SimulatedNotification.Version,
    type: String, subtype: String?, about event: SimulatedEvent?, _ subject: Subject,
    to targets: [NotificationTarget]
  ) {
    let line = lines[subject.line]
    mail.post(
      SimulatedNotification(
        number: mail.nextNumber, uuid: uuid, version: version, type: type, subtype: subtype,
        environment: line.environment, bundleID: apps[line.app].bundleID, at: now, event: event,
        transactionID: charges[subject.charge].transactionID, originalTransactionID: line.id,
        content: content),
      to: targets)
  }

  // MARK: About an app

  /// Creates a test notification; nil without a URL for version 2.
  mutating func writeTest(app: Int, environment: Environment) -> SimulatedNotification? {
    var data = NotificationData()
    data.environment = SignedEnvironment(environment)
    if environment == .production { data.appAppleID = Int64(apps[app].appAppleID) }
    data.bundleID = apps[app].bundleID
    return write(.test, nil, to: app, environment) { $0.data = data }
  }

  /// Reports a subscription that a mass extension did not extend.
  mutating func writeExtensionFailure(_ subject: Subject) {
    let line = lines[subject.line]
    let targets = targets2(app: line.app, line.environment)
    guard !targets.isEmpty else { return }
    let data = data(about: subject)
    write(.renewalExtension, .failure, about: nil, subject, to: targets) { $0.data = data }
  }

  /// Reports the result of a mass extension.
  mutating func writeSummary(of result: MassExtension, countries: [String]?) {
    var summary = NotificationSummary()
    summary.environment = SignedEnvironment(result.environment)
    if result.environment == .production {
      summary.appAppleID = Int64(apps[result.app].appAppleID)
    }
    summary.bundleID = apps[result.app].bundleID
    summary.productID = result.product.rawValue
    summary.requestIdentifier = result.identifier
    summary.storefrontCountryCodes = countries
    summary.succeededCount = Int64(result.succeeded)
    summary.failedCount = Int64(result.failed)
    _ = write(.renewalExtension, .summary, to: result.app, result.environment) {
      $0.summary = summary
    }
  }

  private func targets2(app: Int, _ environment: Environment) -> [NotificationTarget] {
    mail.targets(of: NotificationQueue.Addressee(app: app, environment: environment))
      .filter { $0.version == .v2 }
  }

  private mutating func write(
    _ type: NotificationTypeV2, _ subtype: NotificationSubtype?, to app: Int,
    _ environment: Environment, _ fill: (inout ResponseBodyV2DecodedPayload) -> Void
  ) -> SimulatedNotification? {
    let targets = targets2(app: app, environment)
    guard !targets.isEmpty else { return nil }
    let uuid = mail.nextUUID()
    let notification = SimulatedNotification(
      number: mail.nextNumber, uuid: uuid, version: .v2, type: type.rawValue,
      subtype: subtype?.rawValue, environment: environment, bundleID: apps[app].bundleID,
      at: now, event: nil, transactionID: nil, originalTransactionID: nil,
      content: signed(type, subtype, uuid: uuid, fill))
    mail.post(notification, to: targets)
    return notification
  }
}

// Notifications of version 1: unsigned, with the receipt's contents.
// https://developer.apple.com/documentation/appstoreservernotifications/responsebodyv1
extension AppStoreState {
  /// The number of transactions listed, newest first.
  private static let mostTransactions = 100

  /// Creates an event's notifications for servers that use version 1.
  mutating func notify(
    about event: SimulatedEvent, _ subject: Subject, as version: SimulatedNotification.Version,
    at targets: [NotificationTarget]
  ) {
    let isSubscription = lines[subject.line].group != nil
    let types = event.types1(
      ofSubscription: isSubscription, before2021: version == .v1Before2021)
    for type in types {
      let body =
        version == .v1
        ? doorbell(type, subject, event) : oldDoorbell(type, subject, event)
      post(
        .plain(JSONValue.object(body).bytes), uuid: mail.nextUUID(), version: version, type: type,
        subtype: nil, about: event, subject, to: targets)
    }
  }

  /// The common beginning of both formats.
  private func head(_ type: String, _ subject: Subject) -> [JSONValue.Member] {
    let line = lines[subject.line]
    var members: [JSONValue.Member] = []
    members.append("notification_type", type)
    members.append("password", apps[line.app].sharedSecret)
    members.append("environment", line.environment == .production ? "PROD" : "Sandbox")
    if let renewal = renewal(of: line) {
      members.append("auto_renew_product_id", renewal.product.id.rawValue)
      members.append("auto_renew_status", renewal.isOn ? "true" : "false")
      if let switchedAt = renewal.switchedAt {
        members.append(date: "auto_renew_status_change_date", switchedAt.wholeSecond)
      }
      switch renewal.phase {
      case .paid: break
      case .retrying: members.append("expiration_intent", "2")
      case .expired(let intent): members.append("expiration_intent", String(intent))
      }
    }
    return members
  }

  /// A receipt of the Apple ID without restores.
  private func receipt(of line: SimulatedSubscription) -> SimulatedReceipt {
    SimulatedReceipt(
      style: .app, environment: line.environment, bundleID: apps[line.app].bundleID,
      appleID: customers[line.customer].appleID, madeAt: now)
  }

  private func doorbell(_ type: String, _ subject: Subject, _ event: SimulatedEvent)
    -> [JSONValue.Member]
  {
    let line = lines[subject.line]
    var members = head(type, subject)
    members.append("bid", apps[line.app].bundleID)
    members.append("bvrs", apps[line.app].version)
    members.append("original_transaction_id", line.id.rawValue)

    let receipt = receipt(of: line)
    let items = items(receipt, app: line.app, customer: line.customer, asOf: now)
      .sorted { $0.purchaseDate > $1.purchaseDate }.prefix(Self.mostTransactions)
    var unified: [JSONValue.Member] = []
    unified.append("environment", line.environment == .production ? "Production" : "Sandbox")
    unified.append("latest_receipt", encoded(receipt, app: line.app, customer: line.customer))
    // CONSUMPTION_REQUEST can come without any.
    let list = type == "CONSUMPTION_REQUEST" ? [] : Array(items)
    unified.append(
      "latest_receipt_info", .array(list.map { $0.json(isLatest: true, quirks: quirks) }))
    unified.append(
      "pending_renewal_info", .array(pendingRenewals(line.customer, app: line.app)))
    unified.append("status", .integer(Int64(VerifyReceiptStatus.valid.rawValue)))
    members.append("unified_receipt", .object(unified))
    return members
  }

  /// The format until 2021-03-10: one transaction in iOS 6 format.
  private func oldDoorbell(_ type: String, _ subject: Subject, _ event: SimulatedEvent)
    -> [JSONValue.Member]
  {
    let line = lines[subject.line]
    var members = head(type, subject)
    // The cancellation caused by an upgrade is the old product's.
    let replaced = line.charges.last { charges[$0].upgradedAt == now.wholeSecond }
    let number = type == "CANCEL" ? replaced ?? subject.charge : subject.charge
    let charge = charges[number]
    var receipt = receipt(of: line)
    receipt.style = .transaction(charge.transactionID)
    let item = item(charge: number, receipt, customer: line.customer, asOf: now)
    let end = charge.revocation(asOf: now)?.at ?? charge.upgradedAt
    if let end {
      members.append(date: "cancellation_date", end)
      if let lineItem = charge.webOrderLineItemID {
        members.append("web_order_line_item_id", lineItem.rawValue)
      }
    }
    let isOver = end != nil || charge.expiresDate.map { $0 <= now } ?? false
    members.append(
      isOver ? "latest_expired_receipt" : "latest_receipt",
      encoded(
        receipt, app: line.app, customer: line.customer, details: purchaseInfo(of: number)))
    members.append(
      isOver ? "latest_expired_receipt_info" : "latest_receipt_info", flat(item, app: line.app))
    return members
  }
}

extension SimulatedEvent {
  /// Type and subtype of version 2; nil if Apple sends no notification.
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

  /// Whether a purchaser's event also affects the family's shares, which have no such event of
  /// their own.
  var concernsShares: Bool {
    switch kind {
    case .renewalProductChanged, .autoRenewTurnedOff, .autoRenewTurnedOn, .renewalFailed,
      .gracePeriodExpired, .expired, .refundReversed, .renewalExtended:
      true
    default: false
    }
  }
}

extension NotificationSubtype {
  static let initialBuy = Self(rawValue: "INITIAL_BUY")
  static let resubscribe = Self(rawValue: "RESUBSCRIBE")
  static let billingRecovery = Self(rawValue: "BILLING_RECOVERY")
  static let downgrade = Self(rawValue: "DOWNGRADE")
  static let autoRenewDisabled = Self(rawValue: "AUTO_RENEW_DISABLED")
  static let autoRenewEnabled = Self(rawValue: "AUTO_RENEW_ENABLED")
  static let gracePeriod = Self(rawValue: "GRACE_PERIOD")
  static let voluntary = Self(rawValue: "VOLUNTARY")
  static let billingRetry = Self(rawValue: "BILLING_RETRY")
  static let priceIncrease = Self(rawValue: "PRICE_INCREASE")
  static let productNotForSale = Self(rawValue: "PRODUCT_NOT_FOR_SALE")
  static let pending = Self(rawValue: "PENDING")
  static let accepted = Self(rawValue: "ACCEPTED")
  static let summary = Self(rawValue: "SUMMARY")
  static let failure = Self(rawValue: "FAILURE")
  static let created = Self(rawValue: "CREATED")
}
