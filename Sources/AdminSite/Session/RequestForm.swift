import Foundation
import HTTPAPI
import Hummingbird
import HummingbirdCore
import NIOCore
import Subscriptions

extension EncodedFields {
  init(query uri: URI) { self.init(uri.query ?? "", .html) }

  /// The trimmed value of a required field; throws a ``Problem`` for the field.
  func entered(_ field: TextField) throws -> String {
    let text = self[field.name]?.rawValue.trimmingCharacters(in: .whitespacesAndNewlines) ?? ""
    guard !text.isEmpty else { throw Problem.invalid(field.name, "is missing") }
    return try field.checked(text)
  }
}

extension Request {
  /// Reads a form from the body; throws a ``Problem`` for another media type, a larger body, or a
  /// name that is too long.
  func form(upTo limit: Int = BodyLimit.small) async throws -> EncodedFields {
    guard mediaType == "application/x-www-form-urlencoded" else {
      throw Problem(.invalidRequest, "The body must be `application/x-www-form-urlencoded`.")
    }
    let buffer = try await wholeBody(upTo: limit)
    let fields = EncodedFields(String(decoding: buffer.readableBytesView, as: UTF8.self), .html)
    guard !fields.hasLongName else {
      throw Problem(
        .invalidRequest, "A field name may have at most \(EncodedFields.longestName) bytes.")
    }
    return fields
  }
}
