package import Secrets

/// The body of a verifyReceipt request.
///
/// See https://developer.apple.com/documentation/appstorereceipts/requestbody.
package struct VerifyReceiptRequest: Encodable, Sendable, CustomStringConvertible {
  /// The receipt in base64, as the app sent it.
  package var receiptData: String
  /// The shared secret; required where the receipt holds subscriptions.
  package var password: Secret<String>?

  package init(receiptData: String, password: Secret<String>?) {
    self.receiptData = receiptData
    self.password = password
  }

  private enum CodingKeys: String, CodingKey {
    case receiptData = "receipt-data"
    case password
  }

  /// Encodes the body as Apple reads it, with the secret.
  package func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(receiptData, forKey: .receiptData)
    try container.encodeIfPresent(password?.revealed, forKey: .password)
  }

  /// Neither the receipt nor the secret.
  package var description: String { "verifyReceipt of \(receiptData.utf8.count) bytes" }
}
