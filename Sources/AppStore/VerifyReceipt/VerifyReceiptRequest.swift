/// The body of a verifyReceipt request.
///
/// See https://developer.apple.com/documentation/appstorereceipts/requestbody.
package struct VerifyReceiptRequest: Codable, Sendable, CustomStringConvertible {
  /// The receipt in base64, as the app sent it.
  package var receiptData: String
  /// The shared secret; required where the receipt holds subscriptions.
  package var password: String?
  /// Asks for the newest transaction of each subscription only, in `latest_receipt_info`.
  package var excludeOldTransactions: Bool?

  package init(receiptData: String, password: String?, excludeOldTransactions: Bool?) {
    self.receiptData = receiptData
    self.password = password
    self.excludeOldTransactions = excludeOldTransactions
  }

  private enum CodingKeys: String, CodingKey {
    case receiptData = "receipt-data"
    case password
    case excludeOldTransactions = "exclude-old-transactions"
  }

  /// Neither the receipt nor the secret.
  package var description: String { "verifyReceipt of \(receiptData.utf8.count) bytes" }
}
