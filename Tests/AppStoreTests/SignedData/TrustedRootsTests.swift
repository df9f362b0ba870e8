import Crypto
import Foundation
import SwiftASN1
import Testing
import X509

@testable import AppStore

/// The roots that everything signed has to lead back to.
struct TrustedRootsTests {
  @Test func `Apple's root is the one that Apple publishes`() throws {
    let der = try PEMDocument(pemString: TrustedRoots.appleRootCAG3).derBytes
    let digest = SHA256.hash(data: der).map { String(format: "%02X", $0) }.joined()
    #expect(digest == "63343ABFB89A6A03EBB57E9B3F5FA7BE7C4F5C756F3017B3A8C488C3653E9179")
    let roots = TrustedRoots.apple.certificates
    #expect(roots.count == 1)
    #expect(roots.first?.subject.description.contains("Apple Root CA - G3") == true)
  }

  @Test func `several roots, and each counts`() async throws {
    let authorities = [TestAuthority.forger, .apple]
    let pem = try authorities.map { try $0.root.serializeAsPEM().pemString }
    let roots = try TrustedRoots(pem: pem.joined(separator: "\n"))
    let verifier = try Signed.verifier(roots: roots)
    for leaf in [TestLeaf.apple, .forger] {
      let text = try DraftJWS(Signed.transaction).with { $0.leaf = leaf }.text
      #expect(await verifier.transaction(text).reason == nil)
    }
  }

  @Test func `nothing of a test's is Apple's`() async throws {
    let text = try DraftJWS(Signed.transaction).text
    let verifier = try Signed.verifier(roots: .apple)
    #expect(await verifier.transaction(text).reason == .untrustedChain)
  }

  @Test func `what can't be a root`() throws {
    let leaf = try TestLeaf.apple.certificates[0].serializeAsPEM().pemString
    let key = P256.Signing.PrivateKey().pemRepresentation
    for text in ["", "root", leaf, key, String(TrustedRoots.appleRootCAG3.dropLast(40))] {
      #expect(throws: AppStoreSettingError.self) { try TrustedRoots(pem: text) }
    }
  }
}
