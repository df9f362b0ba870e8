import Crypto
import Foundation
import JSONText
import Subscriptions

/// Something that Apple signs as a JWS.
protocol SignedPayload: JSONPayload {
  /// When Apple signed it, by its own words.
  var signedAt: Timestamp? { get }
  /// The environment that it names.
  var namedEnvironment: SignedEnvironment? { get }
}

/// Verifies signatures and their certificates: whether Apple has said it, not whether to us.
struct JWSVerifier: Sendable {
  /// How far ahead of this machine's clock something may be signed.
  ///
  /// Clocks that are set to the wrong zone are hours off; a day is no accident.
  static let tolerance: Duration = .days(1)

  let roots: TrustedRoots
  let acceptsXcode: Bool
  let now: @Sendable () -> Timestamp
  let chains = ChainCache()

  /// Reads the payload of a JWS, once everything about its signature is right.
  ///
  /// The signature comes before the payload is read, and the payload's date before the chain is
  /// verified as of that date: so only the holder of the leaf's key can say when it was used. An
  /// expired key that was stolen could be dated back; Apple's own verifier trusts the date alike.
  ///
  /// - Parameters:
  ///   - text: In the compact form.
  ///   - type: What it should be.
  ///   - receivedAt: Stands in for a date that the payload doesn't name.
  /// - Returns: The payload.
  /// - Throws: ``SignedDataFault``.
  func payload<Payload: SignedPayload>(
    _ text: String, as type: Payload.Type, receivedAt: Timestamp
  ) async throws(SignedDataFault) -> Payload {
    let now = now()
    let chain = chains.chain(of: text, now: now)
    let jws = try CompactJWS(text, headerLength: chain.map { $0.prefix.utf8.count - 1 })
    do {
      if acceptsXcode, let payload = try unsignedPayload(jws, as: type, now: now) { return payload }
      guard let chain else {
        return try await payload(jws, as: type, receivedAt: receivedAt, now: now)
      }
      try Self.verifySignature(of: jws, key: chain.key, hash: chain.hash)
      let payload = try jws.payload(as: type)
      try chain.validity.check(try Self.date(of: payload, now: now) ?? receivedAt)
      return payload
    } catch {
      throw jws.cause(of: error)
    }
  }

  /// The payload of a JWS whose chain is not known yet.
  private func payload<Payload: SignedPayload>(
    _ jws: CompactJWS, as type: Payload.Type, receivedAt: Timestamp, now: Timestamp
  ) async throws(SignedDataFault) -> Payload {
    let header = jws.header
    let chain = try CertificateChain(try JWSHeader(header).certificates)
    let prefix = header + "."
    var hash = SHA256()
    hash.update(data: Data(prefix.utf8))
    try Self.verifySignature(of: jws, key: chain.key, hash: hash)
    let payload = try jws.payload(as: type)
    let date = try Self.date(of: payload, now: now) ?? receivedAt
    let validity = try await chain.verify(at: date, roots: roots)
    chains.remember(
      VerifiedChain(prefix: prefix, key: chain.key, validity: validity, hash: hash), now: now)
    return payload
  }

  /// What Xcode or a local test made; nil for anything that Apple has to have signed.
  private func unsignedPayload<Payload: SignedPayload>(
    _ jws: CompactJWS, as type: Payload.Type, now: Timestamp
  ) throws(SignedDataFault) -> Payload? {
    let payload = try jws.payload(as: type)
    guard let environment = payload.namedEnvironment,
      environment == .xcode || environment == .localTesting
    else { return nil }
    _ = try JWSHeader(jws.header, needsCertificates: false)
    _ = try CompactJWS.decoded(jws.signature, "signature")
    _ = try Self.date(of: payload, now: now)
    return payload
  }

  private static func verifySignature(
    of jws: CompactJWS, key: P256.Signing.PublicKey, hash: SHA256
  ) throws(SignedDataFault) {
    let bytes = try jws.signatureBytes()
    var hash = hash
    hash.update(data: jws.payload)
    guard let signature = try? P256.Signing.ECDSASignature(rawRepresentation: bytes),
      key.isValidSignature(signature, for: hash.finalize())
    else {
      throw SignedDataFault(
        .wrongSignature, "has a signature that does not belong to its contents")
    }
  }

  private static func date(
    of payload: some SignedPayload, now: Timestamp
  ) throws(SignedDataFault) -> Timestamp? {
    guard let date = payload.signedAt else { return nil }
    guard date <= now + tolerance else {
      throw SignedDataFault(.signedInTheFuture, "is dated more than a day ahead of this clock")
    }
    return date
  }
}

extension JWSTransactionDecodedPayload: SignedPayload {
  var signedAt: Timestamp? { signedDate }
  var namedEnvironment: SignedEnvironment? { environment }
}

extension JWSRenewalInfoDecodedPayload: SignedPayload {
  var signedAt: Timestamp? { signedDate }
  var namedEnvironment: SignedEnvironment? { environment }
}

extension JWSAppTransactionDecodedPayload: SignedPayload {
  var signedAt: Timestamp? { receiptCreationDate }
  var namedEnvironment: SignedEnvironment? { receiptType }
}

extension ResponseBodyV2DecodedPayload: SignedPayload {
  var signedAt: Timestamp? { signedDate }
  var namedEnvironment: SignedEnvironment? {
    data?.environment ?? summary?.environment ?? appData?.environment
  }
}

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

/// What is read of a JWS's header: that it is of Apple's form, and its certificates.
///
/// Anything else that it may name, a key or where to get one above all, is not looked at.
struct JWSHeader {
  /// The name that Xcode gives its key.
  private static let xcodeKeyID = "Apple_Xcode_Key"
  private static let certificateCount = 3

  /// The leaf's, the intermediate's and the root's, base64 of DER.
  let certificates: [String]

  /// - Parameters:
  ///   - text: As it stands in the JWS.
  ///   - needsCertificates: Whether it must bring them; Xcode's need not.
  /// - Throws: ``SignedDataFault``.
  init(_ text: String, needsCertificates: Bool = true) throws(SignedDataFault) {
    let bytes = try CompactJWS.decoded(Array(text.utf8)[...], "header")
    let json: JSONValue
    do {
      json = try JSONValue(parsing: bytes, mostValues: 100)
    } catch {
      throw SignedDataFault(.invalidHeader, "has a header that \(error)")
    }
    guard case .object = json else {
      throw SignedDataFault(.invalidHeader, "has a header that is no object")
    }
    guard json["alg"] == "ES256" else {
      throw SignedDataFault(.unsupportedAlgorithm, "is not signed with ES256")
    }
    guard json["crit"] == nil else {
      throw SignedDataFault(
        .criticalHeader, "has a header with demands that nobody here understands")
    }
    certificates = (json["x5c"]?.array ?? []).compactMap(\.string)
    guard needsCertificates else { return }
    if certificates.count == 1, json["kid"] == .string(Self.xcodeKeyID) {
      throw SignedDataFault(
        .notSignedByApple, "was signed by Xcode and not by Apple, which is not accepted here")
    }
    guard certificates.count == Self.certificateCount,
      json["x5c"]?.array?.count == Self.certificateCount
    else {
      throw SignedDataFault(
        .wrongCertificateCount,
        "does not bring \(Self.certificateCount) certificates, as all that Apple signs does")
    }
  }
}

/// Bytes written as base64 (RFC 4648), read strictly: one way to write them, and no other.
///
/// No white space, no character of the other alphabet, no bits set behind the last byte; padding
/// exactly where the form demands it.
enum Base64 {
  /// Reads base64url without padding, as the parts of a JWS are written; nil for anything else.
  static func decode(url text: ArraySlice<UInt8>) -> [UInt8]? {
    decode(text, urlDigits)
  }

  /// Reads base64 with padding, as certificates in a JWS are written; nil for anything else.
  static func decode(standard text: some Collection<UInt8>) -> [UInt8]? {
    guard text.count.isMultiple(of: 4) else { return nil }
    let text = Array(text)
    let padding = text.suffix(2).reversed().prefix { $0 == UInt8(ascii: "=") }.count
    return decode(text.dropLast(padding), standardDigits)
  }

  private static let urlDigits = digits(endingWith: "-_")
  private static let standardDigits = digits(endingWith: "+/")
  /// What stands in the table for a character that is no digit: more than six bits.
  private static let noDigit: UInt8 = 0xFF

  private static func digits(endingWith lastTwo: String) -> [UInt8] {
    var digits = [UInt8](repeating: noDigit, count: 256)
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789" + lastTwo
    for (value, character) in alphabet.utf8.enumerated() {
      digits[Int(character)] = UInt8(value)
    }
    return digits
  }

  private static func decode(_ text: ArraySlice<UInt8>, _ table: [UInt8]) -> [UInt8]? {
    let rest = text.count % 4
    guard rest != 1 else { return nil }
    let quads = text.count / 4
    var output = [UInt8](repeating: 0, count: quads * 3 + (rest == 0 ? 0 : rest - 1))
    let (input, digits) = (text.span, table.span)
    var bytes = output.mutableSpan
    var seen: UInt8 = 0
    for quad in 0..<quads {
      let (from, to) = (quad * 4, quad * 3)
      let first = digits[Int(input[from])]
      let second = digits[Int(input[from + 1])]
      let third = digits[Int(input[from + 2])]
      let fourth = digits[Int(input[from + 3])]
      seen |= first | second | third | fourth
      bytes[to] = first << 2 | second >> 4
      bytes[to + 1] = second << 4 | third >> 2
      bytes[to + 2] = third << 6 | fourth
    }
    if rest > 0 {
      let (from, to) = (quads * 4, quads * 3)
      let first = digits[Int(input[from])]
      let second = digits[Int(input[from + 1])]
      let third = rest == 3 ? digits[Int(input[from + 2])] : 0
      seen |= first | second | third
      bytes[to] = first << 2 | second >> 4
      if rest == 3 { bytes[to + 1] = second << 4 | third >> 2 }
      let surplus = rest == 3 ? third & 0b11 : second & 0b1111
      guard surplus == 0 else { return nil }
    }
    return seen < 64 ? output : nil
  }
}
