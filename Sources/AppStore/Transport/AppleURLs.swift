import Foundation
package import Subscriptions

package struct AppleURLs: Hashable, Sendable {
  package let production: String
  package let sandbox: String
  /// Whether the calls' own paths are appended to the URLs, which have no trailing slash then.
  private let isBase: Bool

  // https://developer.apple.com/documentation/appstorereceipts/verifyreceipt
  package static let verifyReceipt = AppleURLs(
    production: "https://buy.itunes.apple.com/verifyReceipt",
    sandbox: "https://sandbox.itunes.apple.com/verifyReceipt", isBase: false)

  /// The host names introduced in May 2026.
  package static let serverAPI = AppleURLs(
    production: "https://api.storekit.apple.com",
    sandbox: "https://api.storekit-sandbox.apple.com", isBase: true)

  /// The length of the column in which exchanges store their URL.
  private static let longest = 255

  /// Replaces Apple's URLs; fails unless each is HTTP with a host, and not too long.
  package func replaced(production: String?, sandbox: String?) throws -> AppleURLs {
    AppleURLs(
      production: try production.map(checked) ?? self.production,
      sandbox: try sandbox.map(checked) ?? self.sandbox, isBase: isBase)
  }

  private func checked(_ url: String) throws -> String {
    let parts = URLComponents(string: url)
    guard ["http", "https"].contains(parts?.scheme?.lowercased()), parts?.host?.isEmpty == false,
      !isBase || (parts?.query == nil && parts?.fragment == nil && parts?.user == nil)
    else {
      let expectation =
        isBase
        ? "the base URL of an App Store Server API: leave out the calls' own paths"
        : "a verifyReceipt URL: use the complete URL"
      throw AppStoreSettingError("\"\(url)\" is not \(expectation), for example \(production)")
    }
    guard url.unicodeScalars.count <= Self.longest else {
      throw AppStoreSettingError(
        "the URL has \(url.unicodeScalars.count) characters; at most \(Self.longest) are allowed")
    }
    return isBase ? String(url.reversed().drop { $0 == "/" }.reversed()) : url
  }

  package subscript(environment: Environment) -> String {
    environment == .production ? production : sandbox
  }
}
