package import Subscriptions

import Foundation

/// Where verifyReceipt is asked, for each of Apple's two environments.
package struct VerifyReceiptEndpoints: Hashable, Sendable {
  package let production: String
  package let sandbox: String

  /// Apple's own (https://developer.apple.com/documentation/appstorereceipts/verifyreceipt).
  package static let apple = VerifyReceiptEndpoints(
    unchecked: "https://buy.itunes.apple.com/verifyReceipt",
    sandbox: "https://sandbox.itunes.apple.com/verifyReceipt")

  /// The longest URL: what the audit trail keeps with each exchange.
  private static let longest = 255

  /// Throws `AppStoreSettingError` for a URL that is not HTTP, names no host or is too long.
  package init(production: String, sandbox: String) throws {
    for url in [production, sandbox] {
      let parts = URLComponents(string: url)
      guard ["http", "https"].contains(parts?.scheme?.lowercased()), parts?.host?.isEmpty == false
      else {
        throw AppStoreSettingError(
          "\"\(url)\" is not the URL of a verifyReceipt: write it whole, for example "
            + VerifyReceiptEndpoints.apple.production)
      }
      guard url.unicodeScalars.count <= Self.longest else {
        throw AppStoreSettingError(
          "the URL has \(url.unicodeScalars.count) characters, of which there may be "
            + "\(Self.longest)")
      }
    }
    self.init(unchecked: production, sandbox: sandbox)
  }

  private init(unchecked production: String, sandbox: String) {
    self.production = production
    self.sandbox = sandbox
  }

  /// The URL of that environment.
  package subscript(environment: Environment) -> String {
    switch environment {
    case .production: production
    case .sandbox: sandbox
    }
  }
}
