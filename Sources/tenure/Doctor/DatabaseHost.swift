import Foundation
import Secrets

/// One of the hosts that a connection URI names.
struct DatabaseHost: Hashable, Sendable {
  /// As it stands in the URI, with its port.
  let name: String
  /// The URI with this host alone, whatever its part in the cluster.
  let uri: Secret<String>

  /// The hosts of a URI that names several; none where there is but one, or no URI.
  ///
  /// https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING-URIS
  static func hosts(in secret: Secret<String>) -> [DatabaseHost] {
    let uri = secret.revealed
    guard let scheme = uri.range(of: "://") else { return [] }
    let rest = uri[scheme.upperBound...]
    let authority = rest.prefix { $0 != "/" && $0 != "?" }
    let hosts = authority[
      (authority.lastIndex(of: "@").map(authority.index(after:))
        ?? authority.startIndex)...]
    let names = hosts.split(separator: ",").map(String.init)
    guard names.count > 1 else { return [] }
    let before = uri[..<hosts.startIndex]
    let tail = withoutSessionAttributes(uri[hosts.endIndex...])
    return names.map { DatabaseHost(name: $0, uri: Secret(before + $0 + tail)) }
  }

  /// A standby is asked as well as the primary.
  private static func withoutSessionAttributes(_ tail: Substring) -> String {
    let parts = tail.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
    guard parts.count == 2 else { return String(tail) }
    let parameters = parts[1].split(separator: "&").filter {
      !$0.hasPrefix("target_session_attrs=")
    }
    return parts[0] + (parameters.isEmpty ? "" : "?" + parameters.joined(separator: "&"))
  }
}
