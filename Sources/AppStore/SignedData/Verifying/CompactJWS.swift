/// The three parts of a JWS in its compact form (RFC 7515, section 7.1), still encoded.
struct CompactJWS {
  /// In bytes: ten times a notification with two parts of its own, the largest that Apple is known
  /// to send.
  static let longest = 256 * 1024
  /// In bytes: three times a header with three certificates.
  static let longestHeader = 16 * 1024
  /// Of ES256: r and s, 32 bytes each.
  static let signatureLength = 64

  /// The same for every payload that one chain of certificates has signed.
  let header: String
  let payload: ArraySlice<UInt8>
  let signature: ArraySlice<UInt8>

  init(_ text: String) throws(SignedDataFault) {
    let bytes = Array(text.utf8)
    guard bytes.count <= Self.longest else {
      throw SignedDataFault(.tooLarge, "is larger than \(Self.longest) bytes")
    }
    let dot = UInt8(ascii: ".")
    guard let first = bytes.firstIndex(of: dot),
      let second = bytes[(first + 1)...].firstIndex(of: dot),
      !bytes[(second + 1)...].contains(dot)
    else {
      throw SignedDataFault(.notThreeSegments, "does not consist of three parts with dots between")
    }
    guard first <= Self.longestHeader else {
      throw SignedDataFault(
        .tooLarge, "has a header that is larger than \(Self.longestHeader) bytes")
    }
    header = String(decoding: bytes[..<first], as: UTF8.self)
    payload = bytes[(first + 1)..<second]
    signature = bytes[(second + 1)...]
  }

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
