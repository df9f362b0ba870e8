package import Subscriptions

/// What a submitted receipt says, of whichever kind it is; nobody has verified it.
///
/// It may be used to learn which transactions to ask Apple about, and for nothing else.
package enum ReceiptForm: Hashable, Sendable {
  /// Since iOS 7.
  case app(AppReceipt)
  /// Until iOS 6.
  case transaction(TransactionReceipt)

  /// Reads a receipt as it was submitted, base64.
  ///
  /// - Throws: ``LocalReceiptRefusal`` for what is no receipt of either kind.
  package init(_ receiptData: String) throws {
    let bytes = try Self.bytes(of: receiptData)
    switch try Self.kind(of: bytes) {
    case .app:
      let container = try ReceiptContainer(parsing: bytes[...])
      do {
        self = .app(try AppReceipt(parsing: container.content))
      } catch let fault as ReceiptFault {
        throw LocalReceiptRefusal(.malformed, "The receipt can't be read: \(fault).")
      }
    case .transaction:
      guard let receipt = TransactionReceipt(parsing: bytes) else {
        throw LocalReceiptRefusal(.notAReceipt, "What was sent is no property list of a receipt.")
      }
      self = .transaction(receipt)
    }
  }

  /// The transactions to ask Apple about, each line once, the newest first.
  ///
  /// Original transaction ids where the receipt has them: one is enough to get all of its line.
  package var transactionIDs: [TransactionID] {
    switch self {
    case .transaction(let receipt):
      return [receipt.originalTransactionID ?? receipt.transactionID].compactMap { $0 }
        .map { TransactionID($0) }
    case .app(let receipt):
      var newest: [TransactionID: Timestamp] = [:]
      for purchase in receipt.inApp {
        let line = TransactionID(purchase.line)
        newest[line] = max(newest[line] ?? purchase.purchaseDate, purchase.purchaseDate)
      }
      return newest.map { (id: $0.key, date: $0.value) }
        .sorted { ($1.date, $1.id) < ($0.date, $0.id) }.map(\.id)
    }
  }

  /// The environment that it names: where to ask first.
  package var environment: Environment? {
    switch self {
    case .app(let receipt): receipt.environment
    case .transaction(let receipt): receipt.environment
    }
  }

  package var bundleID: String? {
    switch self {
    case .app(let receipt): receipt.bundleID
    case .transaction(let receipt): receipt.bundleID
    }
  }

  enum Kind { case app, transaction }

  /// What the first byte makes of it: ASN.1's SEQUENCE, or a property list's brace.
  static func kind(of bytes: [UInt8]) throws(LocalReceiptRefusal) -> Kind {
    switch bytes.first(where: { !OldStylePropertyList.isSpace($0) }) {
    case 0x30: return .app
    case UInt8(ascii: "{"): return .transaction
    default: throw LocalReceiptRefusal(.notAReceipt, "What was sent is no receipt of any kind.")
    }
  }

  /// The bytes behind base64, as devices send it.
  static func bytes(of receiptData: String) throws(LocalReceiptRefusal) -> [UInt8] {
    // Four characters for three bytes.
    guard receiptData.utf8.count <= ReceiptBER.largestReceipt / 3 * 4 else {
      throw LocalReceiptRefusal(.tooLarge, "The receipt is too large.")
    }
    guard !receiptData.isEmpty, let bytes = Base64.decode(standard: receiptData.utf8) else {
      throw LocalReceiptRefusal(.notBase64, "The receipt is not base64.")
    }
    return bytes
  }
}
