import AppStore
import JSONText
import Subscriptions

/// Answers in the shape that verifyReceipt had until iOS 6: one transaction, flat.
///
/// Its `expires_date` is in milliseconds, and its readable dates have names of their own.
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

  /// What the property list inside an iOS 6 receipt says of its transaction.
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
