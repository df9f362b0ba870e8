/// Why something that is said to be signed by Apple proves nothing to us.
///
/// Names what is wrong and never a content: it may stand in a log and in an answer.
package struct SignedDataRefusal: Error, Hashable, Sendable, CustomStringConvertible {
  /// What was refused.
  package enum Subject: String, Hashable, Sendable {
    case transaction = "signed transaction"
    case renewalInfo = "signed renewal info"
    case appTransaction = "signed app transaction"
    case notification = "notification"
  }

  /// The kinds of forgeries and mistakes, in the order in which they are looked for.
  package enum Reason: String, Hashable, CaseIterable, Sendable {
    case tooLarge = "too_large"
    case notThreeSegments = "not_three_segments"
    case invalidBase64 = "invalid_base64"
    case invalidHeader = "invalid_header"
    case unsupportedAlgorithm = "unsupported_algorithm"
    case criticalHeader = "critical_header"
    /// Xcode's own signature, or an environment of its own, where a setting doesn't allow it.
    case notSignedByApple = "not_signed_by_apple"
    case wrongCertificateCount = "wrong_certificate_count"
    case invalidCertificate = "invalid_certificate"
    case wrongKey = "wrong_key"
    case wrongSignatureLength = "wrong_signature_length"
    case wrongSignature = "wrong_signature"
    case invalidPayload = "invalid_payload"
    case signedInTheFuture = "signed_in_the_future"
    case missingLeafMarker = "missing_leaf_marker"
    case missingIntermediateMarker = "missing_intermediate_marker"
    case wrongKeyUsage = "wrong_key_usage"
    case certificateExpired = "certificate_expired"
    case certificateNotYetValid = "certificate_not_yet_valid"
    case untrustedChain = "untrusted_chain"
    /// Genuine, and something else than it was handed in for.
    case wrongType = "wrong_type"
    case missingField = "missing_field"
    case unusableField = "unusable_field"
    case wrongEnvironment = "wrong_environment"
    case wrongBundleID = "wrong_bundle_id"
    case wrongAppAppleID = "wrong_app_apple_id"
    /// Inside of a notification: each part is genuine, and they don't belong together.
    case otherEnvironment = "other_environment"
    case otherApp = "other_app"
    case otherLine = "other_line"
  }

  package let reason: Reason
  package let subject: Subject
  /// Whether it stood inside of a notification.
  package let isInNotification: Bool
  /// The end of the sentence, from its verb.
  private let clause: String

  init(_ fault: SignedDataFault, of subject: Subject, isInNotification: Bool = false) {
    reason = fault.reason
    clause = fault.clause
    self.subject = subject
    self.isInNotification = isInNotification
  }

  /// One plain sentence.
  package var description: String {
    (isInNotification ? "The notification's " : "The ") + subject.rawValue + " " + clause + "."
  }
}

/// What is wrong with a text, before it is known what it was handed in for.
struct SignedDataFault: Error {
  let reason: SignedDataRefusal.Reason
  /// The end of a sentence, from its verb: "has two parts".
  let clause: String

  init(_ reason: SignedDataRefusal.Reason, _ clause: String) {
    self.reason = reason
    self.clause = clause
  }

  static func missing(_ field: String) -> SignedDataFault {
    SignedDataFault(.missingField, "lacks the field \(field)")
  }

  static func unusable(_ field: String, _ fault: String) -> SignedDataFault {
    SignedDataFault(.unusableField, "has a field \(field) that \(fault)")
  }
}
