package import Crypto
package import Secrets
import Subscriptions

/// The keys with which app servers and administrators call.
package struct APIKeys: Sendable {
  /// What a caller may do.
  package enum Role: String, CaseIterable, Comparable, Sendable {
    case app
    case admin

    /// Administrators may do all that app servers may.
    package static func < (lhs: Role, rhs: Role) -> Bool { lhs == .app && rhs == .admin }
  }

  /// Whose key it is.
  package struct Caller: Hashable, Sendable {
    package let name: String
    package let role: Role

    package init(name: String, role: Role) {
      self.name = name
      self.role = role
    }
  }

  fileprivate struct Key: Sendable {
    let caller: Caller
    /// Of the secret: digests are of one length, and comparing them tells nothing of the secrets.
    let digest: SHA256Digest
    /// Signs the sessions of whoever logs in with the key; made of the secret, so that they end
    /// when it changes.
    let sessionKey: Secret<SymmetricKey>
  }

  private let keys: [Key]

  /// Reads keys as they are configured: `name:role:secret`, comma separated.
  ///
  /// - Throws: ``APIKeyError``, which names the entry and what would be right, and no secret.
  package init(parsing text: Secret<String>) throws {
    var keys: [Key] = []
    for (index, entry) in text.revealed.split(separator: ",", omittingEmptySubsequences: false)
      .enumerated()
    {
      let key = try Key(parsing: entry.trimmingSpaces, number: index + 1)
      guard !keys.contains(where: { $0.caller.name == key.caller.name }) else {
        throw APIKeyError(entry: index + 1, fault: .duplicateName)
      }
      guard !keys.contains(where: { $0.digest == key.digest }) else {
        throw APIKeyError(entry: index + 1, fault: .duplicateSecret)
      }
      keys.append(key)
    }
    self.keys = keys
  }

  /// Finds who calls.
  ///
  /// Every key is compared, each in constant time, whether or not one has matched: how long it
  /// takes tells nothing.
  ///
  /// - Parameter authorization: The value of the header field `Authorization`.
  /// - Returns: Nil for what is no key of ours.
  func caller(authorization: String) -> Caller? {
    let field = authorization.utf8
    guard field.count > Self.scheme.count,
      zip(field, Self.scheme).allSatisfy({ $0 | 0x20 == $1 | 0x20 })
    else { return nil }
    return caller(secret: Array(field.dropFirst(Self.scheme.count)))
  }

  /// Finds whose secret it is, with as little to be learned from the time that it takes.
  ///
  /// - Returns: Nil for what is no secret of ours.
  package func caller(secret: [UInt8]) -> Caller? {
    let digest = SHA256.hash(data: secret)
    var caller: Caller?
    for key in keys where key.digest == digest { caller = key.caller }
    return caller
  }

  /// What signs an administrator's sessions; nil: there is no such administrator, or not any more.
  package func sessionKey(ofAdministrator name: String) -> Secret<SymmetricKey>? {
    // A cookie chooses the name: it is compared by bytes.
    let name = ExactText(name)
    return keys.first { $0.caller.role == .admin && ExactText($0.caller.name) == name }?.sessionKey
  }

  /// The limit of webhook secrets, too: shorter ones could be guessed.
  static let shortestSecret = 16

  /// Schemes are compared without case (RFC 9110, section 11.1).
  private static let scheme = Array("bearer ".utf8)
}

/// What is wrong with the configured keys.
///
/// Never shows an entry's text: any part of it may be a secret.
package struct APIKeyError: Error, Hashable, Sendable, CustomStringConvertible {
  /// What is wrong with an entry.
  package enum Fault: Hashable, Sendable {
    case notThreeParts
    case emptyName
    case unknownRole
    case shortSecret
    /// It has characters that no header field can carry.
    case unusableSecret
    case duplicateName
    case duplicateSecret
  }

  /// The entry's place, from 1.
  package let entry: Int
  package let fault: Fault

  package var description: String {
    let fault =
      switch fault {
      case .notThreeParts: "is not of the form name:role:secret"
      case .emptyName: "has no name before its first colon"
      case .unknownRole: "has a second part that is no role: it must be app or admin"
      case .shortSecret:
        "has a secret of fewer than \(APIKeys.shortestSecret) characters: `openssl rand -hex 32` "
          + "makes a good one"
      case .unusableSecret: "has a secret with spaces, control or non-ASCII characters"
      case .duplicateName: "has the name of an entry before it: names must differ"
      case .duplicateSecret: "has the secret of an entry before it: secrets must differ"
      }
    return "API key \(entry) \(fault). Right would be, for example: "
      + "shop:app:SECRET,ops:admin:OTHER-SECRET"
  }
}

extension APIKeys.Key {
  fileprivate init(parsing entry: Substring, number: Int) throws {
    let parts = entry.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
    guard parts.count == 3 else { throw APIKeyError(entry: number, fault: .notThreeParts) }
    guard !parts[0].isEmpty else { throw APIKeyError(entry: number, fault: .emptyName) }
    guard let role = APIKeys.Role(exactly: String(parts[1])) else {
      throw APIKeyError(entry: number, fault: .unknownRole)
    }
    guard parts[2].utf8.count >= APIKeys.shortestSecret else {
      throw APIKeyError(entry: number, fault: .shortSecret)
    }
    guard parts[2].utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else {
      throw APIKeyError(entry: number, fault: .unusableSecret)
    }
    caller = APIKeys.Caller(name: String(parts[0]), role: role)
    let secret = Array(parts[2].utf8)
    digest = SHA256.hash(data: secret)
    sessionKey = Secret(
      SymmetricKey(
        data: HMAC<SHA256>.authenticationCode(
          for: Array("tenure admin session".utf8), using: SymmetricKey(data: secret))))
  }
}

extension Substring {
  fileprivate var trimmingSpaces: Substring {
    var text = self
    while text.first?.isWhitespace == true { text.removeFirst() }
    while text.last?.isWhitespace == true { text.removeLast() }
    return text
  }
}
