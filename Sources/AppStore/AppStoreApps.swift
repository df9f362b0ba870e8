/// The apps that are served; evidence of any other is refused.
package struct AppStoreApps: Sendable {
  /// In the order in which they are configured.
  package let all: [AppStoreApp]

  /// Throws `AppStoreSettingError` where there is no app, or one twice.
  package init(_ apps: [AppStoreApp]) throws {
    guard !apps.isEmpty else {
      throw AppStoreSettingError("no app is configured: name at least one bundle id")
    }
    var seen: Set<String> = []
    for app in apps where !seen.insert(app.bundleID).inserted {
      throw AppStoreSettingError("\(app.bundleID) is configured twice")
    }
    all = apps
  }

  /// The app of that bundle id, compared exactly.
  package subscript(bundleID: String) -> AppStoreApp? {
    all.first { $0.bundleID == bundleID }
  }
}
