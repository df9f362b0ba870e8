import NIOHTTP1

/// A request that ``EntitlementHandler`` may answer; any doubtful one is left to the router.
struct EntitlementRequest {
  let accountID: String
  /// The caller's `X-Request-ID`; nil: a new one is generated.
  let id: String?
  /// Whether a replica may answer; false if the request forbids cached answers.
  private(set) var mayLag = true

  private static let pathStart = Array("/v1/accounts/".utf8)
  private static let pathEnd = Array("/entitlements".utf8)

  init?(_ head: HTTPRequestHead, keys: APIKeys) {
    guard head.method == .GET, head.version == .http1_1,
      let accountID = Self.accountID(inPath: head.uri)
    else { return nil }
    var (authorization, id): (String?, String?) = (nil, nil)
    for (name, value) in head.headers {
      switch Field(name) {
      case .authorization where authorization == nil: authorization = value
      case .requestID where id == nil && RequestLog.isUsable(value): id = value
      case .cacheControl: mayLag = mayLag && !CacheControl.asksForCurrent(value)
      // Repeated, unusable, or about the connection or a body.
      case .some: return nil
      case nil: break
      }
    }
    // Every key may read entitlements: see the routes.
    guard let authorization, let caller = keys.caller(authorization: authorization),
      caller.role >= .app
    else { return nil }
    self.accountID = accountID
    self.id = id
  }

  /// The account in a path without a query or percent-encoding.
  private static func accountID(inPath path: String) -> String? {
    let bytes = path.utf8Span.span
    let end = bytes.count - pathEnd.count
    guard end > pathStart.count, contains(pathStart, at: 0), contains(pathEnd, at: end) else {
      return nil
    }
    for index in pathStart.count..<end where !isPlain(bytes[index]) { return nil }
    let utf8 = path.utf8
    let start = utf8.index(utf8.startIndex, offsetBy: pathStart.count)
    let text = String(path[start..<utf8.index(utf8.startIndex, offsetBy: end)])
    return try? TextField.accountID.checked(text)

    func contains(_ part: [UInt8], at offset: Int) -> Bool {
      for index in part.indices where bytes[offset + index] != part[index] { return false }
      return true
    }
  }

  /// Whether a byte is visible ASCII without a special meaning in a path.
  private static func isPlain(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "/"), UInt8(ascii: "%"), UInt8(ascii: "?"), UInt8(ascii: "#"): false
    default: (0x21...0x7E).contains(byte)
    }
  }

  private enum Field {
    case authorization, requestID, cacheControl, other

    /// Nil for an irrelevant field.
    init?(_ name: String) {
      switch name.utf8.count {
      case 6 where Self.equal(name, "expect"): self = .other
      case 7 where Self.equal(name, "upgrade"): self = .other
      case 10 where Self.equal(name, "connection"): self = .other
      case 12 where Self.equal(name, "x-request-id"): self = .requestID
      case 13 where Self.equal(name, "authorization"): self = .authorization
      case 13 where Self.equal(name, "cache-control"): self = .cacheControl
      case 14 where Self.equal(name, "content-length"): self = .other
      case 17 where Self.equal(name, "transfer-encoding"): self = .other
      default: return nil
      }
    }

    private static func equal(_ name: String, _ lowercased: String) -> Bool {
      zip(name.utf8, lowercased.utf8).allSatisfy { $0 | 0x20 == $1 }
    }
  }
}
