import AppStore
import AsyncHTTPClient

extension StandInApple {
  var endpoints: AppleURLs {
    get throws {
      try AppleURLs.verifyReceipt.replaced(production: productionURL, sandbox: sandboxURL)
    }
  }
}

extension HTTPClient {
  /// Runs `body` with a client set up for Apple, and shuts it down.
  static func withApple<Value>(_ body: (HTTPClient) async throws -> Value) async throws -> Value {
    let client = HTTPClient(configuration: HTTPClientTransport.clientConfiguration)
    let result: Result<Value, any Error>
    do { result = .success(try await body(client)) } catch { result = .failure(error) }
    try await client.shutdown()
    return try result.get()
  }
}
