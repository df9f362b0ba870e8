import Foundation
package import LedgerStorage
package import Subscriptions

/// A row that `tenure import` reads and `tenure export owners` writes.
package enum OwnerRow {
  package static let columns: [RowFile.Column] = [
    RowFile.Column("environment"),
    RowFile.Column("original_transaction_id"),
    RowFile.Column("account_id", "account"),
    RowFile.Column("transaction_id", isNeeded: false),
    RowFile.Column("receipt_data", "receipt", isNeeded: false),
    RowFile.Column("bundle_id", isNeeded: false),
  ]

  private static let longestID = 128
  private static let longestAccountID = 255
  private static let longestBundleID = 255
  private static let longestReceipt = 16 * 1024 * 1024

  package static func owner(
    _ values: [String?], asOf moment: Timestamp
  ) -> Result<ImportedOwner, RowFault> {
    func fault(_ code: String, _ reason: String) -> Result<ImportedOwner, RowFault> {
      .failure(RowFault(code, reason))
    }
    for (column, value) in zip(columns, values) where column.isNeeded && value == nil {
      return fault("missing_value", "\(column.names[0]) is missing.")
    }
    guard let environment = Environment(exactly: (values[0] ?? "").lowercased()) else {
      return fault(
        "unknown_environment",
        "The environment must be production or sandbox, not “\((values[0] ?? "").quotable)”.")
    }
    guard let id = values[1], isID(id) else {
      return fault(
        "invalid_original_transaction_id",
        "“\((values[1] ?? "").quotable)” is not an original transaction ID: "
          + "a spreadsheet may have reformatted it.")
    }
    guard let account = values[2], account.utf8.count <= Self.longestAccountID,
      !account.unicodeScalars.contains(where: { $0.properties.generalCategory == .control })
    else {
      return fault(
        "invalid_account_id",
        "An account ID has at most \(Self.longestAccountID) bytes and no control characters.")
    }
    if let transaction = values[3], !isID(transaction) {
      return fault("invalid_transaction_id", "“\(transaction.quotable)” is not a transaction ID.")
    }
    if let receipt = values[4], !receipt.isAlphanumeric(or: "+/=", upTo: longestReceipt) {
      return fault("invalid_receipt", "The receipt is not Base64 or exceeds 16 MiB.")
    }
    if let bundleID = values[5],
      bundleID.utf8.count > Self.longestBundleID
        || !bundleID.utf8.allSatisfy({ (0x21...0x7E).contains($0) })
    {
      return fault("invalid_bundle_id", "“\(bundleID.quotable)” is not a bundle ID.")
    }
    return .success(
      ImportedOwner(
        line: OriginalTransactionKey(environment, OriginalTransactionID(id)), accountID: account,
        asOf: moment, bundleID: values[5], transactionID: values[3].map { TransactionID($0) },
        receipt: values[4]))
  }

  /// Apple's IDs are digits today; letters and hyphens are accepted in case that changes.
  private static func isID(_ text: String) -> Bool {
    text.isAlphanumeric(or: "-", upTo: longestID)
  }
}

extension String {
  /// Whether it has ASCII letters, digits and `others` only, and 1 to `longest` of them.
  fileprivate func isAlphanumeric(or others: String, upTo longest: Int) -> Bool {
    (1...longest).contains(utf8.count)
      && utf8.allSatisfy { byte in
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "z"),
          UInt8(ascii: "A")...UInt8(ascii: "Z"):
          true
        default: others.utf8.contains(byte)
        }
      }
  }

  /// The first 40 characters of external text, on one line, for messages.
  package var quotable: String {
    let start = unicodeScalars.prefix(40).map { scalar in
      scalar.properties.isWhitespace || scalar.properties.generalCategory == .control
        ? " " : scalar
    }
    return String(String.UnicodeScalarView(start)) + (start.count < unicodeScalars.count ? "…" : "")
  }
}
