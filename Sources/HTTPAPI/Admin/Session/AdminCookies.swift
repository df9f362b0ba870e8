import Hummingbird
import Subscriptions

extension Request {
  /// The value of a cookie of ours: visible ASCII; nil for any other.
  func cookie(_ name: String) -> String? {
    let prefix = Array("\(name)=".utf8)
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

extension Cookie {
  static let sessionName = "tenure_admin"
  static let flashName = "tenure_admin_told"

  /// Holds a session; nil: it is over.
  static func session(_ session: AdminSession?, on request: Request) -> Cookie {
    admin(
      sessionName, session?.cookie,
      lifetime: AdminSession.lifetime, on: request)
  }

  /// Holds what the next page tells; nil: it was told.
  static func flash(_ sealed: String?, on request: Request) -> Cookie {
    admin(flashName, sealed, lifetime: .minutes(1), on: request)
  }

  /// Lax and not strict, so that a link in a ticket leads to its page; what changes anything has
  /// the form's token beside it.
  private static func admin(
    _ name: String, _ value: String?, lifetime: Duration, on request: Request
  ) -> Cookie {
    Cookie(
      name: name, value: value ?? "", maxAge: value == nil ? 0 : Int(lifetime.components.seconds),
      path: PageAddress.overview, secure: request.isSecure, httpOnly: true, sameSite: .lax)
  }
}
