import Subscriptions

/// The field `receipt`: an app receipt with its list `in_app`, or, in answers to iOS 6 style
/// receipts, one flat transaction.
struct ReceiptBody: Decodable, Sendable {
  /// `bundle_id` or `bid`; empty if one of them is, and the other is not given.
  let bundleID: String?
  let requestDate: Timestamp?
  let creationDate: Timestamp?
  let inApp: AnswerList<ReceiptItem>?
  /// The receipt itself as a transaction, where it is one.
  let transaction: ReceiptItem?
  /// Why it is none, though it looks like one.
  let transactionFault: EntryFault?

  init(from decoder: any Decoder) throws {
    let fields = try decoder.container(keyedBy: AnswerKey.self)
    let isEmpty = ["bundle_id", "bid"].contains {
      (try? fields.decodeIfPresent(String.self, forKey: $0)) == ""
    }
    bundleID =
      try fields.identifier("bundle_id") ?? fields.identifier("bid") ?? (isEmpty ? "" : nil)
    requestDate = try? fields.moment("request_date")
    creationDate = try? fields.moment("receipt_creation_date")
    inApp = try fields.decodeIfPresent(AnswerList<ReceiptItem>.self, forKey: "in_app")
    guard inApp == nil, fields.contains("product_id") else {
      (transaction, transactionFault) = (nil, nil)
      return
    }
    do {
      (transaction, transactionFault) = (try ReceiptItem(from: decoder), nil)
    } catch let fault as UnreadableField {
      transaction = nil
      transactionFault = EntryFault(
        reason: fault.description, purchaseDate: try? fields.moment("purchase_date"))
    }
  }
}
