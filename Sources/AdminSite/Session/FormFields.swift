import Foundation
import HTTPAPI
import Hummingbird
import HummingbirdCore
import NIOCore
import Subscriptions

/// The fields of a form, from a body or a query.
struct FormFields: Sendable {
  private var fields = EncodedFields()

  init() {}

  init(query uri: URI) { fields = EncodedFields(uri.query ?? "", .html) }

  /// Parses `application/x-www-form-urlencoded`, skipping malformed fields.
  ///
  /// - Throws: A ``Problem`` for a name that is too long.
  init(_ text: String) throws {
    fields = EncodedFields(text, .html)
    guard !fields.hasLongName else {
      throw Problem(
        .invalidRequest, "A field name may have at most \(EncodedFields.longestName) bytes.")
    }
  }

  /// The first value of a name, or nil if it is missing or empty.
  subscript(name: String) -> ExactText? {
    fields[name].flatMap { $0.rawValue.isEmpty ? nil : $0 }
  }

  func all(_ name: String) -> [ExactText] { fields.all(name) }

  /// The trimmed value of a required field; throws a ``Problem`` for the field.
  func text(_ field: TextField) throws -> String {
    let text = self[field.name]?.rawValue.trimmingCharacters(in: .whitespacesAndNewlines) ?? ""
    guard !text.isEmpty else { throw Problem.invalid(field.name, "is missing") }
    return try field.checked(text)
  }
}

extension Request {
  /// Reads a form from the body; throws a ``Problem`` for another media type or a larger body.
  func form(upTo limit: Int = BodyLimit.small) async throws -> FormFields {
    guard mediaType == "application/x-www-form-urlencoded" else {
      throw Problem(.invalidRequest, "The body must be `application/x-www-form-urlencoded`.")
    }
    let buffer = try await wholeBody(upTo: limit)
    return try FormFields(String(decoding: buffer.readableBytesView, as: UTF8.self))
  }
}
