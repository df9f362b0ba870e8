package import Subscriptions

import Foundation

/// Where the App Store Server API is asked, for each of Apple's two environments.
package struct ServerAPIAddresses: Hashable, Sendable {
  /// Without a slash at the end.
  package let production: String
  /// Without a slash at the end.
  package let sandbox: String

  /// Apple's own, under their names since May 2026.
  package static let apple = ServerAPIAddresses(
    unchecked: "https://api.storekit.apple.com",
    sandbox: "https://api.storekit-sandbox.apple.com")

  /// The longest address, so that a whole URL is one that servers accept.
  private static let longest = 255

  /// Throws `AppStoreSettingError` for an address that is not HTTP, names no host, has more than a
  /// path behind it, or is too long.
  package init(production: String, sandbox: String) throws {
    for url in [production, sandbox] {
      let parts = URLComponents(string: url)
      guard ["http", "https"].contains(parts?.scheme?.lowercased()), parts?.host?.isEmpty == false,
        parts?.query == nil, parts?.fragment == nil, parts?.user == nil
      else {
        throw AppStoreSettingError(
          "\"\(url)\" is not the address of an App Store Server API: write it without the calls' "
            + "own paths, for example \(ServerAPIAddresses.apple.production)")
      }
      guard url.unicodeScalars.count <= Self.longest else {
        throw AppStoreSettingError(
          "the address has \(url.unicodeScalars.count) characters, of which there may be "
            + "\(Self.longest)")
      }
    }
    self.init(unchecked: Self.withoutSlash(production), sandbox: Self.withoutSlash(sandbox))
  }

  private init(unchecked production: String, sandbox: String) {
    self.production = production
    self.sandbox = sandbox
  }

  private static func withoutSlash(_ url: String) -> String {
    String(url.reversed().drop { $0 == "/" }.reversed())
  }

  /// The address of that environment.
  package subscript(environment: Environment) -> String {
    switch environment {
    case .production: production
    case .sandbox: sandbox
    }
  }
}
