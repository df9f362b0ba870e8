import AppStore
import JSONText
import Subscriptions

/// Notifications of version 1: unsigned, with everything that the receipt would say.
///
/// https://developer.apple.com/documentation/appstoreservernotifications/responsebodyv1
extension AppStoreState {
  /// How many transactions a notification lists, the newest first.
  private static let mostTransactions = 100

  /// Writes the notifications of an event to servers that understand version 1.
  mutating func ring(
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

  /// What both shapes begin with.
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

  /// A receipt of the Apple ID that nobody has restored anything with.
  private func receipt(of line: Line) -> SimulatedReceipt {
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
    // Apple's question after a request for a refund can come without any.
    let list = type == "CONSUMPTION_REQUEST" ? [] : Array(items)
    unified.append(
      "latest_receipt_info", .array(list.map { $0.json(isLatest: true, quirks: quirks) }))
    unified.append(
      "pending_renewal_info", .array(pendingRenewals(line.customer, app: line.app)))
    unified.append("status", .integer(Int64(VerifyReceiptStatus.valid.rawValue)))
    members.append("unified_receipt", .object(unified))
    return members
  }

  /// The shape until 2021-03-10: one transaction as iOS 6 had it.
  private func oldDoorbell(_ type: String, _ subject: Subject, _ event: SimulatedEvent)
    -> [JSONValue.Member]
  {
    let line = lines[subject.line]
    var members = head(type, subject)
    // The cancellation that an upgrade comes with is the old product's.
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
