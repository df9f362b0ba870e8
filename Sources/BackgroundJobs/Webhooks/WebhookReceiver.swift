import Foundation
import NIOCore
import NIOPosix
package import Secrets

/// The URL to which events are posted, and the secrets that sign them.
package struct WebhookReceiver: Sendable {
  /// An invalid setting; the description contains neither the URL nor a secret.
  package struct Fault: Error, Hashable, CustomStringConvertible {
    /// False: the URL is invalid.
    package let isAboutSecrets: Bool
    package let description: String

    fileprivate init(_ description: String, isAboutSecrets: Bool = false) {
      self.description = description
      self.isAboutSecrets = isAboutSecrets
    }
  }

  /// In bytes; a shorter secret could be guessed from one signature.
  private static let shortestSecret = 16
  /// Two secrets are valid during a rotation.
  private static let mostSecrets = 2

  /// It can contain a token.
  let url: Secret<String>
  /// The URL's scheme, host and port, for administrators.
  package let origin: String
  /// As in the URL, without the brackets of an address.
  package let host: String
  /// One or two; each signs every event.
  let secrets: [Secret<String>]
  /// Whether the receiver may be on this machine or in its networks.
  let allowsPrivateAddresses: Bool

  package init(
    url: Secret<String>, secrets: [Secret<String>], allowsPrivateAddresses: Bool
  ) throws {
    guard let parts = URL(string: url.revealed), let scheme = parts.scheme?.lowercased(),
      ["http", "https"].contains(scheme), (1...65_535).contains(parts.port ?? 443),
      let host = parts.host(percentEncoded: true), !host.isEmpty
    else { throw Fault("must be a URL such as https://HOST/PATH") }
    guard parts.user == nil, parts.password == nil, parts.fragment == nil else {
      throw Fault("must not have a user name, password or fragment; events are signed instead")
    }
    // Other characters might make the HTTP client connect to another host than the checked one.
    let usual = /[A-Za-z0-9._\-]+|\[?[0-9A-Fa-f:.]+\]?/
    guard host.wholeMatch(of: usual) != nil else {
      throw Fault("its host has characters that are not allowed in a DNS name")
    }
    self.host = host.trimmingCharacters(in: ["[", "]"])
    origin =
      "\(scheme)://" + (self.host.contains(":") ? "[\(self.host)]" : self.host)
      + (parts.port.map { ":\($0)" } ?? "")
    guard allowsPrivateAddresses || IPAddress(self.host)?.isPublic ?? true else {
      throw Fault("the address is private; set TENURE_WEBHOOK_ALLOW_PRIVATE to on to allow this")
    }
    guard (1...Self.mostSecrets).contains(secrets.count) else {
      throw Fault(
        "must be one secret, or two during a rotation (got \(secrets.count))", isAboutSecrets: true)
    }
    guard secrets.allSatisfy({ $0.revealed.utf8.count >= Self.shortestSecret }) else {
      throw Fault(
        "must have at least \(Self.shortestSecret) characters, such as those of "
          + "`openssl rand -hex 32`", isAboutSecrets: true)
    }
    (self.url, self.secrets) = (url, secrets)
    self.allowsPrivateAddresses = allowsPrivateAddresses
  }
}

struct IPAddress: Hashable, Sendable {
  /// 4 or 16 bytes.
  let bytes: [UInt8]

  /// Reads an address in its usual form.
  ///
  /// Forms that only some libraries understand (`127.1`, `0x7f000001`, `017700000001`) are not
  /// accepted: a resolver turns them into the usual one.
  init?(_ text: some StringProtocol) {
    // A suffix names the interface of a local address.
    let text = String(text.prefix { $0 != "%" })
    let (family, length) = text.contains(":") ? (AF_INET6, 16) : (AF_INET, 4)
    var bytes = [UInt8](repeating: 0, count: length)
    guard unsafe inet_pton(family, text, &bytes) == 1 else { return nil }
    self.bytes = bytes
  }

  private init(bytes: some Sequence<UInt8>) {
    self.bytes = Array(bytes)
  }

  /// Whether it may belong to a host on the public Internet.
  var isPublic: Bool {
    if bytes.count == 4 { return !Self.reserved4.contains { $0.contains(self) } }
    if let inner = embedded { return inner.isPublic }
    return Self.global6.contains(self) && !Self.reserved6.contains { $0.contains(self) }
  }

  /// The IPv4 address that receives the packets: mapped, or behind a translator.
  private var embedded: IPAddress? {
    guard [Self.mapped, Self.translated].contains(where: { $0.contains(self) }) else { return nil }
    return IPAddress(bytes: bytes.suffix(4))
  }

  // MARK: Networks

  private struct Network: Sendable {
    let first: IPAddress
    let bits: Int

    /// Reads a network such as `10.0.0.0/8`.
    init(_ text: String) {
      let parts = text.split(separator: "/")
      guard parts.count == 2, let first = IPAddress(parts[0]), let bits = Int(parts[1]) else {
        preconditionFailure("\(text) is no network.")
      }
      (self.first, self.bits) = (first, bits)
    }

    func contains(_ address: IPAddress) -> Bool {
      let (whole, rest) = bits.quotientAndRemainder(dividingBy: 8)
      let (first, bytes) = (first.bytes, address.bytes)
      guard first.prefix(whole) == bytes.prefix(whole) else { return false }
      return rest == 0 || (first[whole] ^ bytes[whole]) >> (8 - rest) == 0
    }
  }

  /// https://www.iana.org/assignments/iana-ipv4-special-registry, with multicast.
  ///
  /// 100.64.0.0/10 is carrier-grade NAT (RFC 6598); cloud metadata is at 169.254.169.254.
  private static let reserved4 = [
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
    "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
    "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
  ].map(Network.init)

  /// IPv6 global unicast (RFC 4291).
  private static let global6 = Network("2000::/3")
  /// https://www.iana.org/assignments/iana-ipv6-special-registry, within ``global6``.
  private static let reserved6 = [
    // Protocol assignments, such as Teredo.
    "2001::/23", "2001:db8::/32",
    // 6to4, which leads to any IPv4 address.
    "2002::/16", "3fff::/20",
  ].map(Network.init)
  private static let mapped = Network("::ffff:0:0/96")
  /// NAT64 (RFC 6052).
  private static let translated = Network("64:ff9b::/96")
}

package typealias HostAddresses = @Sendable (_ host: String) async throws -> [String]

/// Resolves a host by the system's resolver, in a fixed order so that connections are reused.
func systemAddresses(of host: String) async throws -> [String] {
  let resolver = NIORandomizedDNSResolver(loop: MultiThreadedEventLoopGroup.singleton.next())
  // One lookup finds both kinds; each has its future.
  let version6 = resolver.initiateAAAAQuery(host: host, port: 0)
  do {
    let found = try await resolver.initiateAQuery(host: host, port: 0).get() + version6.get()
    return found.compactMap(\.ipAddress).sorted()
  } catch is SocketAddressError.UnknownHost {
    return []
  }
}
