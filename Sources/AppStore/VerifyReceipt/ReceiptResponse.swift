import Foundation
import Subscriptions

/// Apple's response if it can be read, otherwise the verdict.
enum ReceiptReading {
  case answer(ReceiptResponse)
  case verdict(ReceiptVerdict)
}

extension ReceiptReading {
  /// Reads an HTTP response; the content type is not checked, only named if the body can't be read.
  init(_ response: AppStoreResponse, url: String, answeredAt: Timestamp) {
    switch response.status {
    case 200:
      do {
        self = .answer(try JSONDecoder().decode(ReceiptResponse.self, from: Data(response.body)))
      } catch {
        self = .verdict(.retry(ReceiptRetry(reason: Self.fault(of: response, error))))
      }
    case 300..<400, 401, 403, 404, 405, 407, 410:
      self = .verdict(
        .misconfigured(
          ReceiptMisconfiguration(
            reason: "\(url) returned HTTP \(response.status), which verifyReceipt never does: "
              + "check the URL and any proxy.")))
    default:
      let notBefore = RetryAfter.moment(response.header("Retry-After"), now: answeredAt)
      let meaning = response.status == 429 ? " (too many requests)" : ""
      self = .verdict(
        .retry(
          ReceiptRetry(
            reason: "Apple returned HTTP \(response.status)\(meaning) with \(response.contents).",
            notBefore: notBefore)))
    }
  }

  private static func fault(of response: AppStoreResponse, _ error: any Error) -> String {
    let first = response.body.first { ![0x20, 0x09, 0x0a, 0x0d].contains($0) }
    return switch error {
    case let fault as UnreadableField:
      "Apple's response has an unexpected JSON structure: \(fault)."
    case _ where first == nil:
      "Apple's response is empty."
    case _ where first != UInt8(ascii: "{"):
      "Apple returned \(response.contents) instead of a JSON object."
    default:
      "Apple's response is broken or incomplete JSON: \(response.contents)."
    }
  }
}

extension AppStoreResponse {
  fileprivate var contents: String {
    let type = header("Content-Type")?.prefix { $0 != ";" }.prefix(60)
    return "\(body.count) bytes of \(type.map(String.init) ?? "unknown type")"
  }
}

/// Apple's verifyReceipt response, in either of its formats.
///
/// See https://developer.apple.com/documentation/appstorereceipts/responsebody. The ``Exchange``
/// keeps all bytes, also of fields that are not read here.
struct ReceiptResponse: Decodable, Sendable {
  let status: Int
  /// `is-retryable`.
  let isRetryable: Bool?
  /// Apple's name of the environment.
  let environment: String?
  /// Nil unless `status` means that the receipt is included.
  let contents: Contents?

  struct Contents: Decodable, Sendable {
    let receipts: ResponseList<ReceiptBody>
    let latestReceiptInfo: ResponseList<ReceiptItem>?
    let latestExpiredReceiptInfo: ResponseList<ReceiptItem>?
    let pendingRenewalInfo: ResponseList<PendingRenewal>?
    /// The renewal at the top level of the response to an iOS 6 style receipt.
    let renewal: PendingRenewal?
    let renewalFault: String?
    /// The cancellation at the top level.
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

  /// The status in a response's bytes; nil if they are not a response.
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

extension ReceiptResponse.Contents {
  init(from decoder: any Decoder) throws {
    let fields = try decoder.container(keyedBy: AnswerKey.self)
    let receipts = try fields.decodeIfPresent(ResponseList<ReceiptBody>.self, forKey: "receipt")
    guard let receipts, !receipts.elements.isEmpty else {
      let fault = receipts?.faults.first.map { "can't be read: \($0.reason)" }
      throw UnreadableField("receipt", fault ?? "is missing")
    }
    self.receipts = receipts
    latestReceiptInfo = try fields.decodeIfPresent(
      ResponseList<ReceiptItem>.self, forKey: "latest_receipt_info")
    latestExpiredReceiptInfo = try fields.decodeIfPresent(
      ResponseList<ReceiptItem>.self, forKey: "latest_expired_receipt_info")
    pendingRenewalInfo = try fields.decodeIfPresent(
      ResponseList<PendingRenewal>.self, forKey: "pending_renewal_info")
    do {
      (renewal, renewalFault) = (try PendingRenewal(from: decoder), nil)
    } catch let fault as UnreadableField {
      (renewal, renewalFault) = (nil, fault.description)
    }
    cancellationDate = try fields.moment("cancellation_date")
    cancellationReason = fields.reason("cancellation_reason")
  }

  /// The bundle IDs named in the response: one, except in tests.
  var bundleIDs: Set<String> {
    let items =
      (latestReceiptInfo?.elements ?? []) + (latestExpiredReceiptInfo?.elements ?? [])
    return Set(receipts.elements.compactMap(\.bundleID) + items.compactMap(\.bundleID))
  }
}

/// The field `receipt`: an app receipt with its list `in_app` or, for iOS 6 style receipts, a
/// single transaction.
struct ReceiptBody: Decodable, Sendable {
  /// `bundle_id` or `bid`; empty if one is empty and the other missing.
  let bundleID: String?
  let requestDate: Timestamp?
  let creationDate: Timestamp?
  let inApp: ResponseList<ReceiptItem>?
  /// The receipt itself, if it is a transaction.
  let transaction: ReceiptItem?
  /// Why a receipt that looks like a transaction can't be read.
  let transactionFault: EntryFault?

  init(from decoder: any Decoder) throws {
    let fields = try decoder.container(keyedBy: AnswerKey.self)
    let isEmpty = ["bundle_id", "bid"].contains {
      (try? fields.decodeIfPresent(String.self, forKey: $0)) == ""
    }
    bundleID =
      try fields.identifier("bundle_id") ?? fields.identifier("bid") ?? (isEmpty ? "" : nil)
    requestDate = try? fields.moment("request_date")
    creationDate = try? fields.moment("receipt_creation_date")
    inApp = try fields.decodeIfPresent(ResponseList<ReceiptItem>.self, forKey: "in_app")
    guard inApp == nil, fields.contains("product_id") else {
      (transaction, transactionFault) = (nil, nil)
      return
    }
    do {
      (transaction, transactionFault) = (try ReceiptItem(from: decoder), nil)
    } catch let fault as UnreadableField {
      transaction = nil
      transactionFault = EntryFault(
        reason: fault.description, purchaseDate: try? fields.moment("purchase_date"))
    }
  }
}

/// A list of which unreadable entries are set aside with the reason; Apple sends some lists with
/// one entry as a single object.
struct ResponseList<Element: Decodable & Sendable>: Decodable, Sendable {
  private(set) var elements: [Element] = []
  private(set) var faults: [EntryFault] = []

  /// Fails for a value that is neither an array nor an object.
  init(from decoder: any Decoder) throws {
    guard var list = try? decoder.unkeyedContainer() else {
      if (try? decoder.container(keyedBy: AnswerKey.self)) != nil {
        read({ try Element(from: decoder) }, orElse: { UnreadEntry(from: decoder) })
        return
      }
      let value = try decoder.singleValueContainer()
      if value.decodeNil() || (try? value.decode(String.self)) == "" { return }
      let name = AnswerKey(stringValue: decoder.codingPath.last?.stringValue ?? "answer")
      throw UnreadableField(name, "is neither an array nor an object")
    }
    while !list.isAtEnd {
      if try list.decodeNil() {
        faults.append(EntryFault(reason: "an entry is null"))
        continue
      }
      // A failed entry remains the next one and must be skipped.
      read({ try list.decode(Element.self) }, orElse: { try list.decode(UnreadEntry.self) })
    }
  }

  private mutating func read(
    _ element: () throws -> Element, orElse skip: () throws -> UnreadEntry
  ) {
    do {
      elements.append(try element())
    } catch {
      let fault = (error as? UnreadableField)?.description ?? "an entry is not an object"
      faults.append(EntryFault(reason: fault, purchaseDate: (try? skip())?.purchaseDate))
    }
  }
}

struct EntryFault: Hashable, Sendable {
  var reason: String
  /// Nil if it can't be read either.
  var purchaseDate: Timestamp?
}

/// Decodes any JSON value, and from it only the date of an entry that can't be read.
private struct UnreadEntry: Decodable {
  let purchaseDate: Timestamp?

  init(from decoder: any Decoder) {
    purchaseDate = try? decoder.container(keyedBy: AnswerKey.self).moment("purchase_date")
  }
}
