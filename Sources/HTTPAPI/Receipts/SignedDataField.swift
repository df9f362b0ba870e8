/// A list of JWS that callers send, and what may stand in it.
struct SignedDataField: Sendable {
  /// More than an app has to send at once: StoreKit has one for each purchase that still counts.
  static let maximumCount = 1000
  /// In characters, of each, as the verifier has it.
  ///
  /// Apple's have some 6,000, most of them certificates.
  static let maximumLength = 256 * 1024
  /// In characters, of all lists together: as much as a receipt may have.
  static let maximumTotalLength = 16 * 1024 * 1024

  let name: String

  static let transactions = SignedDataField(name: "signed_transactions")
  static let renewalInfo = SignedDataField(name: "signed_renewal_info")

  /// Returns the list if it may stand in the field.
  ///
  /// Whether anything in it is a JWS, and whose, is for the verification to say.
  ///
  /// - Throws: A ``Problem`` that names the field, or the place in it.
  func checked(_ list: [String]) throws -> [String] {
    guard list.count <= Self.maximumCount else {
      throw Problem.invalid(name, "may have up to \(Self.maximumCount) entries")
    }
    for (index, jws) in list.enumerated() {
      let place = "\(name)[\(index)]"
      guard !jws.isEmpty else { throw Problem.invalid(place, "must not be empty") }
      guard jws.utf8.count <= Self.maximumLength else {
        throw Problem.invalid(place, "may have up to \(Self.maximumLength) characters")
      }
      guard jws.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else {
        throw Problem.invalid(
          place, "must be a JWS as StoreKit has it (`jwsRepresentation`), without spaces")
      }
    }
    return list
  }
}
