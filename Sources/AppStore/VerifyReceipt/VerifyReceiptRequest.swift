/// The body of a verifyReceipt request.
///
/// See https://developer.apple.com/documentation/appstorereceipts/requestbody.
package struct VerifyReceiptRequest: Codable, Sendable, CustomStringConvertible {
  /// The receipt in base64, as the app sent it.
  package var receiptData: String
  /// The shared secret; required where the receipt holds subscriptions.
  package var password: String?

  package init(receiptData: String, password: String?) {
    self.receiptData = receiptData
    self.password = password
  }

  private enum CodingKeys: String, CodingKey {
    case receiptData = "receipt-data"
    case password
  }

  /// Neither the receipt nor the secret.
  package var description: String { "verifyReceipt of \(receiptData.utf8.count) bytes" }
}
