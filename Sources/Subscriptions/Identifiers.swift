package import struct Foundation.UUID

/// Where a purchase was made: part of every key, for the two never mix.
package enum Environment: String, Codable, CaseIterable, Sendable {
  case production
  case sandbox
}

/// An identifier that is somebody else's text: compared as text, never calculated with.
package protocol TextIdentifier: RawRepresentable, Hashable, Comparable, Codable, Sendable,
  ExpressibleByStringLiteral, CustomStringConvertible
where RawValue == String {
  init(rawValue: String)
}

extension TextIdentifier {
  /// Takes an identifier as it is written.
  package init(_ rawValue: String) { self.init(rawValue: rawValue) }
  package init(stringLiteral value: String) { self.init(rawValue: value) }
  package var description: String { rawValue }

  /// Shorter first, then by character: the order of the numbers that Apple's identifiers are.
  package static func < (lhs: Self, rhs: Self) -> Bool {
    let (left, right) = (lhs.rawValue.utf8.count, rhs.rawValue.utf8.count)
    return left == right ? lhs.rawValue < rhs.rawValue : left < right
  }
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
