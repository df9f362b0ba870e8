import Secrets
import Subscriptions

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
