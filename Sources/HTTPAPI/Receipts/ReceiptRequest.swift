import Foundation
import Intake
import LedgerStorage
import Subscriptions

/// The body of a submission.
struct ReceiptRequest: Decodable {
  /// In characters of base64, white space included; the largest known are a few megabytes.
  static let maximumReceiptLength = 16 * 1024 * 1024

  private var accountID: String
  private var receiptData: String?
  private var signedTransactions: [String]?
  private var signedRenewalInfo: [String]?
  private var transactionID: String?
  private var orderID: String?
  private var restore: Bool?
  private var bundleID: String?

  enum CodingKeys: String, CodingKey {
    case accountID = "account_id"
    case receiptData = "receipt_data"
    case signedTransactions = "signed_transactions"
    case signedRenewalInfo = "signed_renewal_info"
    case transactionID = "transaction_id"
    case orderID = "order_id"
    case restore
    case bundleID = "bundle_id"
  }

  /// Makes a submission of it.
  ///
  /// - Throws: A ``Problem`` that names the field.
  func submission() throws -> SubmissionRequest {
    SubmissionRequest(
      accountID: try TextField.accountID.checked(accountID), payload: try checkedPayload(),
      transactionID: try transactionID.map {
        TransactionID(try TextField.transactionID.checked($0))
      },
      orderID: try orderID.map { try UUID(parsing: $0, field: "order_id") },
      isRestore: restore ?? false, bundleID: try bundleID.map(TextField.bundleID.checked))
  }

  /// One of the two kinds, and nothing of the other.
  private func checkedPayload() throws -> SubmissionPayload {
    if let signedTransactions {
      guard receiptData == nil else {
        throw Problem.invalid(
          "signed_transactions", "can't be sent beside `receipt_data`: send one of the two")
      }
      return try Self.signedData(signedTransactions, signedRenewalInfo ?? [])
    }
    guard signedRenewalInfo == nil else {
      throw Problem.invalid("signed_renewal_info", "goes only with `signed_transactions`")
    }
    guard let receiptData else {
      throw Problem.invalid("receipt_data", "is missing: send it, or `signed_transactions`")
    }
    return .receipt(try Self.checkedReceipt(receiptData))
  }

  private static func signedData(
    _ signedTransactions: [String], _ signedRenewalInfo: [String]
  ) throws -> SubmissionPayload {
    guard !signedTransactions.isEmpty else {
      throw Problem.invalid("signed_transactions", "must not be empty")
    }
    let transactions = try SignedDataField.transactions.checked(signedTransactions)
    let renewalInfo = try SignedDataField.renewalInfo.checked(signedRenewalInfo)
    let length = (transactions + renewalInfo).reduce(0) { $0 + $1.utf8.count }
    guard length <= SignedDataField.maximumTotalLength else {
      throw Problem.invalid(
        "signed_transactions",
        "may have up to \(SignedDataField.maximumTotalLength) characters in all, together with "
          + "`signed_renewal_info`")
    }
    return .signedData(transactions: transactions, renewalInfo: renewalInfo)
  }

  private static func checkedReceipt(_ text: String) throws -> String {
    var receiptData = SubmissionRequest.receiptData(in: text)
    receiptData.removeBase64Wrapping()
    guard !receiptData.isEmpty else { throw Problem.invalid("receipt_data", "must not be empty") }
    guard receiptData.utf8.count <= maximumReceiptLength else {
      throw Problem.invalid(
        "receipt_data", "may have up to \(maximumReceiptLength) characters")
    }
    guard !receiptData.utf8.contains(UInt8(ascii: " ")) else {
      throw Problem.invalid(
        "receipt_data", "has a space inside: `+` becomes one when it is sent as a form")
    }
    guard isBase64(receiptData) else {
      throw Problem.invalid("receipt_data", "must be base64, as the device has the receipt")
    }
    return receiptData
  }

  /// Whether a text has the characters of base64 and nothing else.
  ///
  /// Whether the bytes are a receipt is for Apple to say.
  private static func isBase64(_ text: String) -> Bool {
    var hasEnded = false
    var hasDigits = false
    for byte in text.utf8 {
      switch byte {
      case UInt8(ascii: "="): hasEnded = true
      case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "+"), UInt8(ascii: "/"):
        guard !hasEnded else { return false }
        hasDigits = true
      default: return false
      }
    }
    return hasDigits
  }
}

extension String {
  /// Removes what encoders put around base64 and between its lines, which Apple does not accept.
  fileprivate mutating func removeBase64Wrapping() {
    let space = UInt8(ascii: " ")
    guard utf8.contains(where: { $0 <= space }) else { return }
    let lineBreaks = Set("\r\n\t".utf8)
    let text = utf8.filter { !lineBreaks.contains($0) }.drop { $0 == space }
    let end = text.lastIndex { $0 != space }.map { $0 + 1 } ?? text.startIndex
    self = String(decoding: text[..<end], as: UTF8.self)
  }
}

/// A list of JWS that callers send, and what may stand in it.
struct SignedDataField: Sendable {
  /// More than an app has to send at once: StoreKit has one for each purchase that still counts.
  static let maximumCount = 1000
  /// In characters, of each, as the verifier has it.
  ///
  /// Apple's have some 6,000, most of them certificates.
  static let maximumLength = 256 * 1024
  /// In characters, of all lists together: as much as a receipt may have.
  static let maximumTotalLength = 16 * 1024 * 1024

  let name: String

  static let transactions = SignedDataField(name: "signed_transactions")
  static let renewalInfo = SignedDataField(name: "signed_renewal_info")

  /// Returns the list if it may stand in the field.
  ///
  /// Whether anything in it is a JWS, and whose, is for the verification to say.
  ///
  /// - Throws: A ``Problem`` that names the field, or the place in it.
  func checked(_ list: [String]) throws -> [String] {
    guard list.count <= Self.maximumCount else {
      throw Problem.invalid(name, "may have up to \(Self.maximumCount) entries")
    }
    for (index, jws) in list.enumerated() {
      let place = "\(name)[\(index)]"
      guard !jws.isEmpty else { throw Problem.invalid(place, "must not be empty") }
      guard jws.utf8.count <= Self.maximumLength else {
        throw Problem.invalid(place, "may have up to \(Self.maximumLength) characters")
      }
      guard jws.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else {
        throw Problem.invalid(
          place, "must be a JWS as StoreKit has it (`jwsRepresentation`), without spaces")
      }
    }
    return list
  }
}
