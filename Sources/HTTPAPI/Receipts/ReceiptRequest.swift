import Foundation
import Intake
import LedgerStorage
import Subscriptions

struct ReceiptRequest {
  /// In characters of base64; the largest known receipts have a few megabytes.
  static let maximumReceiptLength = 16 * 1024 * 1024

  let body: RequestBody

  func submission() throws -> SubmissionRequest {
    SubmissionRequest(
      accountID: try body.required(.accountID), payload: try checkedPayload(),
      transactionID: try body.text(.transactionID).map { TransactionID($0) },
      orderID: try body.uuid("order_id"), isRestore: try body.flag("restore") ?? false,
      bundleID: try body.text(.bundleID))
  }

  private func checkedPayload() throws -> SubmissionPayload {
    let receiptData = try body.text("receipt_data")
    let transactions = try SignedDataField.transactions.list(in: body)
    let renewalInfo = try SignedDataField.renewalInfo.list(in: body)
    guard let transactions else {
      guard renewalInfo == nil else {
        throw Problem.invalid("signed_renewal_info", "needs `signed_transactions`")
      }
      guard let receiptData else {
        throw Problem.invalid("receipt_data", "is missing: send it or `signed_transactions`")
      }
      return .receipt(try Self.checkedReceipt(receiptData))
    }
    let fault: String? =
      if receiptData != nil {
        "can't be combined with `receipt_data`: send one of the two"
      } else if transactions.isEmpty {
        "must not be empty"
      } else if (transactions + (renewalInfo ?? [])).reduce(0, { $0 + $1.utf8.count })
        > SignedDataField.maximumTotalLength
      {
        "must have at most \(SignedDataField.maximumTotalLength) characters in total, including "
          + "`signed_renewal_info`"
      } else { nil }
    if let fault { throw Problem.invalid("signed_transactions", fault) }
    return .signedData(transactions: transactions, renewalInfo: renewalInfo ?? [])
  }

  private static func checkedReceipt(_ text: String) throws -> String {
    var receiptData = SubmissionRequest.receiptData(in: text)
    receiptData.removeBase64Wrapping()
    let fault: String? =
      if receiptData.isEmpty {
        "must not be empty"
      } else if receiptData.utf8.count > maximumReceiptLength {
        "must have at most \(maximumReceiptLength) characters"
      } else if receiptData.utf8.contains(UInt8(ascii: " ")) {
        "contains a space: form encoding turns `+` into a space"
      } else if !isBase64(receiptData) {
        "must be a receipt in standard base64, with + and /; a JWS belongs in `signed_transactions`"
      } else { nil }
    if let fault { throw Problem.invalid("receipt_data", fault) }
    return receiptData
  }

  private static func isBase64(_ text: String) -> Bool {
    let padding = text.utf8.drop { byte in
      switch byte {
      case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "+"), UInt8(ascii: "/"):
        true
      default: false
      }
    }
    return padding.startIndex > text.startIndex
      && padding.allSatisfy { $0 == UInt8(ascii: "=") }
  }
}

extension String {
  /// Removes line breaks, tabs and surrounding spaces, which Apple does not accept.
  fileprivate mutating func removeBase64Wrapping() {
    let space = UInt8(ascii: " ")
    guard utf8.contains(where: { $0 <= space }) else { return }
    let lineBreaks = Set("\r\n\t".utf8)
    let text = utf8.filter { !lineBreaks.contains($0) }.drop { $0 == space }
    let end = text.lastIndex { $0 != space }.map { $0 + 1 } ?? text.startIndex
    self = String(decoding: text[..<end], as: UTF8.self)
  }
}

/// A field with a list of JWS, and its limits.
struct SignedDataField: Sendable {
  /// More than any app sends at once: StoreKit has one for each current purchase.
  static let maximumCount = 1000
  /// In characters of each JWS, as in the verifier; Apple's have about 6,000.
  static let maximumLength = 256 * 1024
  /// In characters of all lists together, the same as for a receipt.
  static let maximumTotalLength = 16 * 1024 * 1024

  let name: String

  static let transactions = SignedDataField(name: "signed_transactions")
  static let renewalInfo = SignedDataField(name: "signed_renewal_info")

  /// The field's list, if it is present; the verifier checks the JWS themselves.
  func list(in body: RequestBody) throws -> [String]? {
    guard let list = try body.texts(name) else { return nil }
    guard list.count <= Self.maximumCount else {
      throw Problem.invalid(name, "must have at most \(Self.maximumCount) elements")
    }
    for (index, jws) in list.enumerated() {
      let place = "\(name)[\(index)]"
      guard !jws.isEmpty else { throw Problem.invalid(place, "must not be empty") }
      guard jws.utf8.count <= Self.maximumLength else {
        throw Problem.invalid(place, "must have at most \(Self.maximumLength) characters")
      }
      guard jws.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else {
        throw Problem.invalid(
          place, "must be a JWS as in StoreKit's `jwsRepresentation`, without spaces")
      }
    }
    return list
  }
}
