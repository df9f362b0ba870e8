import Foundation
import HTTPTypes
import Hummingbird
import NIOCore

/// How large the bodies of requests may be, in bytes.
enum BodyLimit {
  /// A receipt or signed data of 16 MB with room for the escapes and fields around it.
  static let receipt = 20 * 1024 * 1024
  /// A thousand account ids of 255 characters, each of up to four bytes, and some.
  static let batch = 2 * 1024 * 1024
  /// Everything else is a few short fields.
  static let small = 256 * 1024
}

extension Request {
  /// Reads the body as JSON.
  ///
  /// - Throws: A ``Problem`` for another media type or too large a body; `DecodingError` for what
  /// is
  ///   not the JSON that is expected.
  func json<Body: Decodable>(_: Body.Type, upTo limit: Int = BodyLimit.small) async throws -> Body {
    let buffer = try await collectJSON(upTo: limit)
    return try JSONDecoder().decode(Body.self, from: Data(buffer.readableBytesView))
  }

  /// Reads the body as JSON; nil if there is none.
  ///
  /// - Throws: As ``json(_:upTo:)`` does.
  func jsonIfPresent<Body: Decodable>(_: Body.Type) async throws -> Body? {
    let buffer = try await collectJSON(upTo: BodyLimit.small)
    guard buffer.readableBytes > 0 else { return nil }
    return try JSONDecoder().decode(Body.self, from: Data(buffer.readableBytesView))
  }

  private func collectJSON(upTo limit: Int) async throws -> ByteBuffer {
    // Without a Content-Type it is for us to say what it is (RFC 9110, section 8.3).
    if let mediaType = headers[.contentType], !Self.isJSON(mediaType) {
      throw Problem(
        .unsupportedMediaType, "Send JSON, as `Content-Type: application/json`.")
    }
    if let length = headers[.contentLength].flatMap({ Int($0) }), length > limit {
      throw Problem.contentTooLarge(limit: limit)
    }
    do {
      return try await body.collect(upTo: limit)
    } catch is NIOTooManyBytesError {
      throw Problem.contentTooLarge(limit: limit)
    }
  }

  private static func isJSON(_ mediaType: String) -> Bool {
    let type = mediaType.prefix { $0 != ";" }.lowercased().filter { !$0.isWhitespace }
    return type == "application/json" || type.hasSuffix("+json")
  }
}
