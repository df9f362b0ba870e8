import HTTPTypes
import Hummingbird
import Subscriptions

extension Request {
  /// Whether a form can have come from a page of ours, as far as the browser says.
  ///
  /// Browsers name the origin of every form that is sent; what names none, or where the browser
  /// says that it came from the same origin, may pass: it has to have the session's token all the
  /// same. A proxy may give the name under which it was called in `X-Forwarded-Host`, which no page
  /// of somebody else's can make a browser send.
  var isFromOurPages: Bool {
    // Names of hosts are ASCII in every field: what is not is no page of ours.
    let said = [HTTPField.Name.secFetchSite, .origin, .forwardedHost].compactMap { headers[$0] }
    guard (said + [head.authority ?? ""]).allSatisfy(\.isASCII) else { return false }
    if let site = headers[.secFetchSite], site != "same-origin", site != "none" { return false }
    guard let origin = headers[.origin] else { return true }
    guard let end = origin.firstRange(of: "://") else { return false }
    let host = Self.withoutUsualPort(origin[end.upperBound...])
    let forwarded = headers[.forwardedHost]?.split(separator: ",").first
      .map { $0.filter { !$0.isWhitespace } }
    return [head.authority, forwarded].compactMap(\.self).contains {
      Self.withoutUsualPort($0[...]) == host
    }
  }

  /// Whether the browser came by HTTPS; that is for the proxy to say which ends it.
  var isSecure: Bool {
    headers[.forwardedProto].flatMap { $0.isASCII ? $0 : nil }?.split(separator: ",").first
      .map { $0.filter { !$0.isWhitespace }.lowercased() == "https" } ?? (head.scheme == "https")
  }

  private static func withoutUsualPort(_ host: Substring) -> String {
    let host = host.lowercased()
    return [":443", ":80"].first(where: host.hasSuffix).map { String(host.dropLast($0.count)) }
      ?? host
  }
}

extension HTTPField.Name {
  static let secFetchSite = token("Sec-Fetch-Site")
  static let forwardedHost = token("X-Forwarded-Host")
  static let forwardedProto = token("X-Forwarded-Proto")
  static let forwardedFor = token("X-Forwarded-For")
  static let frameOptions = token("X-Frame-Options")
  static let referrerPolicy = token("Referrer-Policy")
  static let openerPolicy = token("Cross-Origin-Opener-Policy")
  static let resourcePolicy = token("Cross-Origin-Resource-Policy")

  private static func token(_ name: String) -> HTTPField.Name {
    guard let name = HTTPField.Name(name) else { preconditionFailure("The name is a token.") }
    return name
  }
}
