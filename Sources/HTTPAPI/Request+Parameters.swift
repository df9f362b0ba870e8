package import Foundation
import HTTPTypes
import Hummingbird
package import HummingbirdCore
import JSONText
package import NIOCore
package import Subscriptions

/// Limits of request bodies, in bytes.
package enum BodyLimit {
  /// A receipt or signed data of 16 MB, with room for escapes and other fields.
  package static let receipt = 20 * 1024 * 1024
  /// A thousand account IDs of 255 characters of up to four bytes, with room to spare.
  package static let batch = 2 * 1024 * 1024
  /// A key and a path; small because it needs no key.
  package static let login = 16 * 1024
  /// A few short fields.
  package static let small = 256 * 1024
}

extension Request {
  package func json(upTo limit: Int = BodyLimit.small) async throws -> RequestBody {
    try RequestBody(try await collectJSON(upTo: limit))
  }

  func collectJSON(upTo limit: Int = BodyLimit.small) async throws -> ByteBuffer {
    // A body without a Content-Type is taken for JSON (RFC 9110, section 8.3).
    if let mediaType, mediaType != "application/json", !mediaType.rawValue.hasSuffix("+json") {
      throw Problem(
        .unsupportedMediaType, "Send JSON, as `Content-Type: application/json`.")
    }
    let encoding = headers[.contentEncoding] ?? "identity"
    guard encoding.isASCII, ExactText(encoding.lowercased()) == "identity" else {
      throw Problem(.unsupportedMediaType, "Send the body without a `Content-Encoding`.")
    }
    return try await wholeBody(upTo: limit)
  }

  /// Reads the body within the shared ``BodyBudget``.
  package func wholeBody(upTo limit: Int) async throws -> ByteBuffer {
    if let length = headers[.contentLength].flatMap({ Int($0) }), length > limit {
      throw Problem.contentTooLarge(limit: limit)
    }
    var whole = ByteBuffer()
    for try await part in body {
      guard whole.readableBytes + part.readableBytes <= limit else {
        throw Problem.contentTooLarge(limit: limit)
      }
      try await BodyShare.current?.take(part.readableBytes)
      whole.writeImmutableBuffer(part)
    }
    BodyShare.current?.keep()
    return whole
  }

  /// The media type in lower case, without parameters; nil if there is none, empty if not ASCII.
  package var mediaType: ExactText? {
    headers[.contentType].map { field in
      guard field.isASCII else { return "" }
      return ExactText(field.prefix { $0 != ";" }.lowercased().filter { !$0.isWhitespace })
    }
  }
}

extension APIContext {
  package func parameter(_ field: TextField) throws -> String {
    try field.checked(try parameter(field.name))
  }

  package func uuidParameter(_ name: String) throws -> UUID {
    try UUID(parsing: try parameter(name), field: name)
  }

  private func parameter(_ name: String) throws -> String {
    let text = try parameters.require(name)
    guard text.utf8.contains(UInt8(ascii: "%")) else { return text }
    guard let decoded = String(percentEncoded: text.utf8) else {
      throw Problem.invalid(name, "is not percent-encoded UTF-8")
    }
    return decoded
  }
}

/// The named values of a request: the fields of its query or form, or the members of its body.
package protocol RequestFields {
  func text(_ name: String) throws -> String?
  func integer(_ name: String, in range: ClosedRange<Int>) throws -> Int?
  func missing(_ name: String) -> Problem
}

extension RequestFields {
  package func missing(_ name: String) -> Problem { .invalid(name, "is missing") }

  package func text(_ field: TextField) throws -> String? {
    try text(field.name).map(field.checked)
  }

  package func required(_ field: TextField) throws -> String {
    guard let text = try text(field) else { throw missing(field.name) }
    return text
  }

  package func moment(_ name: String) throws -> Timestamp? {
    try text(name).map { text in
      guard let moment = Timestamp(rfc3339: text) else {
        throw Problem.invalid(name, "must be an RFC 3339 time, such as 2026-11-21T09:30:00Z")
      }
      return moment
    }
  }

  package func uuid(_ name: String) throws -> UUID? {
    try text(name).map { try UUID(parsing: $0, field: name) }
  }

  package func integer(_ name: String, in range: ClosedRange<Int>) throws -> Int? {
    try text(name).map { try Int($0).within(range, of: name) }
  }

  package func environment() throws -> Subscriptions.Environment? {
    try text("environment").map { text in
      guard let environment = Subscriptions.Environment(exactly: text) else {
        throw Problem.invalid("environment", "must be production or sandbox")
      }
      return environment
    }
  }
}

extension Request {
  package var query: EncodedFields { EncodedFields(uri.query ?? "", .query) }
}

extension EncodedFields: RequestFields {
  package func text(_ name: String) -> String? { self[name]?.rawValue }

  package func flag(_ name: String) throws -> Bool? {
    try self[name].map { text in
      switch text {
      case "true": true
      case "false": false
      default: throw Problem.invalid(name, "must be true or false")
      }
    }
  }
}

/// The JSON object in the body of a request; unknown members are ignored.
package struct RequestBody: RequestFields {
  private let json: JSONValue

  init(_ buffer: ByteBuffer) throws {
    guard buffer.readableBytes > 0 else {
      throw Problem(.invalidRequest, "The body is empty: send a JSON object.")
    }
    json = try JSONValue(parsing: buffer.readableBytesView)
    guard case .object = json else {
      throw Problem(.invalidRequest, "The body must be a JSON object.")
    }
  }

  init(_ object: JSONValue) { json = object }

  /// A member; `.null` if it is null.
  subscript(name: String) -> JSONValue? { json[name] }

  package func missing(_ name: String) -> Problem {
    .invalid(name, json[name] == nil ? "is missing" : "must not be null")
  }

  /// Whether the body has a member, which may be null.
  func names(_ field: TextField) -> Bool { self[field.name] != nil }

  func isWithout(_ name: String) -> Bool { json[name] ?? .null == .null }

  func required<Value>(_ name: String, _ value: Value?) throws -> Value {
    guard let value else { throw missing(name) }
    return value
  }

  package func text(_ name: String) throws -> String? { try member(name, "a string", \.string) }

  func flag(_ name: String) throws -> Bool? { try member(name, "true or false", \.bool) }

  func integer(_ name: String) throws -> Int64? {
    try member(name, "a whole number") { json in
      if case .number(let number) = json { Int64(exactly: number) } else { json.integer }
    }
  }

  package func integer(_ name: String, in range: ClosedRange<Int>) throws -> Int? {
    try integer(name).map { try Int(exactly: $0).within(range, of: name) }
  }

  func texts(_ name: String) throws -> [String]? {
    try member(name, "an array", \.array)?.enumerated().map { index, element in
      guard let text = element.string else {
        throw Problem.invalid(
          "\(name)[\(index)]", element == .null ? "must not be null" : "must be a string")
      }
      return text
    }
  }

  private func member<Value>(
    _ name: String, _ type: String, _ value: (JSONValue) -> Value?
  ) throws -> Value? {
    guard let json = json[name], json != .null else { return nil }
    guard let value = value(json) else { throw Problem.invalid(name, "must be \(type)") }
    return value
  }
}

extension Int? {
  fileprivate func within(_ range: ClosedRange<Int>, of name: String) throws -> Int {
    guard let self, range.contains(self) else {
      throw Problem.invalid(
        name, "must be a number from \(range.lowerBound) to \(range.upperBound)")
    }
    return self
  }
}

extension UUID {
  package init(parsing text: String, field: String) throws {
    guard let uuid = UUID(uuidString: text) else { throw Problem.invalid(field, "must be a UUID") }
    self = uuid
  }
}

package struct TextField: Sendable {
  package let name: String
  /// In Unicode scalars, as PostgreSQL counts characters.
  package let maximumLength: Int

  package init(name: String, maximumLength: Int) {
    (self.name, self.maximumLength) = (name, maximumLength)
  }

  /// The app's own IDs: numbers, UUIDs, email addresses.
  package static let accountID = TextField(name: "account_id", maximumLength: 255)
  package static let accountIDs = TextField(name: "account_ids", maximumLength: 255)
  /// Apple allows 100 characters.
  package static let productID = TextField(name: "product_id", maximumLength: 255)
  /// Apple's IDs have 15 or 16 digits today.
  package static let transactionID = TextField(name: "transaction_id", maximumLength: 128)
  package static let originalTransactionID = TextField(
    name: "original_transaction_id", maximumLength: 128)
  /// Apple allows 155 characters.
  package static let bundleID = TextField(name: "bundle_id", maximumLength: 255)
  package static let entitlements = TextField(name: "entitlements", maximumLength: 255)
  package static let subscriptionGroup = TextField(name: "subscription_group", maximumLength: 255)
  package static let displayName = TextField(name: "display_name", maximumLength: 255)
  package static let label = TextField(name: "label", maximumLength: 255)
  package static let email = TextField(name: "email", maximumLength: 255)

  package func checked(_ text: String) throws -> String {
    guard !text.isEmpty else { throw Problem.invalid(name, "must not be empty") }
    // A text has at most as many scalars as bytes, so only long ones need counting.
    guard text.utf8.count <= maximumLength || text.unicodeScalars.count <= maximumLength else {
      throw Problem.invalid(name, "must have at most \(maximumLength) characters")
    }
    // PostgreSQL can't store NUL, and the others are invisible.
    guard !text.unicodeScalars.contains(where: { $0.properties.generalCategory == .control }) else {
      throw Problem.invalid(name, "must not contain control characters")
    }
    return text
  }
}

package struct Page: Sendable {
  /// Enough for most lists, in an answer of some hundred kilobytes.
  package static let defaultLimit = 100
  package static let maximumLimit = 1000

  /// In bytes; every cursor of ours is shorter.
  package static let longestCursor = 2048

  /// The cursor after which the page begins; nil for the first page.
  package let after: String?
  package let limit: Int

  private let unknownCursor: Problem

  /// Reads `after` and `limit`, or the parameters with these names after a prefix.
  package init(
    _ query: EncodedFields, prefix: String = "", defaultLimit: Int = Self.defaultLimit,
    maximumLimit: Int = Self.maximumLimit
  ) throws {
    let name = prefix + "after"
    unknownCursor = .invalid(name, "must be a `next` value from a previous page")
    after = query.text(name)
    guard (after?.utf8.count ?? 0) <= Self.longestCursor else { throw unknownCursor }
    limit = try query.integer(prefix + "limit", in: 1...maximumLimit) ?? defaultLimit
  }

  /// The last element of the previous page, read from its cursor; nil on the first page.
  package func cursor<Place>(_ read: (String) -> Place?) throws -> Place? {
    try after.map { text in
      guard let place = read(text) else { throw unknownCursor }
      return place
    }
  }

  /// Cuts the page out of a whole list, with the cursor of the next page; nil on the last one.
  package func slice<Element>(of list: [Element], cursor: (Element) -> String) throws
    -> (elements: ArraySlice<Element>, next: String?)
  {
    var rest = list[...]
    if let after = after.map(ExactText.init(_:)) {
      guard let position = list.firstIndex(where: { ExactText(cursor($0)) == after }) else {
        throw unknownCursor
      }
      rest = list[(position + 1)...]
    }
    let elements = rest.prefix(limit)
    return (elements, elements.count < rest.count ? elements.last.map(cursor) : nil)
  }
}
