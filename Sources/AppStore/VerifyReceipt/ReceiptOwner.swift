import Subscriptions

/// The app that a receipt belongs to, as far as it can be told.
enum ReceiptOwner: Hashable {
  case app(AppStoreApp)
  /// The answer names no app, as trimmed payloads do, and only this one can be meant.
  case assumed(AppStoreApp)
  /// One sentence.
  case refused(String)
}

extension AppStoreApps {
  /// The app of a receipt in which Apple named `bundleIDs`; `named` is the sender's word.
  func owner(of bundleIDs: Set<String>, named: String?) -> ReceiptOwner {
    guard let bundleID = bundleIDs.first else {
      if let app = named.flatMap({ self[$0] }) { return .assumed(app) }
      guard let only = all.first, all.count == 1 else {
        return .refused("Apple's answer names no app, and several are served: name the bundle id.")
      }
      return .assumed(only)
    }
    guard bundleIDs.count == 1 else {
      return .refused("The receipt names several apps: \(bundleIDs.sorted()).")
    }
    guard !bundleID.isEmpty else { return .refused("The receipt's bundle id is empty.") }
    guard let app = self[bundleID] else {
      return .refused("The receipt belongs to \(bundleID), which is not served here.")
    }
    guard named.map({ ExactText($0) == ExactText(bundleID) }) ?? true else {
      return .refused("The receipt belongs to \(bundleID), not to \(named ?? "another app").")
    }
    return .app(app)
  }
}
