import AsyncHTTPClient
import NIOCore

/// HTTP clients that connect to one address each, whatever their host's name means by then.
///
/// Whoever checks an address and then lets somebody else look the name up again has checked
/// nothing.
actor WebhookClients {
  private struct Entry {
    let client: HTTPClient
    var users = 0
  }

  /// Connecting takes no longer where there is anybody.
  private static let connectLimit: TimeAmount = .seconds(5)

  private let host: String
  private var entries: [String: Entry] = [:]

  init(host: String) {
    self.host = host
  }

  /// Runs a body with a client that connects to `address`.
  func withClient<Value: Sendable>(
    for address: String, _ body: @Sendable (HTTPClient) async throws -> Value
  ) async throws -> Value {
    let client = entries[address]?.client ?? makeClient(for: address)
    entries[address, default: Entry(client: client)].users += 1
    do {
      let value = try await body(client)
      await release(address, closingOthers: true)
      return value
    } catch {
      await release(address, closingOthers: false)
      throw error
    }
  }

  func shutDown() async {
    let clients = entries.values.map(\.client)
    entries = [:]
    for client in clients { try? await client.shutdown() }
  }

  private func makeClient(for address: String) -> HTTPClient {
    // Redirects are not followed: they would lead past every check, and an event elsewhere.
    var configuration = HTTPClient.Configuration(redirectConfiguration: .disallow)
    // An address needs no pinning, and its certificate is checked as that of an address.
    if IPAddress(host) == nil { configuration.dnsOverride = [host: address] }
    configuration.httpVersion = .http1Only
    // The span is `EventDelivery`'s.
    configuration.tracing.tracer = nil
    configuration.timeout.connect = Self.connectLimit
    configuration.connectionPool.retryConnectionEstablishment = false
    return HTTPClient(eventLoopGroupProvider: .singleton, configuration: configuration)
  }

  /// Keeps the connections of the address that has served last; one that failed closes its own.
  private func release(_ address: String, closingOthers: Bool) async {
    entries[address]?.users -= 1
    let old = entries.filter { ($0.key != address) == closingOthers && $0.value.users == 0 }
    for address in old.keys { entries[address] = nil }
    for entry in old.values { try? await entry.client.shutdown() }
  }
}
