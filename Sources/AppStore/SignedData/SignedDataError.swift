/// The reason why data that claims to be signed by Apple is refused, without contents, so
/// that it may be logged and returned to callers.
package struct SignedDataError: Error, Hashable, Sendable, CustomStringConvertible {
  package enum Subject: String, Hashable, Sendable {
    case transaction = "signed transaction"
    case renewalInfo = "signed renewal info"
    case appTransaction = "signed app transaction"
    case notification = "notification"
  }

  /// The kinds of forgeries and mistakes, in the order of the checks.
  package enum Reason: String, Hashable, CaseIterable, Sendable {
    case tooLarge = "too_large"
    case notThreeSegments = "not_three_segments"
    case invalidBase64 = "invalid_base64"
    case invalidHeader = "invalid_header"
    case unsupportedAlgorithm = "unsupported_algorithm"
    case criticalHeader = "critical_header"
    /// Signed by Xcode, or for one of its environments, where that is not allowed.
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
    /// Genuine, but another type than expected.
    case wrongType = "wrong_type"
    case missingField = "missing_field"
    case unusableField = "unusable_field"
    case wrongEnvironment = "wrong_environment"
    case wrongBundleID = "wrong_bundle_id"
    case wrongAppAppleID = "wrong_app_apple_id"
    /// The genuine parts of a notification do not belong together.
    case otherEnvironment = "other_environment"
    case otherApp = "other_app"
    case otherOriginalTransaction = "other_line"
  }

  package let reason: Reason
  package let subject: Subject
  package let isInNotification: Bool
  /// The end of the sentence, from its verb.
  private let clause: String

  init(_ fault: SignedDataFault, of subject: Subject, isInNotification: Bool = false) {
    reason = fault.reason
    clause = fault.clause
    (self.subject, self.isInNotification) = (subject, isInNotification)
  }

  package var description: String {
    (isInNotification ? "The notification's " : "The ") + subject.rawValue + " " + clause + "."
  }
}

/// A problem with a text whose purpose is not yet known.
struct SignedDataFault: Error {
  let reason: SignedDataError.Reason
  /// The end of the sentence, from its verb, such as "has two parts".
  let clause: String

  init(_ reason: SignedDataError.Reason, _ clause: String) {
    (self.reason, self.clause) = (reason, clause)
  }

  static func missing(_ field: String) -> SignedDataFault {
    SignedDataFault(.missingField, "lacks the field \(field)")
  }

  static func unusable(_ field: String, _ fault: String) -> SignedDataFault {
    SignedDataFault(.unusableField, "has a field \(field) that \(fault)")
  }
}
