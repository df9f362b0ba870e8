import Foundation
package import Subscriptions

/// The URLs of verifyReceipt.
package typealias VerifyReceiptEndpoints = AppleURLs<VerifyReceiptService>

/// The base URLs of the App Store Server API, without a trailing slash.
package typealias ServerAPIAddresses = AppleURLs<ServerAPIService>

/// The URLs of one of Apple's services.
package struct AppleURLs<Service: AppleService>: Hashable, Sendable {
  package let production: String
  package let sandbox: String

  package static var apple: Self { Self(unchecked: Service.production, Service.sandbox) }

  /// The length of the column in which exchanges store their URL.
  private static var longest: Int { 255 }

  /// Fails unless each URL is HTTP with a host, and not too long.
  package init(production: String, sandbox: String) throws {
    for url in [production, sandbox] {
      let parts = URLComponents(string: url)
      guard ["http", "https"].contains(parts?.scheme?.lowercased()), parts?.host?.isEmpty == false,
        !Service.isBase || (parts?.query == nil && parts?.fragment == nil && parts?.user == nil)
      else {
        throw AppStoreSettingError(
          "\"\(url)\" is not \(Service.expectation), for example \(Service.production)")
      }
      guard url.unicodeScalars.count <= Self.longest else {
        throw AppStoreSettingError(
          "the URL has \(url.unicodeScalars.count) characters; at most \(Self.longest) are "
            + "allowed")
      }
    }
    self.init(unchecked: production, sandbox)
  }

  private init(unchecked production: String, _ sandbox: String) {
    func withoutSlash(_ url: String) -> String {
      Service.isBase ? String(url.reversed().drop { $0 == "/" }.reversed()) : url
    }
    self.production = withoutSlash(production)
    self.sandbox = withoutSlash(sandbox)
  }

  package subscript(environment: Environment) -> String {
    switch environment {
    case .production: production
    case .sandbox: sandbox
    }
  }
}

package protocol AppleService: Hashable, Sendable {
  /// Apple's URLs.
  static var production: String { get }
  static var sandbox: String { get }
  /// The end of the sentence "… is not" about another URL.
  static var expectation: String { get }
  /// Whether the calls' own paths are appended to the URL.
  static var isBase: Bool { get }
}

// https://developer.apple.com/documentation/appstorereceipts/verifyreceipt
package enum VerifyReceiptService: AppleService {
  package static let production = "https://buy.itunes.apple.com/verifyReceipt"
  package static let sandbox = "https://sandbox.itunes.apple.com/verifyReceipt"
  package static let expectation = "a verifyReceipt URL: use the complete URL"
  package static let isBase = false
}

/// The host names introduced in May 2026.
package enum ServerAPIService: AppleService {
  package static let production = "https://api.storekit.apple.com"
  package static let sandbox = "https://api.storekit-sandbox.apple.com"
  package static let expectation =
    "the base URL of an App Store Server API: leave out the calls' own paths"
  package static let isBase = true
}
