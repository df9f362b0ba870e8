package import Secrets

/// An app that is served.
package struct AppStoreApp: Hashable, Sendable, CustomStringConvertible {
  package let bundleID: String
  /// The app's number in the App Store; nil where it isn't to be checked.
  package let appleID: Int64?
  /// The app-specific or primary shared secret: verifyReceipt's `password`.
  package let sharedSecret: Secret<String>?

  /// Throws `AppStoreSettingError` for a value that no app can have, without repeating it: a secret
  /// may stand in the wrong place.
  package init(
    bundleID: String, appleID: Int64? = nil, sharedSecret: Secret<String>? = nil
  ) throws {
    guard !bundleID.isEmpty, !bundleID.contains(where: { $0.isWhitespace || $0 == "," }) else {
      throw AppStoreSettingError(
        "the bundle id is empty or contains spaces or commas: write it as in Xcode, for example "
          + "com.example.app")
    }
    if let appleID, appleID <= 0 {
      throw AppStoreSettingError(
        "the Apple ID is not a positive number: write the app's number in the App Store")
    }
    try Self.check(sharedSecret)
    self.bundleID = bundleID
    self.appleID = appleID
    self.sharedSecret = sharedSecret
  }

  /// Throws `AppStoreSettingError` for a secret that no app can have, without repeating it.
  package static func check(_ sharedSecret: Secret<String>?) throws {
    guard let text = sharedSecret?.revealed else { return }
    guard !text.isEmpty, !text.contains(where: \.isWhitespace) else {
      throw AppStoreSettingError(
        "the shared secret is empty or contains spaces: copy it as App Store Connect shows it, or "
          + "leave it out")
    }
  }

  /// The app without its secret.
  package var description: String {
    bundleID + (appleID.map { " (Apple ID \($0))" } ?? "")
      + (sharedSecret == nil ? " without a shared secret" : " with a shared secret")
  }
}
