import Foundation
import HTTPAPI
import Hummingbird
import HummingbirdCore
import NIOCore
import Subscriptions

/// What a form sends, in a body or in a query: names and values as browsers write them.
struct FormFields: Sendable {
  private var fields = EncodedFields()

  init() {}

  init(query uri: URI) { fields = EncodedFields(uri.query ?? "", .html) }

  /// Reads `application/x-www-form-urlencoded`; what cannot be read is left out.
  ///
  /// - Throws: A ``Problem`` for a field whose name is too long.
  init(_ text: String) throws {
    fields = EncodedFields(text, .html)
    guard !fields.hasLongName else {
      throw Problem(
        .invalidRequest, "The name of a field may have up to \(EncodedFields.longestName) bytes.")
    }
  }

  /// The first value of a name; nil if there is none, or it is empty.
  subscript(name: String) -> ExactText? {
    fields[name].flatMap { $0.rawValue.isEmpty ? nil : $0 }
  }

  /// All values of a name.
  func all(_ name: String) -> [ExactText] { fields.all(name) }

  /// A text without spaces at its ends.
  ///
  /// - Throws: A ``Problem`` that names the field.
  func text(_ field: TextField) throws -> String {
    let text = self[field.name]?.rawValue.trimmingCharacters(in: .whitespacesAndNewlines) ?? ""
    guard !text.isEmpty else { throw Problem.invalid(field.name, "is missing") }
    return try field.checked(text)
  }
}

extension Request {
  /// Reads a body that a form sent.
  ///
  /// - Throws: A ``Problem`` for another media type or too large a body.
  func form(upTo limit: Int = BodyLimit.small) async throws -> FormFields {
    guard mediaType == "application/x-www-form-urlencoded" else {
      throw Problem(.invalidRequest, "This is for the forms of the administrator's pages.")
    }
    let buffer = try await wholeBody(upTo: limit)
    return try FormFields(String(decoding: buffer.readableBytesView, as: UTF8.self))
  }
}
