package import Crypto
import Foundation
import Hummingbird
package import Secrets
package import Subscriptions
import Synchronization

/// The API keys of app servers, support and administrators, which can be replaced while serving.
package final class APIKeys: Sendable {
  /// Each role may do everything that the ones before may.
  package enum Role: String, CaseIterable, Comparable, Sendable {
    case app
    /// Grants entitlements and changes owners, also on the pages; no reports, erasure or merging.
    case support
    case admin

    package static func < (lhs: Role, rhs: Role) -> Bool {
      allCases.firstIndex(of: lhs) ?? 0 < allCases.firstIndex(of: rhs) ?? 0
    }
  }

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
    /// The secret's digest: comparing digests leaks nothing about the secret.
    let digest: SHA256Digest
    /// Signs the key's admin sessions; derived from the secret, so that they end when it changes.
    let sessionKey: Secret<SymmetricKey>
  }

  private let keys: Mutex<[Key]>
  private let reload = Mutex<Timestamp?>(nil)
  /// When others were last taken over; nil: not since the start.
  package var reloadedAt: Timestamp? { reload.withLock(\.self) }

  /// Parses comma-separated keys `name:role:secret`; an ``APIKeyError`` contains no secret.
  package init(parsing text: Secret<String>) throws {
    var keys: [Key] = []
    for (index, entry) in text.revealed.split(separator: ",", omittingEmptySubsequences: false)
      .enumerated()
    {
      let key = try Key(
        parsing: entry.trimmingCharacters(in: .whitespacesAndNewlines), number: index + 1)
      guard !keys.contains(where: { $0.caller.name == key.caller.name }) else {
        throw APIKeyError(entry: index + 1, fault: "another key has the same name")
      }
      guard !keys.contains(where: { $0.digest == key.digest }) else {
        throw APIKeyError(entry: index + 1, fault: "another key has the same secret")
      }
      keys.append(key)
    }
    self.keys = Mutex(keys)
  }

  /// Takes over other keys, for the next request on; the sessions of removed ones end.
  ///
  /// - Returns: Whether they differ.
  package func replace(by other: APIKeys, at now: Timestamp) -> Bool {
    let new = other.keys.withLock(\.self)
    let isOther = keys.withLock { keys in
      defer { keys = new }
      return !keys.elementsEqual(new) { $0.caller == $1.caller && $0.digest == $1.digest }
    }
    if isOther { reload.withLock { $0 = now } }
    return isOther
  }

  package var callers: [Caller] { keys.withLock { $0.map(\.caller) } }

  /// The caller of a request with this `Authorization` field, or nil if the key is not configured.
  package func caller(authorization: String) -> Caller? {
    let field = authorization.utf8
    guard field.count > Self.scheme.count,
      zip(field, Self.scheme).allSatisfy({ $0 | 0x20 == $1 | 0x20 })
    else { return nil }
    return caller(secret: Array(field.dropFirst(Self.scheme.count)))
  }

  /// The caller with this secret, or nil; every key is compared, each in constant time.
  package func caller(secret: [UInt8]) -> Caller? {
    let digest = SHA256.hash(data: secret)
    return keys.withLock { keys in
      var caller: Caller?
      for key in keys where key.digest == digest { caller = key.caller }
      return caller
    }
  }

  /// The key that signs the sessions of `support` or `admin`, or nil if there is no such key.
  package func session(of name: String) -> (caller: Caller, key: Secret<SymmetricKey>)? {
    // The name comes from a cookie, so it is compared by bytes.
    let name = ExactText(name)
    return keys.withLock { keys in
      keys.first { $0.caller.role >= .support && ExactText($0.caller.name) == name }
        .map { ($0.caller, $0.sessionKey) }
    }
  }

  /// In characters; also the limit for webhook secrets.
  static let shortestSecret = 16

  /// Schemes are compared without case (RFC 9110, section 11.1).
  private static let scheme = Array("bearer ".utf8)
}

/// An error in the configured keys, without an entry's text: any part of it may be a secret.
package struct APIKeyError: Error, CustomStringConvertible {
  let entry: Int
  let fault: String

  package var description: String {
    "API key \(entry): \(fault). Example: shop:app:SECRET,ops:admin:OTHER-SECRET"
  }
}

extension APIKeys.Key {
  fileprivate init(parsing entry: String, number: Int) throws {
    func fault(_ text: String) -> APIKeyError { APIKeyError(entry: number, fault: text) }
    let parts = entry.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
    guard parts.count == 3 else { throw fault("not of the form name:role:secret") }
    guard !parts[0].isEmpty else { throw fault("the name before the first colon is empty") }
    guard let role = APIKeys.Role(exactly: String(parts[1])) else {
      throw fault("unknown role (use app, support or admin)")
    }
    guard parts[2].utf8.count >= APIKeys.shortestSecret else {
      throw fault(
        "the secret is shorter than \(APIKeys.shortestSecret) characters (generate one with "
          + "`openssl rand -hex 32`)")
    }
    // A header field can't carry others.
    guard parts[2].utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else {
      throw fault("the secret has spaces, control or non-ASCII characters")
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

/// Identifies the caller by its API key; ``Permission`` decides what the caller may do.
struct CallerIdentification: RouterMiddleware {
  let keys: APIKeys

  func handle(_ request: Request, context: APIContext, next: Next) async throws -> Response {
    var context = context
    context.caller = request.headers[.authorization].flatMap { keys.caller(authorization: $0) }
    return try await next(request, context)
  }
}

struct Permission: RouterMiddleware {
  let role: APIKeys.Role
  let brake: FailureBrake
  let now: @Sendable () -> Timestamp

  func handle(_ request: Request, context: APIContext, next: Next) async throws -> Response {
    guard let caller = context.caller else {
      let hasKey = request.headers[.authorization] != nil
      if hasKey { await brake.delay(.bearer(context), at: now()) }
      throw Problem.unauthorized(hasKey: hasKey)
    }
    guard caller.role >= role else { throw Problem.forbidden(needed: role) }
    return try await next(request, context)
  }
}
