/// A name or identifier that callers send, and what may stand in it.
struct TextField: Sendable {
  let name: String
  /// In Unicode scalars, as PostgreSQL counts.
  let maximumLength: Int

  /// Whatever the app uses: numbers, UUIDs, mail addresses.
  static let accountID = TextField(name: "account_id", maximumLength: 255)
  static let accountIDs = TextField(name: "account_ids", maximumLength: 255)
  /// Apple allows 100 characters.
  static let productID = TextField(name: "product_id", maximumLength: 255)
  /// Apple's have 15 or 16 digits today.
  static let transactionID = TextField(name: "transaction_id", maximumLength: 128)
  static let originalTransactionID = TextField(
    name: "original_transaction_id", maximumLength: 128)
  /// Apple allows 155 characters.
  static let bundleID = TextField(name: "bundle_id", maximumLength: 255)
  static let entitlements = TextField(name: "entitlements", maximumLength: 255)
  static let subscriptionGroup = TextField(name: "subscription_group", maximumLength: 255)
  static let displayName = TextField(name: "display_name", maximumLength: 255)

  /// Returns the text if it may stand in the field.
  ///
  /// - Throws: A ``Problem`` that names the field.
  func checked(_ text: String) throws -> String {
    guard !text.isEmpty else { throw Problem.invalid(name, "must not be empty") }
    // No text has more scalars than bytes: only long ones need counting.
    guard text.utf8.count <= maximumLength || text.unicodeScalars.count <= maximumLength else {
      throw Problem.invalid(name, "may have up to \(maximumLength) characters")
    }
    // PostgreSQL can't store NUL, and nobody can see the others.
    guard !text.unicodeScalars.contains(where: Self.isControl) else {
      throw Problem.invalid(name, "must not have control characters")
    }
    return text
  }

  private static func isControl(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.value {
    case 0..<0x20, 0x7F..<0xA0: true
    default: false
    }
  }
}
