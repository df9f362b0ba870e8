import Crypto
import Foundation
import HTTPAPI
import HTTPTypes
import Hummingbird
import JSONText
import Secrets
import Subscriptions

/// A login to the administrator's pages.
///
/// The cookie holds the administrator's name and the end of the session, signed with a key derived
/// from the administrator's secret: removing or changing an API key ends its sessions. The
/// session's id is in the database until the administrator logs out.
struct AdminSession: Sendable {
  private static let idLength = 16
  /// Long enough for a working day, too short for a forgotten browser the next day.
  static let lifetime: Duration = .hours(12)

  /// The API key.
  let caller: APIKeys.Caller
  /// Random.
  let id: [UInt8]
  let end: Timestamp
  /// The signed part of the cookie: name, end and id.
  private let claim: String
  private let key: Secret<SymmetricKey>

  /// Separates the uses of the session's key.
  private enum Label: String { case session, form, flash }

  init(of caller: APIKeys.Caller, key: Secret<SymmetricKey>, at now: Timestamp) {
    self.caller = caller
    self.key = key
    let name = Base64.encode(url: caller.name.utf8)
    end = now + Self.lifetime
    id = (0..<Self.idLength).map { _ in UInt8.random(in: .min ... .max) }
    claim = "\(name).\(end.milliseconds).\(Base64.encode(url: id))"
  }

  /// The session of a person whom a proxy signed in; it lasts for one request, and its forms are
  /// valid as long as the proxy's secret.
  init(of caller: APIKeys.Caller, signedInByProxyWith secret: Secret<String>) {
    self.caller = caller
    key = Secret(SymmetricKey(data: Array(SHA256.hash(data: Array(secret.revealed.utf8)))))
    id = []
    end = Timestamp(milliseconds: .max)
    claim = "proxy.\(Base64.encode(url: caller.name.utf8))"
  }

  /// Nil for a cookie that is forged, expired, or signed with a removed key.
  init?(cookie: String, keys: APIKeys, at now: Timestamp) {
    let parts = cookie.split(separator: ".", omittingEmptySubsequences: false)
    guard parts.count == 4, let name = Base64.decode(url: Array(parts[0].utf8)[...]),
      let signature = Base64.decode(url: Array(parts[3].utf8)[...]), let end = Int64(parts[1]),
      let id = Base64.decode(url: Array(parts[2].utf8)[...]), id.count == Self.idLength
    else { return nil }
    guard let known = keys.session(of: String(decoding: name, as: UTF8.self)) else { return nil }
    (caller, key) = known
    self.id = id
    self.end = Timestamp(milliseconds: end)
    claim = parts[..<3].joined(separator: ".")
    guard isSignature(signature, of: claim, .session),
      now.milliseconds < end, end <= (now + Self.lifetime + .clockTolerance).milliseconds
    else { return nil }
  }

  var cookie: String { "\(claim).\(signature(of: claim, .session))" }

  /// The CSRF token of the session's forms.
  var formToken: String { signature(of: claim, .form) }

  /// Compares in constant time.
  func isFormToken(_ text: String) -> Bool {
    Base64.decode(url: Array(text.utf8)[...]).map { isSignature($0, of: claim, .form) } ?? false
  }

  // MARK: Flash messages

  /// Signs a message for the next page of the session.
  func seal(_ flash: Flash) -> String {
    let text = Base64.encode(url: (try? JSONEncoder().encode(flash)) ?? Data())
    return "\(text).\(signature(of: claim + text, .flash))"
  }

  /// Reads a signed message, or nil if it was not signed by this session.
  func flash(sealed: String) -> Flash? {
    let parts = sealed.split(separator: ".", omittingEmptySubsequences: false)
    guard parts.count == 2, let signature = Base64.decode(url: Array(parts[1].utf8)[...]),
      isSignature(signature, of: claim + parts[0], .flash),
      let bytes = Base64.decode(url: Array(parts[0].utf8)[...])
    else { return nil }
    return Flash(strictJSON: bytes)
  }

  // MARK: Signatures

  private func signature(of text: String, _ label: Label) -> String {
    Base64.encode(
      url: HMAC<SHA256>.authenticationCode(for: Self.message(text, label), using: key.revealed))
  }

  private func isSignature(_ bytes: [UInt8], of text: String, _ label: Label) -> Bool {
    HMAC<SHA256>.isValidAuthenticationCode(
      bytes, authenticating: Self.message(text, label), using: key.revealed)
  }

  private static func message(_ text: String, _ label: Label) -> [UInt8] {
    Array("\(label.rawValue)\n\(text)".utf8)
  }
}

extension Request {
  /// The value of a cookie, if it is visible ASCII.
  func cookie(_ cookie: AdminCookie) -> String? {
    let prefix = Array("\(cookie.name(on: self))=".utf8)
    for field in headers[values: .cookie] {
      for pair in field.utf8.split(separator: UInt8(ascii: ";")) {
        let pair = pair.drop { $0 == UInt8(ascii: " ") }
        guard pair.starts(with: prefix) else { continue }
        let value = pair.dropFirst(prefix.count)
        guard value.allSatisfy({ (0x21...0x7E).contains($0) }) else { return nil }
        return String(Substring(value))
      }
    }
    return nil
  }
}

/// The names of the pages' cookies.
enum AdminCookie: String {
  case session = "tenure_admin"
  case flash = "tenure_admin_notice"

  /// The name, with the port in the request's Host if there is one: browsers send a host's cookies to
  /// all of its ports, and each server has sessions of its own.
  func name(on request: Request) -> String {
    let port = request.head.authority?.utf8.split(separator: UInt8(ascii: ":")).dropFirst().last
      .flatMap { UInt16(Substring($0)) }
    return rawValue + (port.map { "_\($0)" } ?? "")
  }
}

extension Cookie {
  /// The session's cookie; nil deletes it.
  static func session(_ session: AdminSession?, on request: Request) -> Cookie {
    admin(.session, session?.cookie, lifetime: AdminSession.lifetime, on: request)
  }

  /// The cookie for the next page's message; nil deletes it.
  static func flash(_ sealed: String?, on request: Request) -> Cookie {
    admin(.flash, sealed, lifetime: .minutes(1), on: request)
  }

  /// `SameSite=Lax`, so that links in tickets work; forms also need the session's token.
  private static func admin(
    _ cookie: AdminCookie, _ value: String?, lifetime: Duration, on request: Request
  ) -> Cookie {
    Cookie(
      name: cookie.name(on: request), value: value ?? "",
      maxAge: value == nil ? 0 : Int(lifetime.components.seconds),
      path: AdminURL.overview, secure: request.isSecure,
      // The script looks for the message of a download.
      httpOnly: cookie == .session, sameSite: .lax)
  }
}

/// The part of a request's context that the administrator's pages use.
struct AdminContext: Sendable {
  var session: AdminSession?
  /// The result of the last action, shown once.
  var flash: Flash?
  /// The faults of the page Health, as far as they were looked for.
  var faults: Int?
  /// The fields of a form, after its origin and token were checked.
  var form = EncodedFields()
}

extension APIContext {
  var admin: AdminContext {
    get { site as? AdminContext ?? AdminContext() }
    set { site = newValue }
  }
}

/// Requires the session of a role, and for forms its token and origin.
struct SessionRequired: RouterMiddleware {
  let role: APIKeys.Role

  func handle(
    _ request: Request, context: APIContext,
    next: @concurrent (Request, APIContext) async throws -> Response
  ) async throws -> Response {
    let isReading = request.method == .get || request.method == .head
    guard let session = context.admin.session else {
      // After a form, the page that it is on.
      let page =
        isReading ? request.uri.string : request.headers[.referer].flatMap(AdminURL.path(ofURL:))
      let path = page.flatMap { AdminURL.isOurs($0) ? $0 : nil }
      return .redirect(
        to: AdminURL.login(returnTo: path, hasEnded: !isReading), type: .normal)
    }
    guard session.caller.role >= role else {
      throw Problem(.forbidden, "This page needs a key with the role `\(role.rawValue)`.")
    }
    var context = context
    context.caller = session.caller
    guard !isReading else { return try await next(request, context) }
    guard request.isFromOurPages else { throw ForeignForm() }
    context.admin.form = try await request.form()
    guard let token = context.admin.form["csrf"], session.isFormToken(token.rawValue) else {
      throw ForeignForm()
    }
    return try await next(request, context)
  }
}

/// A form was not sent from a page of the session.
struct ForeignForm: Error {
  static let problem = Problem(
    .forbidden,
    "The form was not sent from a page of this session. Nothing was changed. Reload the page and "
      + "submit the form again.")
}

extension Request {
  /// Whether `Sec-Fetch-Site` and `Origin` permit that the form came from one of our pages.
  ///
  /// Requests without these fields pass, since the session's token is required as well. A proxy may
  /// give its own host in `X-Forwarded-Host`, which foreign pages can't make a browser send.
  var isFromOurPages: Bool {
    // Host names are ASCII in header fields.
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

  /// Whether the browser used HTTPS, as reported by the proxy that terminates TLS.
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
  static let frameOptions = token("X-Frame-Options")
  static let referrerPolicy = token("Referrer-Policy")
  static let openerPolicy = token("Cross-Origin-Opener-Policy")
  static let resourcePolicy = token("Cross-Origin-Resource-Policy")
}
