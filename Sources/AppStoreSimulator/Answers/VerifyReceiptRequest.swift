import AppStore
import JSONText
import Subscriptions

/// What verifyReceipt is asked.
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

/// The statuses that the simulation itself has reason to answer.
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
