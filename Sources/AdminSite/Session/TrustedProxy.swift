import Crypto
package import HTTPAPI
package import HTTPTypes
import Hummingbird
package import Secrets

/// A reverse proxy that signs people in, such as oauth2-proxy or Cloudflare Access.
///
/// It is believed only if it calls from one of its addresses and sends the secret, so made-up
/// header fields have no effect. A request with a second field is refused, because the proxy may have
/// added its own to the caller's.
package struct TrustedProxy: Sendable {
  /// The header field with the secret that the proxy adds.
  package static let secretField = "X-Tenure-Proxy-Secret"

  /// IP addresses, as they connect.
  package let addresses: Set<String>
  private let secret: Secret<String>
  private let userField: HTTPField.Name
  private let groupsField: HTTPField.Name
  private let roles: [String: APIKeys.Role]

  /// - Parameters:
  ///   - userField: The header field with the user's name or e-mail address.
  ///   - groupsField: The header field with the user's groups, comma-separated.
  ///   - roles: The role of each group that may log in.
  package init(
    addresses: Set<String>, secret: Secret<String>, userField: HTTPField.Name,
    groupsField: HTTPField.Name, roles: [String: APIKeys.Role]
  ) {
    self.addresses = addresses
    self.secret = secret
    self.userField = userField
    self.groupsField = groupsField
    self.roles = roles
  }

  /// The session of the person that the proxy names, with the highest role of the groups; nil
  /// without any.
  func session(of request: Request, from address: String) -> AdminSession? {
    guard addresses.contains(address),
      let sent = request.headers[.token(Self.secretField)],
      SHA256.hash(data: Array(sent.utf8)) == SHA256.hash(data: Array(secret.revealed.utf8)),
      request.headers[values: userField].count == 1,
      request.headers[values: groupsField].count == 1,
      let user = request.headers[userField], (1...200).contains(user.utf8.count),
      user.utf8.allSatisfy({ (0x21...0x7E).contains($0) })
    else { return nil }
    let role = request.headers[groupsField]?.split(separator: ",").compactMap { group in
      // Groups are compared by bytes.
      roles.first { $0.key.utf8.elementsEqual(group.utf8.drop { $0 == UInt8(ascii: " ") }) }?.value
    }.max()
    return role.map {
      AdminSession(of: APIKeys.Caller(name: user, role: $0), signedInByProxyWith: secret)
    }
  }
}
