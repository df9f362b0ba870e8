package import struct Foundation.UUID

/// Where a purchase was made: part of every key, for the two never mix.
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

/// Apple's `original_transaction_id`: one Apple ID's purchase line in one subscription group.
package struct OriginalTransactionID: TextIdentifier {
  package let rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }
}

/// Apple's `web_order_line_item_id`: one completed charge of a subscription.
package struct WebOrderLineItemID: TextIdentifier {
  package let rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }

  /// Reads the field as Apple writes it; nil where it names no charge: empty or 0.
  package init?(reported text: String?) {
    guard let text, !text.isEmpty, text != "0" else { return nil }
    rawValue = text
  }
}

/// The name that the ledger has for an account of the app.
///
/// Random, and the only name that entries and their hashes contain, so that erasing a person
/// rewrites the map from account ids to keys and no chain.
package struct AccountKey: RawRepresentable, Hashable, Comparable, Codable, Sendable {
  package let rawValue: UUID

  package init(rawValue: UUID) { self.rawValue = rawValue }

  package static func < (lhs: AccountKey, rhs: AccountKey) -> Bool { lhs.rawValue < rhs.rawValue }
}

/// Everything that shares one (environment, original_transaction_id) is one line.
package struct LineID: Hashable, Comparable, Codable, Sendable, CustomStringConvertible {
  package let environment: Environment
  package let originalTransactionID: OriginalTransactionID

  package init(_ environment: Environment, _ originalTransactionID: OriginalTransactionID) {
    self.environment = environment
    self.originalTransactionID = originalTransactionID
  }

  package static func < (lhs: LineID, rhs: LineID) -> Bool {
    lhs.environment == rhs.environment
      ? lhs.originalTransactionID < rhs.originalTransactionID
      : lhs.environment.rawValue < rhs.environment.rawValue
  }

  package var description: String { "\(environment.rawValue)/\(originalTransactionID)" }
}

/// The identity of a transaction: two records are the same exactly when all four parts are equal.
package struct TransactionKey: Hashable, Comparable, Codable, Sendable {
  package let line: LineID
  package let transactionID: TransactionID
  package let productID: ProductID

  package init(line: LineID, transactionID: TransactionID, productID: ProductID) {
    self.line = line
    self.transactionID = transactionID
    self.productID = productID
  }

  package static func < (lhs: TransactionKey, rhs: TransactionKey) -> Bool {
    if lhs.transactionID != rhs.transactionID { return lhs.transactionID < rhs.transactionID }
    if lhs.line != rhs.line { return lhs.line < rhs.line }
    return lhs.productID < rhs.productID
  }
}
