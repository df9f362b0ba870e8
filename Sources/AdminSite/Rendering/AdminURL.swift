/// Where the administrator's pages are.
///
/// Every link of the pages is made here, so that an id, whatever is in it, stays one part of a path
/// or one value of a query.
package enum PageAddress {
  static let overview = "/admin"
  static let login = "/admin/login"
  static let logout = "/admin/logout"
  static let unclaimed = "/admin/unclaimed"
  static let parked = "/admin/parked"
  static let rejected = "/admin/rejected"
  static let reports = "/admin/reports"

  /// The form for logging in, and where to go on afterwards; nil: to the overview.
  static func login(returnTo path: String?) -> String {
    address(login, query: path.map { [("return_to", $0)] } ?? [])
  }

  /// The form for logging in, for whoever sent a form after the session had ended.
  static let loginAfterForm = "/admin/login?ended=yes"

  /// A page with what is chosen of it, such as where a list goes on.
  static func page(_ path: String, query: [(name: String, value: String)]) -> String {
    let separator = path.contains("?") ? "&" : "?"
    return query.isEmpty ? path : path + address("", query: query).replacing("?", with: separator)
  }

  /// Whether a path is one of the pages, or of what belongs to them.
  static func contains(_ path: String) -> Bool {
    // As the router reads it, for which empty parts are none.
    path.utf8.split(separator: UInt8(ascii: "/"), maxSplits: 1).first?.elementsEqual("admin".utf8)
      ?? false
  }

  static func search(_ text: String) -> String {
    address("/admin/search", query: [("q", text)])
  }

  /// An account, or a form about it: `grant`, `merge`, `erase` or `export`.
  ///
  /// Browsers take a part that is only dots out of every path, encoded or not; so such an id goes
  /// into the query, and its forms have a place where no account's name can be.
  static func account(_ id: String, form: String? = nil) -> String {
    guard id == "." || id == ".." else {
      return "/admin/accounts/\(encoded(id))" + (form.map { "/\($0)" } ?? "")
    }
    let path = form.map { "/admin/account-forms/\($0)" } ?? "/admin/accounts"
    return address(path, query: [("id", id)])
  }

  /// An original transaction, or one of its charges in that page.
  static func originalTransaction(
    _ id: String, environment: String, charge: String? = nil
  ) -> String {
    let page = address(
      "/admin/original-transactions/\(encoded(id))", query: [("environment", environment)])
    return page + (charge.map { "#\($0)" } ?? "")
  }

  /// The form that gives a charge to another account.
  static func transfer(
    of transactionID: String, productID: String, environment: String
  ) -> String {
    address(
      "/admin/transactions/\(encoded(transactionID))/transfer",
      query: [("environment", environment), ("product_id", productID)])
  }

  /// The form that takes a charge away from whoever has it.
  static func release(
    of transactionID: String, productID: String, environment: String
  ) -> String {
    address(
      "/admin/transactions/\(encoded(transactionID))/release",
      query: [("environment", environment), ("product_id", productID)])
  }

  /// The form that takes a grant back.
  static func revocation(ofGrant id: String) -> String { "/admin/grants/\(encoded(id))/revoke" }

  /// A report, with what is chosen of it.
  static func report(_ name: String, choices: [(name: String, value: String)] = []) -> String {
    address("/admin/reports/\(encoded(name))", query: choices)
  }

  /// The transactions behind a number of a report.
  static func drillDown(_ name: String, choices: [(name: String, value: String)]) -> String {
    address("/admin/reports/\(encoded(name))/transactions", query: choices)
  }

  /// The longest path that a login leads back to, in bytes.
  private static let longestReturn = 2048

  /// Whether a login may lead back to a path: a page of ours, not too long, and nothing that a
  /// browser reads as another host.
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

  /// Percent-encodes all but what RFC 3986 calls unreserved.
  private static func encoded(_ text: String) -> String {
    var encoded = ""
    for byte in text.utf8 {
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."),
        UInt8(ascii: "_"), UInt8(ascii: "~"):
        encoded.unicodeScalars.append(Unicode.Scalar(byte))
      default:
        let digits = String(byte, radix: 16, uppercase: true)
        encoded += "%" + (byte < 16 ? "0" : "") + digits
      }
    }
    return encoded
  }
}
