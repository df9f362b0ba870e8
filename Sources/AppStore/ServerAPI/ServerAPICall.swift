import Foundation
import JSONText

/// One request, before it is known which environment is asked and with which token.
struct ServerAPICall: Sendable {
  var endpoint: ServerAPIEndpoint
  var bundleID: String
  /// As in `GET`.
  var method: String
  /// Behind the environment's address, escaped.
  var path: String
  /// Names and values, not escaped, in the order in which they are sent.
  var query: [(name: String, value: String)] = []
  var body: JSONValue?

  /// The path and the query, escaped.
  var target: String {
    let items = query.map { "\(Self.escaped($0.name))=\(Self.escaped($0.value))" }
    return items.isEmpty ? path : path + "?" + items.joined(separator: "&")
  }

  /// The longest identifier that is sent: Apple's have some twenty digits, product ids a hundred.
  private static let longestIdentifier = 255

  /// A path whose last parts are identifiers of somebody else's.
  ///
  /// - Throws: ``AppStoreServerAPIError`` for an identifier that would lead elsewhere.
  static func path(_ path: String, _ identifiers: String..., to endpoint: ServerAPIEndpoint) throws
    -> String
  {
    try identifiers.reduce(path) { path, identifier in
      guard !identifier.isEmpty, identifier.utf8.count <= longestIdentifier,
        identifier.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }),
        !identifier.allSatisfy({ $0 == "." })
      else {
        throw AppStoreServerAPIError(
          .invalidRequest, endpoint, nil,
          message: "an identifier is empty, too long, or has characters that no identifier has")
      }
      return path + "/" + escaped(identifier)
    }
  }

  /// Leaves what RFC 3986 calls unreserved, and nothing else.
  private static func escaped(_ text: String) -> String {
    text.addingPercentEncoding(withAllowedCharacters: unreserved) ?? ""
  }

  private static let unreserved = CharacterSet(
    charactersIn: "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
}
