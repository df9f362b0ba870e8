import AppStore
import JSONText
import Subscriptions

// Responses in the format that verifyReceipt has used since iOS 7.
// https://developer.apple.com/documentation/appstorereceipts/responsebody
extension AppStoreState {
  /// The first day of the App Store's sandbox, the purchase date of all sandbox apps.
  private static let sandboxPurchaseDate =
    Timestamp(CalendarDate(year: 2013, month: 8, day: 1)) + .hours(7)

  mutating func appReceiptAnswer(
    _ receipt: SimulatedReceipt, app: Int, customer: Int, excludesOldTransactions: Bool
  ) -> JSONValue {
    var held = items(receipt, app: app, customer: customer, asOf: receipt.madeAt)
    var latest = items(receipt, app: app, customer: customer, asOf: now - answerLag)
    if quirks.contains(.split) { split(&held, &latest) }
    if quirks.contains(.emptyInApp) { held = [] }
    if excludesOldTransactions { latest = Self.newestOfEachLine(latest) }

    var members: [JSONValue.Member] = []
    members.append("environment", Self.name(receipt.environment))
    let details = receiptJSON(
      receipt, app: app, customer: customer, holding: list(held, isLatest: false))
    members.append("receipt", quirks.contains(.receiptAsArray) ? .array([details]) : details)
    if latest.contains(where: { $0.line.group != nil }) {
      members.append("latest_receipt_info", latestInfo(latest))
      var renewed = receipt
      renewed.madeAt = now
      members.append("latest_receipt", encoded(renewed, app: app, customer: customer))
      let pending = pendingRenewals(customer, app: app)
      members.append(
        "pending_renewal_info",
        .array(quirks.contains(.shuffled) ? answering.shuffled(pending) : pending))
    }
    members.append("status", .integer(0))
    return .object(members)
  }

  static func originalPurchaseDate(_ isSandbox: Bool, _ customer: Customer) -> Timestamp {
    isSandbox ? sandboxPurchaseDate : customer.since.wholeSecond
  }

  private static func name(_ environment: Environment) -> String {
    environment == .production ? "Production" : "Sandbox"
  }

  func receiptJSON(
    _ receipt: SimulatedReceipt, app: Int, customer: Int, holding items: JSONValue = []
  ) -> JSONValue {
    let isSandbox = receipt.environment == .sandbox
    let number: JSONValue = .integer(isSandbox ? 0 : Int64(apps[app].appAppleID))
    var members: [JSONValue.Member] = []
    members.append("receipt_type", isSandbox ? "ProductionSandbox" : "Production")
    members.append("adam_id", number)
    members.append("app_item_id", number)
    members.append("bundle_id", apps[app].bundleID)
    members.append("application_version", apps[app].version)
    members.append("download_id", isSandbox ? 0 : .integer(Int64(customer) + 500_000_000_000))
    members.append("version_external_identifier", isSandbox ? 0 : 846_821_007)
    members.append(date: "receipt_creation_date", receipt.madeAt.wholeSecond)
    members.append(date: "request_date", now)
    members.append(
      date: "original_purchase_date", Self.originalPurchaseDate(isSandbox, customers[customer]))
    members.append("original_application_version", isSandbox ? "1.0" : apps[app].version)
    members.append("in_app", items)
    return .object(members)
  }

  // MARK: Lists

  private mutating func list(_ items: [AnswerItem], isLatest: Bool) -> JSONValue {
    var list = items.map { $0.json(isLatest: isLatest, quirks: quirks) }
    if quirks.contains(.doubled) { list += list.filter { _ in answering.chance(0.5) } }
    if quirks.contains(.shuffled) { list = answering.shuffled(list) }
    return .array(list)
  }

  /// Newest first, as in most of Apple's lists.
  private mutating func latestInfo(_ items: [AnswerItem]) -> JSONValue {
    let sorted = items.sorted { $0.purchaseDate > $1.purchaseDate }
    if quirks.contains(.latestInfoAsObject), let newest = sorted.first {
      return newest.json(isLatest: true, quirks: quirks)
    }
    return list(sorted, isLatest: true)
  }

  /// Removes some items from one of the lists.
  ///
  /// Information that only `latest_receipt_info` contains (revocations, upgrades, news) stays
  /// there.
  private mutating func split(_ held: inout [AnswerItem], _ latest: inout [AnswerItem]) {
    let newest = Set(Self.newestOfEachLine(latest).map(\.charge.transactionNumber))
    let known = Set(held.map(\.charge.transactionNumber))
    var onlyHeld: Set<Int> = []
    var onlyLatest: Set<Int> = []
    for item in latest where known.contains(item.charge.transactionNumber) {
      let number = item.charge.transactionNumber
      switch answering.number(in: 0...2) {
      case 0 where item.charge.stands && !newest.contains(number): onlyHeld.insert(number)
      case 1: onlyLatest.insert(number)
      default: break
      }
    }
    held.removeAll { onlyLatest.contains($0.charge.transactionNumber) }
    latest.removeAll { onlyHeld.contains($0.charge.transactionNumber) }
  }

  /// For `exclude-old-transactions`: the newest transaction of each subscription, and all other
  /// purchases.
  private static func newestOfEachLine(_ items: [AnswerItem]) -> [AnswerItem] {
    var newest: [OriginalTransactionID: AnswerItem] = [:]
    for item in items {
      if let other = newest[item.line.id], other.charge.purchaseDate >= item.charge.purchaseDate {
        continue
      }
      newest[item.line.id] = item
    }
    return items.filter {
      newest[$0.line.id]?.charge.transactionNumber == $0.charge.transactionNumber
    }
  }

  // MARK: Renewals

  /// One entry for each subscription; shares have the purchaser's data.
  ///
  /// https://developer.apple.com/documentation/appstorereceipts/responsebody
  func pendingRenewals(_ customer: Int, app: Int) -> [JSONValue] {
    customers[customer].lines.compactMap { number -> JSONValue? in
      let line = lines[number]
      guard line.app == app, line.group != nil,
        let last = validCharge(of: number) ?? line.charges.last,
        let renewal = renewal(of: line), !renewal.wasLeftDuringGrace
      else { return nil }
      return pendingRenewal(renewal, line, product: charges[last].product).with(quirks)
    }
  }

  /// The renewal of a subscription; for an active share, the purchaser's.
  func renewal(of line: SimulatedSubscription) -> Renewal? {
    guard let source = line.sharedFrom else { return line.renewal }
    guard var renewal = lines[source].renewal else { return nil }
    if customers[line.customer].organizer != lines[source].customer {
      renewal.isOn = false
      renewal.phase = .expired(intent: 5)
    }
    return renewal
  }

  private func pendingRenewal(
    _ renewal: Renewal, _ line: SimulatedSubscription, product: SimulatedProduct
  )
    -> JSONValue
  {
    var members: [JSONValue.Member] = []
    switch renewal.phase {
    case .paid: break
    case .retrying: members.append("expiration_intent", "2")
    case .expired(let intent): members.append("expiration_intent", String(intent))
    }
    members.append("auto_renew_product_id", renewal.product.id.rawValue)
    members.append("original_transaction_id", line.id.rawValue)
    switch renewal.phase {
    case .paid: break
    case .retrying(_, let graceUntil):
      members.append("is_in_billing_retry_period", "1")
      if let graceUntil, now < graceUntil {
        members.append(date: "grace_period_expires_date", graceUntil)
      }
    case .expired: members.append("is_in_billing_retry_period", "0")
    }
    members.append("product_id", product.id.rawValue)
    members.append("auto_renew_status", renewal.isOn ? "1" : "0")
    switch renewal.priceConsent {
    case .asked:
      members.append("price_consent_status", "0")
      members.append("price_increase_status", "0")
    case .accepted:
      members.append("price_consent_status", "1")
      members.append("price_increase_status", "1")
    case nil: break
    }
    if let offer = renewal.offer {
      members.append(offer.kind.receiptKey, offer.name)
    }
    return .object(members)
  }
}

// Responses in the format used until iOS 6, with one flat transaction. `expires_date` is in
// milliseconds, and the readable dates have different names.
extension AppStoreState {
  mutating func transactionReceiptAnswer(
    _ receipt: SimulatedReceipt, _ id: TransactionID, app: Int
  ) -> JSONValue {
    guard let number = chargeNumbers[id] else {
      return ["status": .integer(Int64(VerifyReceiptStatus.notAuthentic.rawValue))]
    }
    let line = charges[number].line
    let customer = lines[line].customer
    var own = item(charge: number, receipt, customer: customer, asOf: receipt.madeAt)
    own.transactionID = id
    let details = flat(own, app: app)
    guard lines[line].group != nil, let renewal = renewal(of: lines[line]) else {
      return ["receipt": details, "status": 0]
    }

    let known = lines[line].charges.filter { charges[$0].madeAt <= now - answerLag }
    let newest = known.last { charges[$0].stands } ?? known.last ?? number
    let latest = item(charge: newest, receipt, customer: customer, asOf: now)
    let isActive = charges[newest].stands && (charges[newest].expiresDate ?? now) > now

    var members: [JSONValue.Member] = []
    members.append("auto_renew_status", renewal.isOn ? 1 : 0)
    members.append("auto_renew_product_id", renewal.product.id.rawValue)
    if let revocation = latest.revocation {
      members.append(date: "cancellation_date", revocation.at)
      members.append("cancellation_reason", revocation.reason)
    }
    members.append("receipt", details)
    if isActive {
      members.append("latest_receipt_info", flat(latest, app: app))
      var renewed = receipt
      renewed.style = .transaction(latest.transactionID)
      renewed.madeAt = now
      members.append(
        "latest_receipt",
        encoded(renewed, app: app, customer: customer, details: purchaseInfo(of: newest)))
      members.append("status", .integer(Int64(VerifyReceiptStatus.valid.rawValue)))
    } else {
      appendEnd(of: renewal, to: &members)
      members.append("latest_expired_receipt_info", flat(latest, app: app))
      members.append("status", .integer(Int64(VerifyReceiptStatus.expired.rawValue)))
    }
    return .object(members)
  }

  private func appendEnd(of renewal: Renewal, to members: inout [JSONValue.Member]) {
    switch renewal.phase {
    case .paid: break
    case .retrying:
      members.append("expiration_intent", "2")
      members.append("is_in_billing_retry_period", "1")
    case .expired(let intent):
      members.append("expiration_intent", String(intent))
      members.append("is_in_billing_retry_period", "0")
    }
  }

  func flat(_ item: AnswerItem, app: Int) -> JSONValue {
    let number = String(apps[app].appAppleID)
    var members = item.namesAndDates
    members.append("app_item_id", number)
    members.append("item_id", number)
    members.append("bid", apps[app].bundleID)
    members.append("bvrs", apps[app].version)
    members.append("unique_identifier", "0000000000000000000000000000000000000000")
    members.append("unique_vendor_identifier", "00000000-0000-0000-0000-000000000000")
    members.append("version_external_identifier", "846821007")
    if let expiresDate = item.charge.expiresDate {
      let date = AppleDate(expiresDate)
      members.append("expires_date", date.milliseconds)
      members.append("expires_date_formatted", date.gmt)
      members.append("expires_date_formatted_pst", date.pacific)
      if let lineItem = item.charge.webOrderLineItemID, !quirks.contains(.withoutLineItemIDs) {
        members.append("web_order_line_item_id", lineItem.rawValue)
      }
      members.append("is_trial_period", String(item.charge.periodType == .trial))
      members.append("is_in_intro_offer_period", String(item.charge.periodType == .intro))
    }
    if let revocation = item.revocation {
      members.append(date: "cancellation_date", revocation.at)
      members.append("cancellation_reason", revocation.reason)
    }
    return JSONValue.object(members).with(quirks)
  }

  /// The transaction's entries in the property list of an iOS 6 receipt.
  func purchaseInfo(of number: Int) -> [(key: String, value: String)] {
    let charge = charges[number]
    let date = AppleDate(charge.purchaseDate)
    var pairs = [
      ("original-transaction-id", lines[charge.line].id.rawValue),
      ("product-id", charge.product.id.rawValue), ("quantity", String(charge.quantity)),
      ("purchase-date", date.gmt), ("purchase-date-ms", date.milliseconds),
      ("purchase-date-pst", date.pacific),
    ]
    if let expiresDate = charge.expiresDate {
      pairs.append(("expires-date", AppleDate(expiresDate).milliseconds))
    }
    return pairs.map { (key: $0.0, value: $0.1) }
  }
}
