import Foundation

/// The URLs of the administrator's pages.
///
/// Identifiers are percent-encoded here, so that each stays one path segment or query value.
package enum AdminURL {
  static let overview = "/admin"
  static let login = "/admin/login"
  static let logout = "/admin/logout"
  static let customers = "/admin/accounts"
  /// The accounts for what is entered, in the query.
  static let suggestions = "/admin/account-suggestions?q="
  static let unclaimed = "/admin/unclaimed"
  static let parked = "/admin/parked"
  static let rejected = "/admin/rejected"
  static let reports = "/admin/reports"
  static let whatIf = "/admin/what-if"
  static let webhooks = "/admin/webhooks"
  static let health = "/admin/health"
  static let products = "/admin/products"
  /// The form for a new product.
  static let productForm = "/admin/product-form"
  static let rates = "/admin/rates"

  /// The login form, with the path to open afterwards (default: the overview).
  ///
  /// - Parameter hasEnded: Whether a form was sent without a session.
  static func login(returnTo path: String?, hasEnded: Bool = false) -> String {
    let ended = hasEnded ? [(name: "ended", value: "yes")] : []
    return page(login, query: ended + (path.map { [("return_to", $0)] } ?? []))
  }

  /// The path and query of a URL.
  static func path(ofURL url: String) -> String? {
    URLComponents(string: url).map { components in
      components.percentEncodedPath + (components.percentEncodedQuery.map { "?\($0)" } ?? "")
    }
  }

  /// Appends a query to a page's path, such as a list's cursor.
  static func page(_ path: String, query: [(name: String, value: String)]) -> String {
    let separator = path.contains("?") ? "&" : "?"
    return query.isEmpty ? path : path + address("", query: query).replacing("?", with: separator)
  }

  /// Whether a path is under `/admin`.
  static func contains(_ path: String) -> Bool {
    // Like the router, ignores empty segments.
    path.utf8.split(separator: UInt8(ascii: "/"), maxSplits: 1).first?.elementsEqual("admin".utf8)
      ?? false
  }

  static func search(_ text: String) -> String {
    address("/admin/search", query: [("q", text)])
  }

  /// An account's page, or one of its forms: `grant`, `merge`, `erase` or `export`.
  ///
  /// Browsers remove `.` and `..` from paths, even encoded, so these ids are passed in the query.
  static func account(_ id: String, form: String? = nil) -> String {
    guard id == "." || id == ".." else {
      return "/admin/accounts/\(encoded(id))" + (form.map { "/\($0)" } ?? "")
    }
    let path = form.map { "/admin/account-forms/\($0)" } ?? "/admin/accounts"
    return address(path, query: [("id", id)])
  }

  /// An original transaction's page, or a charge on it.
  static func originalTransaction(
    _ id: String, environment: String, charge: String? = nil
  ) -> String {
    let page = address(
      "/admin/original-transactions/\(encoded(id))", query: [("environment", environment)])
    return page + (charge.map { "#\($0)" } ?? "")
  }

  /// A form of a charge: `transfer` or `release`.
  static func transaction(
    _ id: String, form: String, productID: String, environment: String
  ) -> String {
    address(
      "/admin/transactions/\(encoded(id))/\(form)",
      query: [("environment", environment), ("product_id", productID)])
  }

  static func revocation(ofGrant id: String) -> String { "/admin/grants/\(encoded(id))/revoke" }

  /// A product's page, or the form that changes it; product IDs may be `.` and `..`, too.
  static func product(_ id: String, isForm: Bool = false) -> String {
    address(isForm ? productForm : "/admin/product", query: [("product_id", id)])
  }

  /// The form that sets a rate: `exchange` or `commission`.
  static func rate(_ kind: String) -> String { "/admin/rates/\(encoded(kind))" }

  /// The form that removes a rate, which the query names.
  static let rateRemoval = "/admin/rates/removal"

  static func report(_ name: String, choices: [(name: String, value: String)] = []) -> String {
    address("/admin/reports/\(encoded(name))", query: choices)
  }

  static func drillDown(_ name: String, choices: [(name: String, value: String)]) -> String {
    address("/admin/reports/\(encoded(name))/transactions", query: choices)
  }

  /// In bytes.
  private static let longestReturn = 2048

  /// Whether a login may redirect to a path: a page under `/admin` of at most 2048 bytes that
  /// browsers can't read as another host.
  static func isOurs(_ path: String) -> Bool {
    path.utf8.count <= longestReturn
      && path.utf8.allSatisfy { (0x21...0x7E).contains($0) && $0 != UInt8(ascii: "\\") }
      && (path == overview || path.hasPrefix("/admin/") || path.hasPrefix("/admin?"))
  }

  private static func address(_ path: String, query: [(name: String, value: String)]) -> String {
    guard !query.isEmpty else { return path }
    return path + "?"
      + query.map { "\(encoded($0.name))=\(encoded($0.value))" }.joined(separator: "&")
  }

  /// Percent-encodes all but the unreserved characters of RFC 3986.
  private static func encoded(_ text: String) -> String {
    text.addingPercentEncoding(withAllowedCharacters: unreserved) ?? ""
  }

  private static let unreserved = CharacterSet(charactersIn: lettersAndDigits + "-._~")
}

private let lettersAndDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

extension String {
  /// The text with a hyphen for each byte that is not a letter or digit of ASCII.
  var anchorName: String {
    String(
      decoding: utf8.map { lettersAndDigits.utf8.contains($0) ? $0 : UInt8(ascii: "-") },
      as: UTF8.self)
  }
}
