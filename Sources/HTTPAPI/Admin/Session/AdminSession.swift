import Crypto
import Foundation
import Subscriptions

/// Who is logged in to the administrator's pages, and until when.
///
/// Nothing of it is stored: the cookie says whose session it is and when it ends, signed with a key
/// that is made of that administrator's secret. So every process knows every session, and a key
/// that goes from the settings, or gets another secret, ends its own.
struct AdminSession: Sendable {
  /// Long enough for a day's work, and short enough that a forgotten browser is none the next day.
  static let lifetime: Duration = .hours(12)

  /// The name of the key.
  let administrator: String
  /// Whose, until when, and a random number: what the cookie says before its signature.
  private let claim: String
  private let key: SymmetricKey

  /// What is signed with a session's key; a signature of one kind is none of another.
  private enum Label: String {
    case session
    case form
    case flash
  }

  /// Begins a session.
  init(of administrator: String, key: SymmetricKey, at now: Timestamp) {
    self.administrator = administrator
    self.key = key
    let name = Base64URL.text(of: Array(administrator.utf8))
    let end = (now + Self.lifetime).milliseconds
    let random = (0..<16).map { _ in UInt8.random(in: .min ... .max) }
    claim = "\(name).\(end).\(Base64URL.text(of: random))"
  }

  /// Reads what a cookie says; nil if it is forged, over, or of a key that there is not any more.
  init?(cookie: String, keys: APIKeys, at now: Timestamp) {
    let parts = cookie.split(separator: ".", omittingEmptySubsequences: false)
    guard parts.count == 4, let name = Base64URL.bytes(of: parts[0]),
      let signature = Base64URL.bytes(of: parts[3]), let end = Int64(parts[1])
    else { return nil }
    let administrator = String(decoding: name, as: UTF8.self)
    guard let key = keys.sessionKey(ofAdministrator: administrator) else { return nil }
    self.administrator = administrator
    self.key = key
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
      of: Array(HMAC<SHA256>.authenticationCode(for: Self.message(text, label), using: key)))
  }

  private func isSignature(_ bytes: [UInt8], of text: String, _ label: Label) -> Bool {
    HMAC<SHA256>.isValidAuthenticationCode(
      bytes, authenticating: Self.message(text, label), using: key)
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
    let standard = text.replacing("-", with: "+").replacing("_", with: "/")
    let padding = String(repeating: "=", count: (4 - standard.utf8.count % 4) % 4)
    guard let data = Data(base64Encoded: standard + padding), self.text(of: Array(data)) == text
    else { return nil }
    return Array(data)
  }
}
