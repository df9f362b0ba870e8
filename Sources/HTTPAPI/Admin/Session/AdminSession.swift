import Crypto
import Foundation
import Secrets
import Subscriptions

/// Who is logged in to the administrator's pages, and until when.
///
/// The cookie says whose session it is and when it ends, signed with a key that is made of that
/// administrator's secret: a key that is removed from the settings, or gets another secret, ends
/// its sessions. The session's id is listed in the database until the administrator logs out.
struct AdminSession: Sendable {
  private static let idLength = 16
  /// Long enough for a day's work, and short enough that a forgotten browser is none the next day.
  static let lifetime: Duration = .hours(12)

  /// The name of the key.
  let administrator: String
  /// Random.
  let id: [UInt8]
  let end: Timestamp
  /// Whose, until when, and a random number: what the cookie says before its signature.
  private let claim: String
  private let key: Secret<SymmetricKey>

  /// What is signed with a session's key; a signature of one kind is none of another.
  private enum Label: String {
    case session
    case form
    case flash
  }

  /// Begins a session.
  init(of administrator: String, key: Secret<SymmetricKey>, at now: Timestamp) {
    self.administrator = administrator
    self.key = key
    let name = Base64URL.text(of: Array(administrator.utf8))
    end = now + Self.lifetime
    id = (0..<Self.idLength).map { _ in UInt8.random(in: .min ... .max) }
    claim = "\(name).\(end.milliseconds).\(Base64URL.text(of: id))"
  }

  /// Reads what a cookie says; nil if it is forged, over, or of a key that there is not any more.
  init?(cookie: String, keys: APIKeys, at now: Timestamp) {
    let parts = cookie.split(separator: ".", omittingEmptySubsequences: false)
    guard parts.count == 4, let name = Base64URL.bytes(of: parts[0]),
      let signature = Base64URL.bytes(of: parts[3]), let end = Int64(parts[1]),
      let id = Base64URL.bytes(of: parts[2]), id.count == Self.idLength
    else { return nil }
    let administrator = String(decoding: name, as: UTF8.self)
    guard let key = keys.sessionKey(ofAdministrator: administrator) else { return nil }
    self.administrator = administrator
    self.key = key
    self.id = id
    self.end = Timestamp(milliseconds: end)
    claim = parts[..<3].joined(separator: ".")
    guard isSignature(signature, of: claim, .session),
      now.milliseconds < end, end <= (now + Self.lifetime + .clockTolerance).milliseconds
    else { return nil }
  }

  /// What the cookie holds.
  var cookie: String { "\(claim).\(signature(of: claim, .session))" }

  /// What every form of the session sends along.
  var formToken: String { signature(of: claim, .form) }

  /// Whether a form came from a page of this session; compared in constant time.
  func isFormToken(_ text: String) -> Bool {
    Base64URL.bytes(of: text[...]).map { isSignature($0, of: claim, .form) } ?? false
  }

  // MARK: What is told once

  /// Seals what the next page of the session tells.
  func seal(_ flash: Flash) -> String {
    let lines = [flash.tone, flash.message, flash.link?.label, flash.link?.href]
    let text = Base64URL.text(
      of: Array(lines.compactMap(\.self).joined(separator: "\n").utf8))
    return "\(text).\(signature(of: claim + text, .flash))"
  }

  /// Reads what was sealed; nil for what was not sealed in this session.
  func flash(sealed: String) -> Flash? {
    let parts = sealed.split(separator: ".", omittingEmptySubsequences: false)
    guard parts.count == 2, let signature = Base64URL.bytes(of: parts[1]),
      isSignature(signature, of: claim + parts[0], .flash),
      let bytes = Base64URL.bytes(of: parts[0])
    else { return nil }
    let lines = String(decoding: bytes, as: UTF8.self).split(separator: "\n").map(String.init)
    guard lines.count == 2 || lines.count == 4 else { return nil }
    return Flash(
      message: lines[1], tone: lines[0],
      link: lines.count == 4 ? PageLink(label: lines[2], href: lines[3]) : nil)
  }

  // MARK: Signatures

  private func signature(of text: String, _ label: Label) -> String {
    Base64URL.text(
      of: Array(
        HMAC<SHA256>.authenticationCode(for: Self.message(text, label), using: key.revealed)))
  }

  private func isSignature(_ bytes: [UInt8], of text: String, _ label: Label) -> Bool {
    HMAC<SHA256>.isValidAuthenticationCode(
      bytes, authenticating: Self.message(text, label), using: key.revealed)
  }

  private static func message(_ text: String, _ label: Label) -> [UInt8] {
    Array("\(label.rawValue)\n\(text)".utf8)
  }
}

/// Bytes as text of letters, digits, hyphens and underscores (RFC 4648, section 5).
enum Base64URL {
  static func text(of bytes: [UInt8]) -> String {
    Data(bytes).base64EncodedString().replacing("+", with: "-").replacing("/", with: "_")
      .replacing("=", with: "")
  }

  /// Nil for what this does not write.
  static func bytes(of text: Substring) -> [UInt8]? {
    guard String(text).isASCII else { return nil }
    let standard = text.replacing("-", with: "+").replacing("_", with: "/")
    let padding = String(repeating: "=", count: (4 - standard.utf8.count % 4) % 4)
    guard let data = Data(base64Encoded: standard + padding), self.text(of: Array(data)) == text
    else { return nil }
    return Array(data)
  }
}
