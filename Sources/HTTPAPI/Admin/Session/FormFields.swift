import Foundation
import Hummingbird
import HummingbirdCore
import NIOCore

/// What a form sends, in a body or in a query: names and values as browsers write them.
struct FormFields: Sendable {
  private var fields: [(name: String, value: String)] = []

  init() {}

  /// Reads `application/x-www-form-urlencoded`; what can't be read is left out.
  init(_ text: some StringProtocol) {
    fields = text.split(separator: "&").compactMap { pair in
      let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
      guard let name = Self.decoded(parts[0]) else { return nil }
      guard parts.count == 2 else { return (name, "") }
      return Self.decoded(parts[1]).map { (name, $0) }
    }
  }

  init(query uri: URI) { self.init(uri.query ?? "") }

  private static func decoded(_ text: some StringProtocol) -> String? {
    String(text).replacing("+", with: " ").removingPercentEncoding
  }

  /// The first value of a name; nil if there is none, or it is empty.
  subscript(name: String) -> String? {
    fields.first { $0.name == name }.flatMap { $0.value.isEmpty ? nil : $0.value }
  }

  /// All values of a name.
  func all(_ name: String) -> [String] {
    fields.filter { $0.name == name }.map(\.value)
  }

  /// A text without spaces at its ends.
  ///
  /// - Throws: A ``Problem`` that names the field.
  func text(_ field: TextField) throws -> String {
    let text = self[field.name]?.trimmingCharacters(in: .whitespacesAndNewlines) ?? ""
    guard !text.isEmpty else { throw Problem.invalid(field.name, "is missing") }
    return try field.checked(text)
  }
}

extension Request {
  /// Reads a body that a form sent.
  ///
  /// - Throws: A ``Problem`` for another media type or too large a body.
  func form() async throws -> FormFields {
    let mediaType = headers[.contentType]?.prefix { $0 != ";" }.lowercased()
    guard mediaType == "application/x-www-form-urlencoded" else {
      throw Problem(.invalidRequest, "This is for the forms of the administrator's pages.")
    }
    let buffer: ByteBuffer
    do {
      buffer = try await body.collect(upTo: BodyLimit.small)
    } catch is NIOTooManyBytesError {
      throw Problem.contentTooLarge(limit: BodyLimit.small)
    }
    return FormFields(String(decoding: buffer.readableBytesView, as: UTF8.self))
  }
}
