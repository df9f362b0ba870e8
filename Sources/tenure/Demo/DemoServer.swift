import HTTPAPI
import Hummingbird
import ServiceLifecycle

/// The API on a fixed port or, where that is taken and nobody asked for it, on a free one.
struct DemoServer: Service {
  static let host = "127.0.0.1"
  /// The port that people would try first.
  private static let usualPort = 8080

  private let api: API
  private let wantedPort: Int?
  private let ports = AsyncStream.makeStream(of: Int.self)

  /// - Parameters:
  ///   - api: What is served.
  ///   - port: Nil: the usual one or, if that is taken, a free one.
  init(api: API, port: Int?) {
    self.api = api
    wantedPort = port
  }

  /// The port on which the server listens; waits until it does.
  ///
  /// - Throws: `CancellationError` if it never will.
  var port: Int {
    get async throws {
      for await port in ports.stream { return port }
      throw CancellationError()
    }
  }

  func run() async throws {
    defer { ports.continuation.finish() }
    do {
      try await serve(at: wantedPort ?? Self.usualPort)
    } catch {
      let fault = SettingError(
        listeningOn: Self.host, named: "--host", port: wantedPort ?? Self.usualPort,
        named: "--port", error)
      guard let fault else { throw error }
      guard wantedPort == nil else { throw fault }
      try await serve(at: 0)
    }
  }

  private func serve(at port: Int) async throws {
    let listening = ports.continuation
    try await api.application(host: Self.host, port: port) { listening.yield($0) }.run()
  }
}
