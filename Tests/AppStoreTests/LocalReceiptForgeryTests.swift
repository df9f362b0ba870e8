import AppStore
import Subscriptions
import Testing
import X509

/// Receipts below the tests' own root: genuine ones are accepted, and each forgery is refused.
struct LocalReceiptForgeryTests {
  private typealias Change = (inout TestReceipt, ReceiptAuthority) throws -> Void

  private func verdict(
    _ change: Change = { _, _ in }, acceptsXcode: Bool = false, named: String? = nil
  ) throws -> Result<LocalReceipt, LocalReceiptRefusal> {
    let authority = try ReceiptAuthority.shared
    var receipt = TestReceipt(by: authority)
    try change(&receipt, authority)
    return try authority.verifier(acceptsXcode: acceptsXcode)
      .verify(try receipt.base64(), bundleID: named)
  }

  @Test func `genuine receipts are accepted in every form`() throws {
    let forms: [(name: String, change: Change)] = [
      ("as it is", { _, _ in }),
      ("SHA-1", { receipt, _ in receipt.digest = .sha1 }),
      ("signed attributes", { receipt, _ in receipt.signsAttributes = true }),
      ("BER", { receipt, _ in receipt.encoding = .xcode }),
      (
        "BER, SHA-1, signed attributes",
        { receipt, _ in
          (receipt.encoding, receipt.digest, receipt.signsAttributes) = (.xcode, .sha1, true)
        }
      ),
      ("named by key", { receipt, _ in receipt.signerName = .subjectKeyIdentifier }),
      ("without the root", { receipt, _ in receipt.certificates.removeLast() }),
      ("certificates in another order", { receipt, _ in receipt.certificates.reverse() }),
      (
        "SHA-1 all the way",
        { receipt, authority in
          var (leaf, intermediate) = (
            ReceiptAuthority.leafRequest, ReceiptAuthority.intermediateRequest
          )
          (leaf.algorithm, intermediate.algorithm) = (
            .sha1WithRSAEncryption, .sha1WithRSAEncryption
          )
          receipt.digest = .sha1
          receipt.certificates = [
            try ReceiptAuthority.certificate(
              leaf, of: authority.leafKey, by: authority.intermediateKey),
            try ReceiptAuthority.certificate(
              intermediate, of: authority.intermediateKey, by: authority.rootKey),
          ]
        }
      ),
      (
        "certificates that have expired since",
        { receipt, authority in
          receipt.certificates[0] = try leaf(authority) { $0.to = "2024-06-01T10:00:00Z" }
        }
      ),
    ]
    for form in forms {
      let verdict = try verdict(form.change)
      #expect(verdict.failure == nil, "\(form.name)")
      #expect((try? verdict.get())?.environment == .production, "\(form.name)")
    }
  }

  @Test func `each forgery is refused for what is wrong with it`() throws {
    let forgeries: [(reason: LocalReceiptRefusal.Reason, name: String, change: Change)] = [
      (
        .wrongSignature, "another key", { receipt, authority in receipt.key = authority.strangeKey }
      ),
      (
        .wrongSignature, "another content than was digested",
        { receipt, _ in
          (receipt.signsAttributes, receipt.signedDigest) = (
            true, [UInt8](repeating: 0, count: 32)
          )
        }
      ),
      (
        .wrongSignature, "the digest of another length",
        { receipt, _ in (receipt.signsAttributes, receipt.signedDigest) = (true, []) }
      ),
      (
        .unsupportedAlgorithm, "another digest", { receipt, _ in receipt.digest = .sha384 }
      ),
      (.notOneSigner, "unsigned", { receipt, _ in receipt.signerCount = 0 }),
      (.notOneSigner, "two signed", { receipt, _ in receipt.signerCount = 2 }),
      (
        .missingCertificate, "no certificates", { receipt, _ in receipt.certificates = [] }
      ),
      (
        .missingCertificate, "not the signer's",
        { receipt, _ in receipt.certificates.removeFirst() }
      ),
      (
        .missingCertificate, "another serial number",
        { receipt, _ in receipt.leafRequest.serialNumber += 1 }
      ),
      (
        .missingCertificate, "another issuer",
        { receipt, _ in receipt.leafRequest.issuer = "Another CA" }
      ),
      (
        .strangeCertificate, "one that is none",
        { receipt, _ in receipt.certificates.append(ASN1Bytes.element(0x30, [5, 0])) }
      ),
      (
        .strangeCertificate, "no intermediate",
        { receipt, _ in receipt.certificates.remove(at: 1) }
      ),
      (
        .strangeCertificate, "one more than belongs there",
        { receipt, authority in
          receipt.certificates.append(try intermediate(authority) { $0.serialNumber = 9 })
        }
      ),
      (
        .strangeCertificate, "another root of the same name beside the intermediate",
        { receipt, authority in
          receipt.certificates[2] = try ReceiptAuthority.certificate(
            ReceiptAuthority.rootRequest, of: authority.strangeKey, by: authority.strangeKey)
        }
      ),
      (
        .untrustedChain, "an intermediate of another root of the same name",
        { receipt, authority in
          receipt.certificates[1] = try intermediate(authority, by: authority.strangeKey)
        }
      ),
      (
        .untrustedChain, "a leaf that signs for itself",
        { receipt, authority in
          receipt.certificates[0] = try leaf(authority, by: authority.leafKey)
        }
      ),
      (
        .untrustedChain, "an intermediate that names another issuer",
        { receipt, authority in
          receipt.certificates[1] = try intermediate(authority) { $0.issuer = "Another CA" }
        }
      ),
      (
        .untrustedChain, "a leaf that the root itself issued",
        { receipt, authority in
          receipt.leafRequest.issuer = "Root"
          receipt.certificates[0] = try leaf(authority, by: authority.rootKey) {
            $0.issuer = "Root"
          }
        }
      ),
      (
        .missingMarker, "a leaf for something else",
        { receipt, authority in
          receipt.certificates[0] = try leaf(authority) { $0.marker = nil }
        }
      ),
      (
        .missingMarker, "an intermediate for something else",
        { receipt, authority in
          receipt.certificates[1] = try intermediate(authority) { $0.marker = nil }
        }
      ),
      (
        .wrongUse, "an intermediate that is no authority",
        { receipt, authority in
          receipt.certificates[1] = try intermediate(authority) { $0.isAuthority = false }
        }
      ),
      (
        .wrongUse, "an intermediate that may not sign certificates",
        { receipt, authority in
          receipt.certificates[1] = try intermediate(authority) {
            $0.usage = KeyUsage(digitalSignature: true)
          }
        }
      ),
      (
        .wrongUse, "a leaf that may not sign",
        { receipt, authority in
          receipt.certificates[0] = try leaf(authority) { $0.usage = KeyUsage(keyAgreement: true) }
        }
      ),
      (
        .outsideValidity, "a leaf that expired a second before",
        { receipt, authority in
          receipt.certificates[0] = try leaf(authority) { $0.to = "2024-06-01T09:59:59Z" }
        }
      ),
      (
        .outsideValidity, "a leaf of a second later",
        { receipt, authority in
          receipt.certificates[0] = try leaf(authority) { $0.from = "2024-06-01T10:00:01Z" }
        }
      ),
      (
        .outsideValidity, "an intermediate that had expired",
        { receipt, authority in
          receipt.certificates[1] = try intermediate(authority) { $0.to = "2024-01-01T00:00:00Z" }
        }
      ),
      (
        .wrongBundleID, "another app",
        { receipt, _ in receipt.set(2, ASN1Bytes.utf8("com.example.other")) }
      ),
      (
        .wrongBundleID, "nearly the app",
        { receipt, _ in receipt.set(2, ASN1Bytes.utf8("com.example.App")) }
      ),
      (.wrongBundleID, "no app", { receipt, _ in receipt.set(2, nil) }),
      (
        .malformed, "two apps",
        { receipt, _ in receipt.attributes.append((2, ASN1Bytes.utf8("com.example.app"))) }
      ),
      (
        .wrongEnvironment, "an environment of its own",
        { receipt, _ in receipt.set(0, ASN1Bytes.utf8("Staging")) }
      ),
      (.wrongEnvironment, "no environment", { receipt, _ in receipt.set(0, nil) }),
      (
        .wrongEnvironment, "Xcode's, even with Apple's signature",
        { receipt, _ in receipt.set(0, ASN1Bytes.utf8("Xcode")) }
      ),
      (.malformed, "no creation date", { receipt, _ in receipt.set(12, nil) }),
      (
        .malformed, "a creation date that is none",
        { receipt, _ in receipt.set(12, ASN1Bytes.ia5("yesterday")) }
      ),
      (
        .malformed, "two creation dates",
        { receipt, _ in
          receipt.attributes.append((12, ASN1Bytes.ia5("2024-06-01T10:00:00Z")))
        }
      ),
    ]
    for forgery in forgeries {
      let verdict = try verdict(forgery.change)
      #expect(verdict.failure?.reason == forgery.reason, "\(forgery.name): \(verdict)")
    }
  }

  @Test func `a forged content is refused even when only one letter of it differs`() throws {
    let authority = try ReceiptAuthority.shared
    var bytes = try TestReceipt(by: authority).bytes()
    let name = Array("com.example.app".utf8)
    let position = try #require(
      bytes.indices.first { bytes[$0...].starts(with: name) })
    bytes[position] = UInt8(ascii: "k")
    let verdict = try authority.verifier(["com.example.app", "kom.example.app"])
      .verify(bytes.base64)
    #expect(verdict.failure?.reason == .wrongSignature)
  }

  @Test func `data that is not a receipt is distinguished`() throws {
    let verifier = try ReceiptAuthority.shared.verifier()
    let texts: [(reason: LocalReceiptRefusal.Reason, text: String)] = [
      (.notBase64, ""), (.notBase64, "MIIB*"), (.notBase64, "MIIB MIIB"),
      (.notAReceipt, Array("receipt".utf8).base64), (.notAReceipt, [0x30, 0x80].base64),
      (.notAReceipt, [0x30, 0x03, 0x02, 0x01].base64), (.notAReceipt, [0x30, 0x00].base64),
      (.notAReceipt, [0x30, 0x03, 0x02, 0x01, 0x07, 0x00].base64),
      (.malformed, [0x30, 0x03, 0x02, 0x01, 0x07].base64),
      (
        .notAReceipt,
        ASN1Bytes.element(
          0x30, ASN1Bytes.objectIdentifier(0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 3)
        ).base64
      ),
      (.transactionReceipt, Array("{ \"purchase-info\" = \"\"; }".utf8).base64),
      (.tooLarge, String(repeating: "A", count: 16 * 1024 * 1024 + 4)),
    ]
    for (reason, text) in texts {
      #expect(verifier.verify(text).failure?.reason == reason, "\(text.prefix(40))")
    }
  }

  @Test func `Xcode's receipts count only where development asks for them, as sandbox`() throws {
    let xcode: Change = { receipt, authority in
      receipt.encoding = .xcode
      receipt.set(0, ASN1Bytes.utf8("Xcode"))
      receipt.set(21, ASN1Bytes.ia5("4001-01-01T00:00:00Z"))
      // StoreKit's own certificate is root and signer in one.
      receipt.leafRequest = ReceiptAuthority.Request(
        subject: "StoreKit", issuer: "StoreKit", serialNumber: 1, isAuthority: true)
      receipt.certificates = [
        try ReceiptAuthority.certificate(
          receipt.leafRequest, of: authority.leafKey, by: authority.leafKey)
      ]
    }
    #expect(try verdict(xcode).failure?.reason == .strangeCertificate)
    let receipt = try verdict(xcode, acceptsXcode: true).get()
    #expect(receipt.environment == .sandbox)
    #expect(receipt.contents.expirationDate == (try Timestamp("4001-01-01T00:00:00Z")))
    // Even so its signature has to hold, and Apple's environments keep theirs.
    let forged = try verdict(
      { receipt, authority in
        try xcode(&receipt, authority)
        receipt.key = authority.strangeKey
      }, acceptsXcode: true)
    #expect(forged.failure?.reason == .wrongSignature)
    let disguised = try verdict(
      { receipt, authority in
        try xcode(&receipt, authority)
        receipt.set(0, ASN1Bytes.utf8("Production"))
      }, acceptsXcode: true)
    #expect(disguised.failure?.reason == .strangeCertificate)
  }

  @Test func `only the named app's receipts are accepted where one is named`() throws {
    #expect(try verdict(named: "com.example.app").failure == nil)
    #expect(try verdict(named: "com.example.other").failure?.reason == .wrongBundleID)
  }
}

private func leaf(
  _ authority: ReceiptAuthority, by key: ReceiptAuthority.Key? = nil,
  _ change: (inout ReceiptAuthority.Request) -> Void = { _ in }
) throws -> [UInt8] {
  var request = ReceiptAuthority.leafRequest
  change(&request)
  return try ReceiptAuthority.certificate(
    request, of: authority.leafKey, by: key ?? authority.intermediateKey)
}

private func intermediate(
  _ authority: ReceiptAuthority, by key: ReceiptAuthority.Key? = nil,
  _ change: (inout ReceiptAuthority.Request) -> Void = { _ in }
) throws -> [UInt8] {
  var request = ReceiptAuthority.intermediateRequest
  change(&request)
  return try ReceiptAuthority.certificate(
    request, of: authority.intermediateKey, by: key ?? authority.rootKey)
}
