package import Secrets
import Subscriptions

package struct AppStoreApp: Hashable, Sendable, CustomStringConvertible {
  package let bundleID: String
  /// The app's Apple ID; nil if it is not checked.
  package let appleID: Int64?
  /// The app-specific or primary shared secret, sent to verifyReceipt as `password`.
  package let sharedSecret: Secret<String>?

  /// Errors never repeat a value, because a secret may have been put in the wrong place.
  package init(
    bundleID: String, appleID: Int64? = nil, sharedSecret: Secret<String>? = nil
  ) throws {
    guard !bundleID.isEmpty, !bundleID.contains(where: { $0.isWhitespace || $0 == "," }) else {
      throw AppStoreSettingError(
        "the bundle ID is empty or contains spaces or commas: write it as in Xcode, for example "
          + "com.example.app")
    }
    if let appleID, appleID <= 0 {
      throw AppStoreSettingError(
        "the Apple ID is not a positive number: use the app's number in the App Store")
    }
    try Self.check(sharedSecret)
    (self.bundleID, self.appleID, self.sharedSecret) = (bundleID, appleID, sharedSecret)
  }

  package static func check(_ sharedSecret: Secret<String>?) throws {
    guard let text = sharedSecret?.revealed else { return }
    guard !text.isEmpty, !text.contains(where: \.isWhitespace) else {
      throw AppStoreSettingError(
        "the shared secret is empty or contains spaces: copy it as App Store Connect shows it, or "
          + "leave it out")
    }
  }

  package var description: String {
    bundleID + (appleID.map { " (Apple ID \($0))" } ?? "")
      + (sharedSecret == nil ? " without a shared secret" : " with a shared secret")
  }
}

/// The configured apps; evidence for any other app is refused.
package struct AppStoreApps: Sendable {
  package let all: [AppStoreApp]

  package init(_ apps: [AppStoreApp]) throws {
    guard !apps.isEmpty else {
      throw AppStoreSettingError("no app is configured: name at least one bundle ID")
    }
    var entries: [ExactText: Int] = [:]
    for (index, app) in apps.enumerated() {
      guard let first = entries.updateValue(index + 1, forKey: ExactText(app.bundleID)) else {
        continue
      }
      throw AppStoreSettingError(
        "entries \(first) and \(index + 1) have the same bundle ID: name each app once")
    }
    all = apps
  }

  package subscript(bundleID: String) -> AppStoreApp? {
    all.first { ExactText($0.bundleID) == ExactText(bundleID) }
  }

  /// Each distinct secret once, first that of the app `likeliest`; nil means a request without one.
  func secrets(likeliest: String?) -> [Secret<String>?] {
    let first = all.filter { $0.bundleID == likeliest }
    let others = all.filter { $0.bundleID != likeliest }
    var seen: Set<Secret<String>?> = []
    return (first + others).map(\.sharedSecret).filter { seen.insert($0).inserted }
  }
}

package struct AppStoreSettingError: Error, Hashable, CustomStringConvertible {
  package let description: String

  package init(_ description: String) { self.description = description }
}
