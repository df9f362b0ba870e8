import AppStore
import JSONText
import Subscriptions

// verifyReceipt, from the request's bytes to the response's JSON.
extension AppStoreState {
  mutating func verifyReceipt(_ body: some Sequence<UInt8>, at endpoint: Environment)
    -> JSONValue
  {
    guard let request = VerifyReceiptRequest(body) else { return Self.json(.unreadableRequest) }
    guard let receiptData = request.receiptData else { return Self.json(.malformedReceipt) }
    switch SimulatedReceipt.reading(receiptData, seed: configuration.seed) {
    case .malformed: return Self.json(.malformedReceipt)
    case .notAuthentic: return Self.json(.notAuthentic)
    case .receipt(let receipt): return answer(to: request, about: receipt, at: endpoint)
    }
  }

  private static func json(_ status: VerifyReceiptStatus) -> JSONValue {
    ["status": .integer(Int64(status.rawValue))]
  }

  private mutating func answer(
    to request: VerifyReceiptRequest, about receipt: SimulatedReceipt, at endpoint: Environment
  ) -> JSONValue {
    guard let app = apps.firstIndex(where: { $0.bundleID == receipt.bundleID }),
      let customer = customerNumbers[receipt.appleID]
    else { return Self.json(.notAuthentic) }
    guard receipt.environment == endpoint else {
      let status: VerifyReceiptStatus =
        endpoint == .production ? .sandboxReceipt : .productionReceipt
      guard quirks.contains(.receiptWithWrongEnvironment) else { return Self.json(status) }
      return [
        "receipt": receiptJSON(receipt, app: app, customer: customer),
        "status": .integer(Int64(status.rawValue)),
      ]
    }
    guard !customers[customer].isDeleted else { return Self.json(.unknownAccount) }
    if holdsSubscriptions(customer, app: app), request.password != apps[app].sharedSecret {
      return Self.json(.wrongSharedSecret)
    }
    switch receipt.style {
    case .app:
      return appReceiptAnswer(
        receipt, app: app, customer: customer,
        excludesOldTransactions: request.excludesOldTransactions)
    case .transaction(let id):
      return transactionReceiptAnswer(receipt, id, app: app)
    }
  }

  private func holdsSubscriptions(_ customer: Int, app: Int) -> Bool {
    customers[customer].lines.contains { lines[$0].app == app && lines[$0].group != nil }
  }

  // MARK: Items

  /// The charges known at `moment`, with the receipt's transaction IDs.
  ///
  /// For `in_app` this is the receipt's creation, for `latest_receipt_info` the current time.
  func items(_ receipt: SimulatedReceipt, app: Int, customer: Int, asOf moment: Timestamp)
    -> [AnswerItem]
  {
    customers[customer].lines.filter { lines[$0].app == app }.flatMap { line in
      lines[line].charges.filter { number in
        let charge = charges[number]
        return charge.madeAt <= moment && (charge.finishedAt.map { moment < $0 } ?? true)
      }.map { item(charge: $0, receipt, customer: customer, asOf: moment) }
    }
  }

  func item(
    charge number: Int, _ receipt: SimulatedReceipt, customer: Int, asOf moment: Timestamp
  ) -> AnswerItem {
    let charge = charges[number]
    let line = lines[charge.line]
    var item = AnswerItem(
      charge: charge, line: line, transactionID: charge.transactionID,
      purchaseDate: charge.purchaseDate, originalPurchaseDate: originalPurchaseDate(of: charge),
      revocation: charge.revocation(asOf: moment))
    if let restoration = receipt.restoration,
      let name = customers[customer].restorations[restoration].names[number]
    {
      item.transactionID = name.id
      item.originalPurchaseDate = name.givenAt
      if quirks.contains(.restoredPurchaseDates) {
        item.originalPurchaseDate = charge.purchaseDate
        item.purchaseDate = name.givenAt
      }
    }
    return item
  }
}

/// The body of a verifyReceipt request.
///
/// https://developer.apple.com/documentation/appstorereceipts/requestbody
struct VerifyReceiptRequest {
  let receiptData: String?
  let password: String?
  let excludesOldTransactions: Bool

  /// Nil for anything but a JSON object.
  init?(_ body: some Sequence<UInt8>) {
    guard let json = try? JSONValue(parsing: body), case .object = json else { return nil }
    receiptData = json["receipt-data"]?.string
    password = json["password"]?.string
    let excludes = json["exclude-old-transactions"]
    excludesOldTransactions = excludes?.bool ?? (excludes?.string == "true")
  }
}

/// The statuses that the simulation itself returns.
///
/// https://developer.apple.com/documentation/appstorereceipts/status
enum VerifyReceiptStatus: Int {
  case valid = 0
  case unreadableRequest = 21000
  case malformedReceipt = 21002
  case notAuthentic = 21003
  case wrongSharedSecret = 21004
  case expired = 21006
  case sandboxReceipt = 21007
  case productionReceipt = 21008
  case unknownAccount = 21010
}
