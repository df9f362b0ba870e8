import Foundation
import Subscriptions

/// Apple's answer to verifyReceipt, in either of its shapes.
///
/// See https://developer.apple.com/documentation/appstorereceipts/responsebody. What is not read
/// here is not lost: the exchange keeps the answer byte by byte.
struct ReceiptAnswer: Decodable, Sendable {
  let status: Int
  /// `is-retryable`.
  let isRetryable: Bool?
  /// `environment`, as Apple writes it.
  let environment: String?
  /// The rest; nil unless `status` says that the receipt is in it.
  let contents: Contents?

  struct Contents: Decodable, Sendable {
    let receipts: AnswerList<ReceiptBody>
    let latestReceiptInfo: AnswerList<ReceiptItem>?
    let latestExpiredReceiptInfo: AnswerList<ReceiptItem>?
    let pendingRenewalInfo: AnswerList<PendingRenewal>?
    /// What an answer to an iOS 6 style receipt says of the renewal, at its top level.
    let renewal: PendingRenewal?
    let renewalFault: String?
    /// The same for the cancellation.
    let cancellationDate: Timestamp?
    let cancellationReason: String?
  }

  init(from decoder: any Decoder) throws {
    let fields = try decoder.container(keyedBy: AnswerKey.self)
    status = try fields.status
    isRetryable = try fields.flag("is-retryable")
    environment = try fields.text("environment")
    let isVerified = VerifyReceiptStatus(status, isRetryable: isRetryable) == .verified
    contents = isVerified ? try Contents(from: decoder) : nil
  }

  /// The status in an answer's bytes; nil if they are no answer.
  static func status(of body: [UInt8]) -> Int? {
    struct Status: Decodable {
      let status: Int

      init(from decoder: any Decoder) throws {
        status = try decoder.container(keyedBy: AnswerKey.self).status
      }
    }
    return try? JSONDecoder().decode(Status.self, from: Data(body)).status
  }
}

extension KeyedDecodingContainer<AnswerKey> {
  fileprivate var status: Int {
    get throws {
      guard let status = try integer("status", in: Int(Int32.min)...Int(Int32.max)) else {
        throw UnreadableField("status", "is missing")
      }
      return status
    }
  }
}

extension ReceiptAnswer.Contents {
  init(from decoder: any Decoder) throws {
    let fields = try decoder.container(keyedBy: AnswerKey.self)
    let receipts = try fields.decodeIfPresent(AnswerList<ReceiptBody>.self, forKey: "receipt")
    guard let receipts, !receipts.elements.isEmpty else {
      let fault = receipts?.faults.first.map { "can't be read: \($0.reason)" }
      throw UnreadableField("receipt", fault ?? "is missing")
    }
    self.receipts = receipts
    latestReceiptInfo = try fields.decodeIfPresent(
      AnswerList<ReceiptItem>.self, forKey: "latest_receipt_info")
    latestExpiredReceiptInfo = try fields.decodeIfPresent(
      AnswerList<ReceiptItem>.self, forKey: "latest_expired_receipt_info")
    pendingRenewalInfo = try fields.decodeIfPresent(
      AnswerList<PendingRenewal>.self, forKey: "pending_renewal_info")
    do {
      (renewal, renewalFault) = (try PendingRenewal(from: decoder), nil)
    } catch let fault as UnreadableField {
      (renewal, renewalFault) = (nil, fault.description)
    }
    cancellationDate = try fields.moment("cancellation_date")
    cancellationReason = fields.reason("cancellation_reason")
  }

  /// Each bundle id that the answer names: one, unless it is a test's.
  var bundleIDs: Set<String> {
    let items =
      (latestReceiptInfo?.elements ?? []) + (latestExpiredReceiptInfo?.elements ?? [])
    return Set(receipts.elements.compactMap(\.bundleID) + items.compactMap(\.bundleID))
  }
}
