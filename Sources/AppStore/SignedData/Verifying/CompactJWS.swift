/// The three parts of a JWS in its compact form (RFC 7515, section 7.1), still encoded.
struct CompactJWS {
  /// In bytes: ten times a notification with two parts of its own, the largest that Apple is known
  /// to send.
  static let longest = 256 * 1024
  /// In bytes: three times a header with three certificates.
  static let longestHeader = 16 * 1024
  /// Of ES256: r and s, 32 bytes each.
  static let signatureLength = 64

  private static let dot = UInt8(ascii: ".")

  /// The same for every payload that one chain of certificates has signed.
  var header: String { String(decoding: bytes[..<payload.startIndex].dropLast(), as: UTF8.self) }
  let payload: ArraySlice<UInt8>
  let signature: ArraySlice<UInt8>
  private let bytes: [UInt8]

  /// Finds the first and the last dot; that there is no other is left to whoever decodes what is
  /// between them, and finds that it is no base64.
  ///
  /// - Parameters:
  ///   - text: The whole.
  ///   - headerLength: How long its header is, where that is known.
  /// - Throws: ``SignedDataFault``.
  init(_ text: String, headerLength: Int? = nil) throws(SignedDataFault) {
    guard text.utf8.count <= Self.longest else {
      throw SignedDataFault(.tooLarge, "is larger than \(Self.longest) bytes")
    }
    bytes = Array(text.utf8)
    guard let first = headerLength ?? bytes.firstIndex(of: Self.dot),
      let second = bytes.lastIndex(of: Self.dot), first < second
    else { throw Self.notThreeSegments }
    guard first <= Self.longestHeader else {
      throw SignedDataFault(
        .tooLarge, "has a header that is larger than \(Self.longestHeader) bytes")
    }
    payload = bytes[(first + 1)..<second]
    signature = bytes[(second + 1)...]
  }

  /// Why it was refused: most of all for having more than three parts.
  func cause(of fault: SignedDataFault) -> SignedDataFault {
    payload.contains(Self.dot) ? Self.notThreeSegments : fault
  }

  private static let notThreeSegments = SignedDataFault(
    .notThreeSegments, "does not consist of three parts with dots between")

  /// Decodes the signature.
  func signatureBytes() throws(SignedDataFault) -> [UInt8] {
    let bytes = try Self.decoded(signature, "signature")
    guard bytes.count == Self.signatureLength else {
      throw SignedDataFault(
        .wrongSignatureLength, "has a signature that is not \(Self.signatureLength) bytes long")
    }
    return bytes
  }

  /// Decodes and reads the payload.
  func payload<Payload: JSONPayload>(
    as type: Payload.Type
  ) throws(SignedDataFault) -> Payload {
    let bytes = try Self.decoded(payload, "payload")
    do {
      return try Payload(parsing: bytes)
    } catch {
      throw SignedDataFault(.invalidPayload, "has a payload that \(error)")
    }
  }

  static func decoded(_ part: ArraySlice<UInt8>, _ name: String) throws(SignedDataFault)
    -> [UInt8]
  {
    guard let bytes = Base64.decode(url: part) else {
      throw SignedDataFault(.invalidBase64, "has a \(name) that is not base64url without padding")
    }
    return bytes
  }
}
