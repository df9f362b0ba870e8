import Crypto
import Foundation
import JSONText
import Subscriptions

/// The fields of a payload that Apple signs as a JWS.
protocol SignedFields: JSONFields {
  static func signedAt(_ payload: Payload) -> Timestamp?
  static func environment(_ payload: Payload) -> SignedEnvironment?
}

/// Verifies signatures and their certificates: that data is Apple's, not that it is for us.
struct JWSVerifier: Sendable {
  /// How far in the future a signing date may be: clocks in a wrong time zone are hours off.
  static let tolerance: Duration = .days(1)

  let roots: TrustedRoots
  let acceptsXcode: Bool
  let now: @Sendable () -> Timestamp
  let chains = ChainCache()

  /// Verifies a JWS and returns its payload, dated `receivedAt` if it has no date.
  ///
  /// The signature is verified before the payload is read, and the chain as of the payload's date,
  /// so only the holder of the leaf's key can choose that date. A stolen expired key could be used
  /// for backdating; Apple's own verifier trusts the date as well.
  func payload<Fields: SignedFields>(
    _ text: String, as type: Fields.Payload.Type, receivedAt: Timestamp
  ) async throws(SignedDataFault) -> Fields.Payload {
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

  private func payload<Fields: SignedFields>(
    _ jws: CompactJWS, as type: Fields.Payload.Type, receivedAt: Timestamp, now: Timestamp
  ) async throws(SignedDataFault) -> Fields.Payload {
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

  /// The payload if Xcode or a local test made it; nil if Apple must have signed it.
  private func unsignedPayload<Fields: SignedFields>(
    _ jws: CompactJWS, as type: Fields.Payload.Type, now: Timestamp
  ) throws(SignedDataFault) -> Fields.Payload? {
    let payload = try jws.payload(as: type)
    guard let environment = Fields.environment(payload),
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
      throw SignedDataFault(.wrongSignature, "has a signature that does not match its contents")
    }
  }

  private static func date<Fields: SignedFields>(
    of payload: JSONPayload<Fields>, now: Timestamp
  ) throws(SignedDataFault) -> Timestamp? {
    guard let date = Fields.signedAt(payload) else { return nil }
    guard date <= now + tolerance else {
      throw SignedDataFault(.signedInTheFuture, "is dated more than a day in the future")
    }
    return date
  }
}

extension TransactionFields: SignedFields {
  static func signedAt(_ payload: Payload) -> Timestamp? { payload.signedDate }
  static func environment(_ payload: Payload) -> SignedEnvironment? { payload.environment }
}

extension RenewalInfoFields: SignedFields {
  static func signedAt(_ payload: Payload) -> Timestamp? { payload.signedDate }
  static func environment(_ payload: Payload) -> SignedEnvironment? { payload.environment }
}

extension AppTransactionFields: SignedFields {
  static func signedAt(_ payload: Payload) -> Timestamp? { payload.receiptCreationDate }
  static func environment(_ payload: Payload) -> SignedEnvironment? { payload.receiptType }
}

extension NotificationFields: SignedFields {
  static func signedAt(_ payload: Payload) -> Timestamp? { payload.signedDate }
  static func environment(_ payload: Payload) -> SignedEnvironment? {
    payload.data?.environment ?? payload.summary?.environment ?? payload.appData?.environment
  }
}

/// The three encoded parts of a JWS in compact form (RFC 7515, section 7.1).
struct CompactJWS {
  /// In bytes; ten times a notification with both parts, the largest that Apple is known to send.
  static let longest = 256 * 1024
  static let longestHeader = 16 * 1024  // In bytes; three times a header with three certificates
  static let signatureLength = 64  // In bytes; ES256 has r and s of 32 bytes each

  private static let dot = UInt8(ascii: ".")

  /// Identical for all payloads signed by one chain.
  var header: String { String(decoding: bytes[..<payload.startIndex].dropLast(), as: UTF8.self) }
  let payload: ArraySlice<UInt8>
  let signature: ArraySlice<UInt8>
  private let bytes: [UInt8]

  /// Splits the text at the first and the last dot; further ones are detected when the payload is
  /// decoded, because they are not base64.
  init(_ text: String, headerLength: Int? = nil) throws(SignedDataFault) {
    guard text.utf8.count <= Self.longest else {
      throw SignedDataFault(.tooLarge, "is larger than \(Self.longest) bytes")
    }
    bytes = Array(text.utf8)
    guard let first = headerLength ?? bytes.firstIndex(of: Self.dot),
      let second = bytes.lastIndex(of: Self.dot), first < second
    else { throw Self.notThreeSegments }
    guard first <= Self.longestHeader else {
      throw SignedDataFault(.tooLarge, "has a header larger than \(Self.longestHeader) bytes")
    }
    payload = bytes[(first + 1)..<second]
    signature = bytes[(second + 1)...]
  }

  /// The reason for a refusal, which takes further dots into account.
  func cause(of fault: SignedDataFault) -> SignedDataFault {
    payload.contains(Self.dot) ? Self.notThreeSegments : fault
  }

  private static let notThreeSegments = SignedDataFault(
    .notThreeSegments, "does not consist of three parts separated by dots")

  func signatureBytes() throws(SignedDataFault) -> [UInt8] {
    let bytes = try Self.decoded(signature, "signature")
    guard bytes.count == Self.signatureLength else {
      throw SignedDataFault(
        .wrongSignatureLength, "has a signature that is not \(Self.signatureLength) bytes long")
    }
    return bytes
  }

  func payload<Fields: JSONFields>(
    as type: Fields.Payload.Type
  ) throws(SignedDataFault) -> Fields.Payload {
    let bytes = try Self.decoded(payload, "payload")
    do {
      return try JSONPayload(parsing: bytes)
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

/// The header's certificates, after checking its form; other members, above all keys, are ignored.
struct JWSHeader {
  private static let xcodeKeyID = "Apple_Xcode_Key"
  private static let certificateCount = 3

  /// Leaf, intermediate and root, as base64 of DER.
  let certificates: [String]

  /// - Parameter needsCertificates: False for Xcode, which need not send them.
  init(_ text: String, needsCertificates: Bool = true) throws(SignedDataFault) {
    let bytes = try CompactJWS.decoded(Array(text.utf8)[...], "header")
    let json: JSONValue
    do {
      json = try JSONValue(parsing: bytes, mostValues: 100)
    } catch {
      throw SignedDataFault(.invalidHeader, "has a header that \(error)")
    }
    guard case .object = json else {
      throw SignedDataFault(.invalidHeader, "has a header that is not an object")
    }
    guard json["alg"] == "ES256" else {
      throw SignedDataFault(.unsupportedAlgorithm, "is not signed with ES256")
    }
    guard json["crit"] == nil else {
      throw SignedDataFault(.criticalHeader, "has a header with unsupported critical extensions")
    }
    certificates = (json["x5c"]?.array ?? []).compactMap(\.string)
    guard needsCertificates else { return }
    if certificates.count == 1, json["kid"] == .string(Self.xcodeKeyID) {
      throw SignedDataFault(
        .notSignedByApple, "was signed by Xcode instead of Apple, which is not accepted")
    }
    guard certificates.count == Self.certificateCount,
      json["x5c"]?.array?.count == Self.certificateCount
    else {
      throw SignedDataFault(
        .wrongCertificateCount,
        "does not have \(Self.certificateCount) certificates, as Apple's signatures do")
    }
  }
}
