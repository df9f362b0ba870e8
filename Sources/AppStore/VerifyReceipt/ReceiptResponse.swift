import Foundation
import Subscriptions

/// Apple's answer as far as it can be read, or the verdict where it can't.
enum ReadAnswer {
  case answer(ReceiptAnswer)
  case verdict(ReceiptVerdict)
}

extension ReadAnswer {
  /// Reads what came back over HTTP.
  ///
  /// The content type decides nothing: an answer that is one is believed under any, and the type is
  /// named where none could be read.
  init(_ response: AppStoreResponse, url: String, answeredAt: Timestamp) {
    switch response.status {
    case 200: self.init(body: response)
    case 300..<400, 401, 403, 404, 405, 407, 410:
      self = .verdict(
        .misconfigured(
          ReceiptMisconfiguration(
            reason: "\(url) answers HTTP \(response.status), as no verifyReceipt does: check the "
              + "URL, and what stands between.")))
    default:
      let notBefore = RetryAfter.moment(response.header("Retry-After"), now: answeredAt)
      let meaning = response.status == 429 ? " (too many requests)" : ""
      self = .verdict(
        .retry(
          ReceiptRetry(
            reason: "Apple answered HTTP \(response.status)\(meaning) with \(response.contents).",
            notBefore: notBefore)))
    }
  }

  private init(body response: AppStoreResponse) {
    do {
      self = .answer(try JSONDecoder().decode(ReceiptAnswer.self, from: Data(response.body)))
    } catch {
      self = .verdict(.retry(ReceiptRetry(reason: Self.fault(of: response, error))))
    }
  }

  private static func fault(of response: AppStoreResponse, _ error: any Error) -> String {
    let first = response.body.first { ![0x20, 0x09, 0x0a, 0x0d].contains($0) }
    return switch error {
    case let fault as UnreadableField:
      "Apple's answer is JSON of another shape: \(fault)."
    case _ where first == nil:
      "Apple's answer is empty."
    case _ where first != UInt8(ascii: "{"):
      "Apple answered \(response.contents) instead of a JSON object."
    default:
      "Apple's answer is broken or incomplete JSON: \(response.contents)."
    }
  }
}

extension AppStoreResponse {
  /// What the answer is made of, for people.
  fileprivate var contents: String {
    let type = header("Content-Type")?.prefix { $0 != ";" }.prefix(60)
    return "\(body.count) bytes of \(type.map(String.init) ?? "unnamed type")"
  }
}

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

/// The field `receipt`: an app receipt with its list `in_app`, or, in answers to iOS 6 style
/// receipts, one flat transaction.
struct ReceiptBody: Decodable, Sendable {
  /// `bundle_id` or `bid`; empty if one of them is, and the other is not given.
  let bundleID: String?
  let requestDate: Timestamp?
  let creationDate: Timestamp?
  let inApp: AnswerList<ReceiptItem>?
  /// The receipt itself as a transaction, where it is one.
  let transaction: ReceiptItem?
  /// Why it is none, though it looks like one.
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
    inApp = try fields.decodeIfPresent(AnswerList<ReceiptItem>.self, forKey: "in_app")
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

/// A list of Apple's, read as far as it can be.
///
/// Apple writes some lists as a single object where there is one entry. An entry that cannot be
/// read is set aside with the reason and does not cost the others.
struct AnswerList<Element: Decodable & Sendable>: Decodable, Sendable {
  private(set) var elements: [Element] = []
  private(set) var faults: [EntryFault] = []

  /// - Throws: `UnreadableField` for a value that is neither a list nor an object, such as a text.
  init(from decoder: any Decoder) throws {
    guard var list = try? decoder.unkeyedContainer() else {
      if (try? decoder.container(keyedBy: AnswerKey.self)) != nil {
        read({ try Element(from: decoder) }, orElse: { UnreadEntry(from: decoder) })
        return
      }
      let value = try decoder.singleValueContainer()
      if value.decodeNil() || (try? value.decode(String.self)) == "" { return }
      let name = AnswerKey(stringValue: decoder.codingPath.last?.stringValue ?? "answer")
      throw UnreadableField(name, "is neither a list nor an object")
    }
    while !list.isAtEnd {
      if try list.decodeNil() {
        faults.append(EntryFault(reason: "an entry is null"))
        continue
      }
      // A failed entry stays the next one: it has to be stepped over.
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

/// The reason why an entry could not be read.
struct EntryFault: Hashable, Sendable {
  var reason: String
  /// The entry's `purchase_date`; nil if that can't be read either.
  var purchaseDate: Timestamp?
}

/// Any JSON value, with the only part of an entry that is wanted where the rest can't be read.
private struct UnreadEntry: Decodable {
  let purchaseDate: Timestamp?

  init(from decoder: any Decoder) {
    purchaseDate = try? decoder.container(keyedBy: AnswerKey.self).moment("purchase_date")
  }
}
