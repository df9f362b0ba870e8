import JSONText
import Subscriptions

/// Apple's response if it can be read, otherwise the verdict.
enum ReceiptReading {
  case answer(ReceiptResponse)
  case verdict(ReceiptVerdict)

  /// Reads an HTTP response; the content type is not checked, only named if the body can't be read.
  init(_ response: AppStoreResponse, url: String, answeredAt: Timestamp) {
    switch response.status {
    case 200:
      do {
        self = .answer(try ReceiptResponse(JSONValue(parsingResponse: response.body)))
      } catch {
        self = .verdict(.retry(ReceiptRetry(reason: Self.fault(of: response, error))))
      }
    case 300..<400, 401, 403, 404, 405, 407, 410:
      self = .verdict(
        .misconfigured(
          reason: "\(url) returned HTTP \(response.status), which verifyReceipt never does: "
            + "check the URL and any proxy."))
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
    case _ where first == nil: "Apple's response is empty."
    case _ where first != UInt8(ascii: "{"):
      "Apple returned \(response.contents) instead of a JSON object."
    default: "Apple's response is broken or incomplete JSON: \(response.contents)."
    }
  }
}

extension AppStoreResponse {
  fileprivate var contents: String {
    let type = header("Content-Type")?.prefix { $0 != ";" }.prefix(60)
    return "\(body.count) bytes of \(type.map(String.init) ?? "unknown type")"
  }
}

/// Apple's verifyReceipt response, in either of its formats; the ``Exchange`` keeps all bytes.
///
/// See https://developer.apple.com/documentation/appstorereceipts/responsebody.
struct ReceiptResponse: Sendable {
  let status: Int
  /// `is-retryable`, which only comes with 21100 to 21199.
  let isRetryable: Bool?
  let environment: String?
  /// Nil unless `status` means that the receipt is included.
  let contents: Contents?

  struct Contents: Sendable {
    let receipts: ResponseList<ReceiptBody>
    let latestReceiptInfo: ResponseList<ReceiptItem>?
    let latestExpiredReceiptInfo: ResponseList<ReceiptItem>?
    let pendingRenewalInfo: ResponseList<PendingRenewal>?
    /// The renewal at the top level of the response to an iOS 6 style receipt.
    let renewal: PendingRenewal?
    let renewalFault: String?
    let cancellationDate: Timestamp?
    let cancellationReason: String?
  }

  init(_ fields: JSONValue) throws {
    guard let status = try fields.receiptStatus else {
      throw UnreadableField("status", "is missing")
    }
    self.status = status
    isRetryable = try fields.flag("is-retryable")
    environment = try fields.text("environment")
    // 21006: valid, but the subscription has expired; used for old receipts.
    contents = [0, 21006].contains(status) ? try Contents(fields) : nil
  }

  /// The status in a response's bytes; nil if they are not a response.
  static func status(of body: [UInt8]) -> Int? {
    (try? JSONValue(parsingResponse: body)).flatMap { try? $0.receiptStatus }
  }
}

extension JSONValue {
  fileprivate var receiptStatus: Int? {
    get throws { try integer("status", in: Int(Int32.min)...Int(Int32.max)) }
  }

  fileprivate func list<Element>(
    _ key: String, of read: (JSONValue) throws -> Element
  ) throws -> ResponseList<Element>? {
    guard let json = self[key], json != .null else { return nil }
    return try ResponseList(json, key, read)
  }
}

extension ReceiptResponse.Contents {
  init(_ fields: JSONValue) throws {
    let receipts = try fields.list("receipt", of: ReceiptBody.init)
    guard let receipts, !receipts.elements.isEmpty else {
      let fault = receipts?.faults.first.map { "can't be read: \($0.reason)" }
      throw UnreadableField("receipt", fault ?? "is missing")
    }
    self.receipts = receipts
    latestReceiptInfo = try fields.list("latest_receipt_info", of: ReceiptItem.init)
    latestExpiredReceiptInfo = try fields.list("latest_expired_receipt_info", of: ReceiptItem.init)
    pendingRenewalInfo = try fields.list("pending_renewal_info", of: PendingRenewal.init)
    do {
      (renewal, renewalFault) = (try PendingRenewal(fields), nil)
    } catch {
      (renewal, renewalFault) = (nil, "\(error)")
    }
    cancellationDate = try fields.moment("cancellation_date")
    cancellationReason = fields.reason("cancellation_reason")
  }

  /// The bundle IDs named in the response: one, except in tests.
  var bundleIDs: Set<String> {
    let items = (latestReceiptInfo?.elements ?? []) + (latestExpiredReceiptInfo?.elements ?? [])
    return Set(receipts.elements.compactMap(\.bundleID) + items.compactMap(\.bundleID))
  }
}

/// The field `receipt`: an app receipt with a list `in_app`, or in iOS 6 style a transaction.
struct ReceiptBody: Sendable {
  /// `bundle_id` or `bid`; empty if one is empty and the other missing.
  let bundleID: String?
  let requestDate: Timestamp?
  let creationDate: Timestamp?
  let inApp: ResponseList<ReceiptItem>?
  let transaction: ReceiptItem?
  /// Why a receipt that looks like a transaction can't be read.
  let transactionFault: UnreadableRecord?

  init(_ fields: JSONValue) throws {
    let isEmpty = ["bundle_id", "bid"].contains { fields[$0] == "" }
    bundleID =
      try fields.identifier("bundle_id") ?? fields.identifier("bid") ?? (isEmpty ? "" : nil)
    requestDate = try? fields.moment("request_date")
    creationDate = try? fields.moment("receipt_creation_date")
    inApp = try fields.list("in_app", of: ReceiptItem.init)
    guard inApp == nil, fields["product_id"] != nil else {
      (transaction, transactionFault) = (nil, nil)
      return
    }
    do {
      (transaction, transactionFault) = (try ReceiptItem(fields), nil)
    } catch {
      (transaction, transactionFault) = (nil, UnreadableRecord("receipt", fields, error))
    }
  }
}

/// A list whose unreadable entries are set aside; Apple sends some of one entry as an object.
struct ResponseList<Element: Sendable>: Sendable {
  private(set) var elements: [Element] = []
  private(set) var faults: [UnreadableRecord] = []

  /// Fails for a value that is neither an array nor an object.
  init(_ json: JSONValue, _ name: String, _ read: (JSONValue) throws -> Element) throws {
    let entries: [JSONValue]
    switch json {
    case .array(let elements): entries = elements
    case .object: entries = [json]
    case "": entries = []
    default: throw UnreadableField(name, "is neither an array nor an object")
    }
    for entry in entries {
      do {
        guard case .object = entry else {
          throw UnreadableField("an entry", entry == .null ? "is null" : "is not an object")
        }
        elements.append(try read(entry))
      } catch {
        faults.append(UnreadableRecord(name, entry, error))
      }
    }
  }
}

extension UnreadableRecord {
  fileprivate init(_ list: String, _ entry: JSONValue, _ error: any Error) {
    self.init(list: list, reason: "\(error)", purchaseDate: try? entry.moment("purchase_date"))
  }
}
