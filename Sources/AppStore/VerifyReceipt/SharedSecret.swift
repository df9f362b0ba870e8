/// A shared secret, and an app that it belongs to.
struct SharedSecret: Hashable, Sendable {
  /// Nil: ask without a password.
  var value: String?
  /// The first app with that secret; nil for no secret.
  var bundleID: String?
}

extension AppStoreApps {
  /// Each secret once: that of the app named `likeliest` first, then in the order of configuration.
  ///
  /// At least one, for there is at least one app.
  func secrets(likeliest: String?) -> [SharedSecret] {
    let first = all.filter { $0.bundleID == likeliest }
    let others = all.filter { $0.bundleID != likeliest }
    var seen: Set<String?> = []
    return (first + others).filter { seen.insert($0.sharedSecret).inserted }.map { app in
      SharedSecret(
        value: app.sharedSecret, bundleID: app.sharedSecret == nil ? nil : app.bundleID)
    }
  }
}
