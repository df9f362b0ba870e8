/// Why a local receipt is not believed.
package struct LocalReceiptRefusal: Error, Hashable, Sendable, CustomStringConvertible {
  /// What is wrong, one case per kind of fault or forgery.
  package enum Reason: String, CaseIterable, Sendable {
    case notBase64 = "not_base64"
    case tooLarge = "too_large"
    /// Something else than PKCS#7 SignedData around a receipt.
    case notAReceipt = "not_a_receipt"
    /// A receipt of iOS 6: Apple signed it in another way, and only Apple can check it.
    case transactionReceipt = "transaction_receipt"
    /// The parts are there and can't be read.
    case malformed
    /// Nobody signed, or several did.
    case notOneSigner = "not_one_signer"
    case unsupportedAlgorithm = "unsupported_algorithm"
    /// The certificate of the signer is not in the receipt.
    case missingCertificate = "missing_certificate"
    /// A certificate can't be read, or has no place in the chain.
    case strangeCertificate = "strange_certificate"
    /// The chain does not end at a root that is trusted.
    case untrustedChain = "untrusted_chain"
    /// A certificate was not valid when the receipt was made.
    case outsideValidity = "outside_validity"
    /// A certificate is used for what it was not issued for.
    case wrongUse = "wrong_use"
    /// A certificate of Apple's, but not one for receipts.
    case missingMarker = "missing_marker"
    case wrongSignature = "wrong_signature"
    case wrongBundleID = "wrong_bundle_id"
    case wrongEnvironment = "wrong_environment"
  }

  package let reason: Reason
  /// One plain sentence, without contents.
  package let description: String

  init(_ reason: Reason, _ description: String) {
    self.reason = reason
    self.description = description
  }
}

/// What is wrong with a part of a receipt, as a clause and without its values.
struct ReceiptFault: Error, Hashable, CustomStringConvertible {
  let description: String

  init(_ description: String) { self.description = description }
}
