package import Subscriptions

/// A transaction receipt of iOS 6, as much as there is to know without Apple; nobody verified it.
///
/// A property list around another one, which says what was bought. The signature in it is of a form
/// of its own, over a certificate that has long expired.
package struct TransactionReceipt: Hashable, Sendable {
  /// As Apple writes it; missing in production.
  package let environmentName: String?
  package let bundleID: String?
  package let productID: String?
  package let transactionID: String
  package let originalTransactionID: String?
  package let purchaseDate: Timestamp?

  /// Nil for anything else, and for one without a transaction's id.
  init?(parsing bytes: [UInt8]) {
    guard let outer = OldStylePropertyList(bytes),
      let purchaseInfo = outer["purchase-info"],
      let innerBytes = Base64.decode(standard: purchaseInfo.utf8),
      let inner = OldStylePropertyList(innerBytes),
      let transactionID = inner.identifier("transaction-id", upTo: AppleIdentifier.longestNumber)
    else { return nil }
    self.transactionID = transactionID
    originalTransactionID = inner.identifier(
      "original-transaction-id", upTo: AppleIdentifier.longestNumber)
    environmentName = outer["environment"]
    bundleID = inner.identifier("bid")
    productID = inner.identifier("product-id")
    purchaseDate = inner["purchase-date-ms"].flatMap { Int64($0) }
      .map { Timestamp(milliseconds: $0) }.flatMap { Timestamp.writable.contains($0) ? $0 : nil }
  }

  /// Where it was bought; nil for a word that is not known.
  package var environment: Environment? {
    switch environmentName.map(ExactText.init(_:)) {
    case nil, "Production"?: .production
    case "Sandbox"?: .sandbox
    default: nil
    }
  }
}

extension OldStylePropertyList {
  /// A text that can be part of a key: see ``AppleIdentifier``.
  fileprivate func identifier(
    _ key: String, upTo limit: Int = AppleIdentifier.longest
  ) -> String? {
    guard let text = self[key], !text.isEmpty, AppleIdentifier.fault(of: text, upTo: limit) == nil
    else { return nil }
    return text
  }
}
