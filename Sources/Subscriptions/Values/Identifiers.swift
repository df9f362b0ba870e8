package import struct Foundation.UUID

/// Part of every key, because the two never mix.
package enum Environment: String, Codable, CaseIterable, Sendable {
  case production
  case sandbox
}

/// Apple's `product_id`.
package struct ProductID: TextIdentifier {
  package let rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }
}

/// Apple's `transaction_id`: not a key for a charge, see `Charge`.
package struct TransactionID: TextIdentifier {
  package let rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }
}

/// Apple's `original_transaction_id`: the purchases of one Apple Account in one subscription group.
package struct OriginalTransactionID: TextIdentifier {
  package let rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }
}

/// Apple's `web_order_line_item_id`: one completed charge of a subscription.
package struct WebOrderLineItemID: TextIdentifier {
  package let rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }

  /// Nil for the values that name no charge: empty and 0.
  package init?(reported text: String?) {
    guard let text, !text.isEmpty, text != "0" else { return nil }
    rawValue = text
  }
}

/// The ledger's random name for an account, the only one in entries and their hashes, so that
/// erasing a person rewrites the map from account ids to keys and no hash.
package struct AccountKey: RawRepresentable, Hashable, Comparable, Codable, Sendable {
  package let rawValue: UUID

  package init(rawValue: UUID) { self.rawValue = rawValue }

  package static func < (lhs: AccountKey, rhs: AccountKey) -> Bool { lhs.rawValue < rhs.rawValue }
}

package struct OriginalTransactionKey: Hashable, Comparable, Codable, Sendable,
  CustomStringConvertible
{
  package let environment: Environment
  package let originalTransactionID: OriginalTransactionID

  package init(_ environment: Environment, _ originalTransactionID: OriginalTransactionID) {
    (self.environment, self.originalTransactionID) = (environment, originalTransactionID)
  }

  package static func < (lhs: OriginalTransactionKey, rhs: OriginalTransactionKey) -> Bool {
    lhs.environment == rhs.environment
      ? lhs.originalTransactionID < rhs.originalTransactionID
      : lhs.environment.rawValue < rhs.environment.rawValue
  }

  package var description: String { "\(environment.rawValue)/\(originalTransactionID)" }
}

/// The key of a transaction: two records are the same exactly if all four parts are equal.
package struct TransactionKey: Hashable, Comparable, Codable, Sendable {
  package let line: OriginalTransactionKey
  package let transactionID: TransactionID
  package let productID: ProductID

  package init(line: OriginalTransactionKey, transactionID: TransactionID, productID: ProductID) {
    (self.line, self.transactionID, self.productID) = (line, transactionID, productID)
  }

  package static func < (lhs: TransactionKey, rhs: TransactionKey) -> Bool {
    if lhs.transactionID != rhs.transactionID { return lhs.transactionID < rhs.transactionID }
    if lhs.line != rhs.line { return lhs.line < rhs.line }
    return lhs.productID < rhs.productID
  }
}
