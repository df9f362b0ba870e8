import HTTPTypes
import Hummingbird
import JSONText
import NIOCore
import Subscriptions

/// How large the bodies of requests may be, in bytes.
enum BodyLimit {
  /// A receipt or signed data of 16 MB with room for the escapes and fields around it.
  static let receipt = 20 * 1024 * 1024
  /// A thousand account ids of 255 characters, each of up to four bytes, and some.
  static let batch = 2 * 1024 * 1024
  /// A key and a path, which anyone can send.
  static let login = 16 * 1024
  /// Everything else is a few short fields.
  static let small = 256 * 1024
}

extension Request {
  /// Reads the body as JSON.
  ///
  /// - Throws: A ``Problem`` for another media type or too large a body; ``JSONError`` for what is
  ///   not JSON; `DecodingError` for another value than is expected.
  func json<Body: Decodable>(_: Body.Type, upTo limit: Int = BodyLimit.small) async throws -> Body {
    let buffer = try await collectJSON(upTo: limit)
    return try JSONValue(parsing: buffer.readableBytesView).decode(Body.self)
  }

  /// Reads the body as JSON; nil if there is none.
  ///
  /// - Throws: As ``json(_:upTo:)`` does.
  func jsonIfPresent<Body: Decodable>(_: Body.Type) async throws -> Body? {
    let buffer = try await collectJSON(upTo: BodyLimit.small)
    guard buffer.readableBytes > 0 else { return nil }
    return try JSONValue(parsing: buffer.readableBytesView).decode(Body.self)
  }

  private func collectJSON(upTo limit: Int) async throws -> ByteBuffer {
    // Without a Content-Type it is for us to say what it is (RFC 9110, section 8.3).
    if let mediaType, mediaType != "application/json", !mediaType.rawValue.hasSuffix("+json") {
      throw Problem(
        .unsupportedMediaType, "Send JSON, as `Content-Type: application/json`.")
    }
    return try await wholeBody(upTo: limit)
  }

  /// Reads the body within the budget of all bodies.
  ///
  /// - Throws: A ``Problem`` for too large a body, or where too many are being read.
  func wholeBody(upTo limit: Int) async throws -> ByteBuffer {
    if let length = headers[.contentLength].flatMap({ Int($0) }), length > limit {
      throw Problem.contentTooLarge(limit: limit)
    }
    var whole = ByteBuffer()
    for try await part in body {
      guard whole.readableBytes + part.readableBytes <= limit else {
        throw Problem.contentTooLarge(limit: limit)
      }
      try BodyShare.current?.take(part.readableBytes)
      whole.writeImmutableBuffer(part)
    }
    BodyShare.current?.keep()
    return whole
  }

  /// The body's media type in lower case and without parameters; nil where none is named.
  ///
  /// Empty for one that is not ASCII: there is none.
  var mediaType: ExactText? {
    headers[.contentType].map { field in
      guard field.isASCII else { return "" }
      return ExactText(field.prefix { $0 != ";" }.lowercased().filter { !$0.isWhitespace })
    }
  }
}
