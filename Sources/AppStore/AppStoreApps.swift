package import Secrets
import Subscriptions

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

/// The apps that are served; evidence of any other is refused.
package struct AppStoreApps: Sendable {
  /// In the order in which they are configured.
  package let all: [AppStoreApp]

  /// Throws `AppStoreSettingError` where there is no app, or one twice.
  package init(_ apps: [AppStoreApp]) throws {
    guard !apps.isEmpty else {
      throw AppStoreSettingError("no app is configured: name at least one bundle id")
    }
    var entries: [ExactText: Int] = [:]
    for (index, app) in apps.enumerated() {
      guard let first = entries.updateValue(index + 1, forKey: ExactText(app.bundleID)) else {
        continue
      }
      throw AppStoreSettingError(
        "entries \(first) and \(index + 1) have the same bundle id: name each app once")
    }
    all = apps
  }

  /// The app of that bundle id, compared exactly.
  package subscript(bundleID: String) -> AppStoreApp? {
    all.first { ExactText($0.bundleID) == ExactText(bundleID) }
  }

  /// Each secret once: that of the app named `likeliest` first, then in the order of configuration.
  ///
  /// At least one, for there is at least one app; nil: ask without a password.
  func secrets(likeliest: String?) -> [Secret<String>?] {
    let first = all.filter { $0.bundleID == likeliest }
    let others = all.filter { $0.bundleID != likeliest }
    var seen: Set<Secret<String>?> = []
    return (first + others).map(\.sharedSecret).filter { seen.insert($0).inserted }
  }
}

/// A setting that cannot be meant as it stands.
package struct AppStoreSettingError: Error, Hashable, CustomStringConvertible {
  /// One sentence: what is wrong, and what would be right.
  package let description: String

  package init(_ description: String) {
    self.description = description
  }
}
