import AppStore
import Foundation
import Synchronization

/// Answers from a script, and records the requests.
final class ScriptedTransport: AppStoreTransport {
  struct Asked: Sendable {
    var url: String
    var body: Body
    /// The endpoint, by the URLs of `AppleURLs.verifyReceipt`.
    var endpoint: String { url.contains("sandbox") ? "sandbox" : "production" }
    struct Body: Decodable {
      var receiptData: String
      var password: String?

      private enum CodingKeys: String, CodingKey {
        case receiptData = "receipt-data"
        case password
      }
    }

    /// For tables: the endpoint, and the password after a slash.
    var summary: String { endpoint + (body.password.map { "/\($0)" } ?? "") }
  }

  private let script: @Sendable (Asked) throws -> AppStoreResponse
  private let requests = Mutex<[Asked]>([])

  init(_ script: @escaping @Sendable (Asked) throws -> AppStoreResponse) {
    self.script = script
  }

  var asked: [Asked] { requests.withLock { $0 } }

  func send(_ request: AppStoreRequest) async throws -> AppStoreResponse {
    let body = try JSONDecoder().decode(Asked.Body.self, from: Data(request.body))
    let asked = Asked(url: request.url, body: body)
    requests.withLock { $0.append(asked) }
    return try script(asked)
  }
}

extension AppStoreResponse {
  /// An answer as Apple sends it.
  static func json(_ value: JSON, status: Int = 200) throws -> AppStoreResponse {
    AppStoreResponse(
      status: status, headers: [HTTPHeader("Content-Type", "application/json")],
      body: Array(try JSONEncoder().encode(value)))
  }
}
