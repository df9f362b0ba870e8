import Crypto
import Foundation
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
