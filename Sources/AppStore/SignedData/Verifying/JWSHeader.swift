import JSONText

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
