import AppStore
import JSONText
import Subscriptions

/// A request to the simulated App Store Server API.
package struct ServerAPIRequest: Sendable {
  /// One name and value behind the question mark.
  package struct QueryItem: Hashable, Sendable {
    package var name: String
    package var value: String

    package init(_ name: String, _ value: String) {
      self.name = name
      self.value = value
    }
  }

  package var method: String
  /// As in `/inApps/v1/transactions/1`.
  package var path: String
  package var query: [QueryItem]
  /// The whole header `Authorization`.
  package var authorization: String?
  package var body: [UInt8]

  package init(
    method: String = "GET", path: String, query: [QueryItem] = [], authorization: String?,
    body: [UInt8] = []
  ) {
    self.method = method
    self.path = path
    self.query = query
    self.authorization = authorization
    self.body = body
  }

  // MARK: Reading

  func values(_ name: String) -> [String] {
    query.filter { $0.name == name }.map(\.value)
  }

  func value(_ name: String) -> String? { values(name).last }

  /// A date in milliseconds since 1970.
  func date(_ name: String, or error: ServerAPIError) throws -> Timestamp? {
    guard let text = value(name) else { return nil }
    guard let moment = Int64(text).map(Timestamp.init(milliseconds:)),
      Timestamp.writable.contains(moment)
    else { throw error }
    return moment
  }

  /// The body, which has to be a JSON object.
  func json() throws -> JSONValue {
    guard let json = try? JSONValue(parsing: body), case .object = json else {
      throw ServerAPIError.badRequest
    }
    return json
  }
}
