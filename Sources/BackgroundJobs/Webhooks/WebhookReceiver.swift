import Foundation
package import Secrets

/// Where events are pushed, and what they are signed with.
package struct WebhookReceiver: Sendable {
  /// What makes it useless, and what would be right; the URL and the secrets are not told.
  package struct Fault: Error, Hashable, CustomStringConvertible {
    /// Whether the secrets are at fault, or the URL.
    package let isAboutSecrets: Bool
    package let description: String

    fileprivate init(url fault: String) {
      isAboutSecrets = false
      description = fault
    }

    fileprivate init(secrets fault: String) {
      isAboutSecrets = true
      description = fault
    }
  }

  /// What is shorter can be guessed by whoever has seen one signature.
  private static let shortestSecret = 16
  /// While one secret takes another's place, both are valid.
  private static let mostSecrets = 2

  let url: Secret<String>
  /// As it stands in the URL, without the brackets of an address.
  let host: String
  let secrets: [Secret<String>]
  let allowsPrivateAddresses: Bool

  /// - Parameters:
  ///   - url: Where to post events. It can contain a token, so it is a secret, too.
  ///   - secrets: One or two; each signs everything, the first one first.
  ///   - allowsPrivateAddresses: Whether the receiver may be in this machine or its networks.
  /// - Throws: ``Fault``.
  package init(
    url: Secret<String>, secrets: [Secret<String>], allowsPrivateAddresses: Bool
  ) throws {
    guard let parts = URL(string: url.revealed), let scheme = parts.scheme?.lowercased(),
      ["http", "https"].contains(scheme), (1...65_535).contains(parts.port ?? 443),
      let host = parts.host(percentEncoded: true), !host.isEmpty
    else { throw Fault(url: "it is no address of a receiver: write https://HOST/PATH") }
    guard parts.user == nil, parts.password == nil, parts.fragment == nil else {
      throw Fault(
        url: "it has a user name, a password or a fragment, which are not sent: events are signed")
    }
    // No other characters, so that nobody reads another host in it than we do: the address that is
    // checked is connected to only where the HTTP client finds the very same name.
    let usual = /[A-Za-z0-9._\-]+|\[?[0-9A-Fa-f:.]+\]?/
    guard host.wholeMatch(of: usual) != nil else {
      throw Fault(url: "its host has characters that no host has: write a name as in DNS")
    }
    self.host = host.trimmingCharacters(in: ["[", "]"])
    guard allowsPrivateAddresses || IPAddress(self.host)?.isPublic ?? true else {
      throw Fault(
        url: "its address is none of the public Internet: set TENURE_WEBHOOK_ALLOW_PRIVATE to on "
          + "if that is meant")
    }
    guard (1...Self.mostSecrets).contains(secrets.count) else {
      throw Fault(
        secrets: "there are \(secrets.count) of them: write one, or two while one takes the "
          + "other's place")
    }
    guard secrets.allSatisfy({ $0.revealed.utf8.count >= Self.shortestSecret }) else {
      throw Fault(
        secrets: "it is shorter than \(Self.shortestSecret) characters: `openssl rand -hex 32` "
          + "makes a good one")
    }
    self.url = url
    self.secrets = secrets
    self.allowsPrivateAddresses = allowsPrivateAddresses
  }
}
