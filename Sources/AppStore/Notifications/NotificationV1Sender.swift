import Crypto
import Secrets

/// Whether a notification of version 1 knows the shared secret of an app that is served.
package enum NotificationV1Sender: Hashable, Sendable {
  /// It does. The app is nil where the body names none, and several share the secret.
  case app(bundleID: String?)
  /// One sentence, without anything that was posted.
  case wrongSecret(String)
  case wrongBundleID(String)
}

extension AppStoreApps {
  /// Finds the app that a notification of version 1 comes from.
  ///
  /// Its password is compared with every secret that is configured, each in constant time, whether
  /// or not one has matched: how long it takes tells nothing.
  package func sender(of notification: NotificationV1) -> NotificationV1Sender {
    // Digests are of one length, and comparing them tells nothing of the secrets.
    let password = notification.password.map { SHA256.hash(data: Array($0.utf8)) }
    var matching: [AppStoreApp] = []
    for app in all {
      guard let secret = app.sharedSecret else { continue }
      if SHA256.hash(data: Array(secret.revealed.utf8)) == password { matching.append(app) }
    }
    guard let bundleID = notification.bundleID else {
      switch matching.count {
      case 0:
        return .wrongSecret("The password is the shared secret of no app that is served here.")
      case 1: return .app(bundleID: matching[0].bundleID)
      default: return .app(bundleID: nil)
      }
    }
    guard let app = self[bundleID] else {
      return .wrongBundleID("`bid` names an app that is not served here.")
    }
    guard app.sharedSecret != nil else {
      return .wrongSecret(
        "No shared secret is configured for \(app.bundleID), so nothing can be told of its "
          + "notifications of version 1.")
    }
    guard matching.contains(app) else {
      return .wrongSecret("The password is not the shared secret of \(app.bundleID).")
    }
    return .app(bundleID: bundleID)
  }
}
