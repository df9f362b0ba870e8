import Foundation
import JSONText

/// The form in which bodies are stored.
///
/// A body is stored as pieces, without what another row has or what follows from the rest: signed data
/// without the headers that contain its certificates, Base64 as the bytes that it means. The number of
/// headers comes first, then their digests and the pieces, compressed by ``Deflate``.
/// ``split(_:leavingOut:)`` returns no form that does not give the body back byte by byte, so it can't
/// lose anything, whatever the body is.
enum BodyEncoding {
  /// The kinds of pieces.
  private enum Piece: UInt8 {
    /// A length and bytes.
    case text
    /// A JWS: the number of its header, its payload as pieces and its signature, each with a length.
    case jws
    /// Base64 with padding: what it means, as pieces with a length.
    case base64
  }

  private static let digestLength = 32

  /// Encodes a body.
  ///
  /// - Parameter headers: The headers that another row contains. A JWS with another header stays as
  ///   it is.
  /// - Returns: The encoded body, and the headers that it lacks.
  static func split(_ body: [UInt8], leavingOut headers: [ChainHeader] = [])
    -> (content: [UInt8], headers: [ChainHeader])
  {
    var writer = PieceWriter(headers: headers)
    let pieces = writer.pieces(of: body[...])
    if writer.used.count <= UInt8.max {
      let content = content(pieces, lacking: writer.used)
      if join(content, with: writer.used) == body { return (content, writer.used) }
    }
    return (content(PieceWriter.whole(body), lacking: []), [])
  }

  private static func content(_ pieces: [UInt8], lacking headers: [ChainHeader]) -> [UInt8] {
    [UInt8(headers.count)] + headers.flatMap(\.digest) + Deflate.bodies.compress(pieces)
  }

  /// The digests of the headers that an encoded body lacks.
  static func missingHeaders(of content: [UInt8]) -> [[UInt8]] {
    guard let count = content.first else { return [] }
    let digests = content[1...].prefix(Int(count) * digestLength)
    return stride(from: digests.startIndex, to: digests.endIndex, by: digestLength).map {
      Array(digests[$0..<min($0 + digestLength, digests.endIndex)])
    }
  }

  /// Decodes a body; nil if it is damaged, a header is missing, or it was compressed with an unknown
  /// dictionary.
  static func join(_ content: [UInt8], with headers: [ChainHeader]) -> [UInt8]? {
    let used = missingHeaders(of: content).map { digest in headers.first { $0.digest == digest } }
    guard !used.contains(where: { $0 == nil }),
      let pieces = Deflate.bodies.decompress(content.dropFirst(1 + used.count * digestLength))
    else { return nil }
    var reader = PieceReader(headers: used.compactMap(\.self), rest: pieces[...])
    return reader.body()
  }

  /// Finds the JWS and the Base64 of a body, and of what they mean.
  private struct PieceWriter {
    let headers: [ChainHeader]
    var used: [ChainHeader] = []

    private static let start = UInt8(ascii: "e")  // Every header is an object, `{"` in Base64
    private static let dot = UInt8(ascii: ".")
    /// Names and numbers are shorter.
    private static let shortestBase64 = 80

    static func whole(_ body: [UInt8]) -> [UInt8] {
      var pieces: [UInt8] = []
      append(body[...], to: &pieces)
      return pieces
    }

    mutating func pieces(of text: ArraySlice<UInt8>) -> [UInt8] {
      var pieces: [UInt8] = []
      var textStart = text.startIndex
      var index = text.startIndex
      var digitsEnd = index
      while index < text.endIndex {
        var found = text[index] == Self.start ? jws(at: index, in: text) : nil
        if found == nil, index >= digitsEnd {
          digitsEnd = text[index...].firstIndex { !Base64.isDigit(standard: $0) } ?? text.endIndex
          if digitsEnd - index >= Self.shortestBase64 {
            found = base64(text[index..<digitsEnd], in: text)
          }
        }
        guard let (piece, end) = found else {
          index += 1
          continue
        }
        Self.append(text[textStart..<index], to: &pieces)
        pieces += piece
        index = end
        textStart = end
      }
      Self.append(text[textStart...], to: &pieces)
      return pieces
    }

    private static func append(_ text: ArraySlice<UInt8>, to pieces: inout [UInt8]) {
      guard !text.isEmpty else { return }
      pieces.append(Piece.text.rawValue)
      pieces.appendWithLength(text)
    }

    private mutating func base64(
      _ digits: ArraySlice<UInt8>, in text: ArraySlice<UInt8>
    ) -> (piece: [UInt8], end: Int)? {
      let padding = text[digits.endIndex...].prefix(2).prefix { $0 == UInt8(ascii: "=") }
      guard let bytes = Base64.decode(standard: Array(digits + padding)) else { return nil }
      var piece = [Piece.base64.rawValue]
      piece.appendWithLength(pieces(of: bytes[...]))
      return (piece, padding.endIndex)
    }

    private mutating func jws(
      at start: Int, in text: ArraySlice<UInt8>
    ) -> (piece: [UInt8], end: Int)? {
      guard let header = headers.first(where: { text[start...].starts(with: $0.bytes) }) else {
        return nil
      }
      let payloadStart = start + header.bytes.count + 1
      guard payloadStart < text.endIndex, text[payloadStart - 1] == Self.dot,
        let payloadEnd = text[payloadStart...].firstIndex(where: { !Base64.isDigit(url: $0) }),
        text[payloadEnd] == Self.dot
      else { return nil }
      let signature = text[(payloadEnd + 1)...].prefix(while: Base64.isDigit(url:))
      guard let payload = Base64.decode(url: text[payloadStart..<payloadEnd]),
        let signatureBytes = Base64.decode(url: signature)
      else { return nil }
      let number = used.firstIndex(of: header) ?? used.count
      if number == used.count { used.append(header) }
      var piece = [Piece.jws.rawValue, UInt8(truncatingIfNeeded: number)]
      piece.appendWithLength(pieces(of: payload[...]))
      piece.appendWithLength(signatureBytes)
      return (piece, signature.endIndex)
    }
  }

  private struct PieceReader {
    let headers: [ChainHeader]
    var rest: ArraySlice<UInt8>

    mutating func body() -> [UInt8]? {
      var body: [UInt8] = []
      while let kind = rest.popFirst() {
        switch Piece(rawValue: kind) {
        case .text:
          guard let text = rest.popWithLength() else { return nil }
          body += text
        case .jws:
          guard let number = rest.popFirst(), number < headers.count,
            let pieces = rest.popWithLength(), let signature = rest.popWithLength()
          else { return nil }
          var payload = PieceReader(headers: headers, rest: pieces)
          guard let payload = payload.body() else { return nil }
          body += headers[Int(number)].bytes
          body.append(UInt8(ascii: "."))
          body += Base64.encode(url: payload[...]).utf8
          body.append(UInt8(ascii: "."))
          body += Base64.encode(url: signature).utf8
        case .base64:
          guard let pieces = rest.popWithLength() else { return nil }
          var meant = PieceReader(headers: headers, rest: pieces)
          guard let meant = meant.body() else { return nil }
          body += Data(meant).base64EncodedString().utf8
        case nil: return nil
        }
      }
      return body
    }
  }
}

extension [UInt8] {
  /// Appends bytes after their number, in groups of seven bits, the lowest first.
  fileprivate mutating func appendWithLength(_ bytes: some Collection<UInt8>) {
    var length = bytes.count
    while length >= 0x80 {
      append(UInt8(length & 0x7F) | 0x80)
      length >>= 7
    }
    append(UInt8(length))
    self += bytes
  }
}

extension ArraySlice<UInt8> {
  fileprivate mutating func popWithLength() -> ArraySlice<UInt8>? {
    var length = 0
    for shift in stride(from: 0, to: 35, by: 7) {
      guard let byte = popFirst() else { return nil }
      length |= Int(byte & 0x7F) << shift
      guard byte & 0x80 != 0 else {
        guard length <= count else { return nil }
        defer { removeFirst(length) }
        return prefix(length)
      }
    }
    return nil
  }
}
