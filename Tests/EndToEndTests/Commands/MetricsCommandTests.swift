import AppStore
import AsyncHTTPClient
import CoreMetrics
import Foundation
import Hummingbird
import Logging
import NIOCore
import NIOHTTP1
import Postgres
import ScratchDatabases
import ServiceLifecycle
import Testing

@testable import BackgroundJobs
@testable import Bootstrap
@testable import Development
@testable import HTTPAPI
@testable import Intake
@testable import Observability
@testable import tenure

@Suite("Metrics of the programs")
struct MetricsCommandTests {
  @Test("the dashboard, the rules and the list are printed")
  func printed() async throws {
    let dashboard = try await TenureProgram.run("metrics", "dashboard")
    #expect(try JSONSerialization.jsonObject(with: Data(dashboard.output.utf8)) is [String: Any])
    #expect(try await TenureProgram.run("metrics", "alerts").output.contains("\n  - name: tenure-"))
    let list = try await TenureProgram.run("metrics", "list").output
    #expect(list.contains("tenure_jobs_due{queue}: "))
    #expect(try await TenureProgram.run("metrics", "tea").status != 0)
  }

  @Test("serve and work export all declared metrics between them, and no others")
  func everything() async throws {
    try await withScratchDatabase { database in
      try await SimulatedApple.serving(from: .now) { apple in
        try await withTemporaryDirectory { directory in
          let uri = database.uri
          let server = try await ServeProcess.start(
            try TenureProgram.executable, databaseURL: uri,
            environment: apple.settings.merging(["TENURE_READ_DATABASE_URL": uri]) { $1 },
            in: directory)
          // Requests to Apple are exported once there were some.
          _ = try await server.post(
            #"{"account_id":"4711","receipt_data":"MIAGCSqGSIb3DQEHAqCAcGV0"}"#, to: "/v1/receipts")
          let served = try await server.get("/metrics")
          await server.stop()
          #expect(served.status == 200)
          let worked = try await Self.metricsOfWorker(
            apple.settings.merging(["DATABASE_URL": uri]) { $1 }, in: directory)
          let shown = Self.families(in: served.body).union(Self.families(in: worked))
          #expect(shown == Set(MetricDeclaration.tenure.map(\.name)))
          #expect(worked.contains("tenure_database_readable 1"))
          // The server that is to be read is no standby: nothing is known of one.
          #expect(served.body.contains("tenure_replica_age_seconds +Inf"))
        }
      }
    }
  }

  @Test("one process that serves and works has at most 1,500 series when every route was called")
  func bounded() async throws {
    let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })
    let (registry, key) = (PrometheusRegistry(), "admin-secret-for-trying")
    try await withMetricsFactory(registry) {
      try await SimulatedApple.serving(from: .now) { apple in
        try await withScratchDatabase { database in
          try await withHTTPClient { client in
            let flags = apple.settings.merging(["TENURE_API_KEYS": "ops:admin:\(key)"]) { $1 }
            let settings = try Settings(await SettingSource(flags: flags, environment: [:]))
            let assembly = try await Assembly(
              database: database, settings: settings,
              transport: HTTPClientTransport(client: client), logger: quiet)
            // Of a webhook, too.
            _ = WebhookMetrics()
            let api = assembly.api(keys: try settings.apiKeys())
            let router = api.routes()
            api.site?.addRoutes(to: router)
            let server = DemoServer(api: api, port: 0)
            let group = ServiceGroup(services: [server] + assembly.worker(), logger: quiet)
            try await withThrowingTaskGroup(of: Void.self) { tasks in
              tasks.addTask { try await group.run() }
              let url = "http://127.0.0.1:\(try await server.port)"
              try await Self.callAll(
                router.routes.map { ("\($0.method)", $0.path.description) }, url, key, client)
              let (text, _) = try await Self.call(.GET, url + "/metrics", key: key, by: client)
              let series = text.split(separator: "\n").filter { !$0.hasPrefix("#") }
              #expect(series.count <= 1500)
              for part in [
                #"{method="GET",route="/admin/health",status="2xx"}"#,
                #"{method="POST",route="/v1/grants",status="4xx"}"#, "tenure_jobs_total{",
                "tenure_webhook_delay_seconds_bucket{", "tenure_jobs_due{",
              ] { #expect(text.contains(part), "\(part)") }
              #expect(registry.refused.isEmpty)
              await group.triggerGracefulShutdown()
              try await tasks.waitForAll()
            }
          }
        }
      }
    }
  }

  /// Calls routes without a key, with one, and with an administrator's session.
  private static func callAll(
    _ routes: [(method: String, path: String)], _ url: String, _ key: String,
    _ client: HTTPClient
  ) async throws {
    #expect(routes.count > 90)
    let (_, cookie) = try await call(
      .POST, url + "/admin/login", form: "key=\(key)&return_to=", by: client)
    let session = try #require(cookie?.split(separator: ";").first.map(String.init))
    for (method, path) in routes.sorted(by: { $0.path < $1.path }) where !path.hasSuffix("logout") {
      let path =
        url
        + path.replacing("{name}", with: "active")
        .replacing(/\{[a-z_]+\}/, with: "00000000-0000-0000-0000-000000000000")
      let method = HTTPMethod(rawValue: method)
      _ = try await call(method, path, by: client)
      _ = try await call(method, path, key: key, by: client)
      _ = try await call(method, path, cookie: session, by: client)
    }
  }

  private static func call(
    _ method: HTTPMethod, _ url: String, key: String? = nil, cookie: String? = nil,
    form: String? = nil, by client: HTTPClient
  ) async throws -> (text: String, cookie: String?) {
    var request = HTTPClientRequest(url: url)
    request.method = method
    let origin = url.split(separator: "/").prefix(2).joined(separator: "//")
    request.headers.add(name: "Origin", value: origin)
    if let key { request.headers.add(name: "Authorization", value: "Bearer \(key)") }
    if let cookie { request.headers.add(name: "Cookie", value: cookie) }
    if let form {
      request.headers.add(name: "Content-Type", value: "application/x-www-form-urlencoded")
      request.body = .bytes(ByteBuffer(string: form))
    }
    let answer = try await client.execute(request, timeout: .seconds(60))
    let body = try await answer.body.collect(upTo: 1 << 24)
    return (String(buffer: body), answer.headers.first(name: "Set-Cookie"))
  }

  private static func families(in exposition: String) -> Set<String> {
    Set(exposition.matches(of: /\x23 TYPE ([a-z_]+)/).map { String($0.1) })
  }

  /// Runs a worker until it has exported its metrics once.
  private static func metricsOfWorker(
    _ settings: [String: String], in directory: URL
  ) async throws -> String {
    // Another program may listen where it is to: then another port is tried.
    for _ in 1...10 {
      let port = Int.random(in: 20_000...32_000)
      let worker = try ChildProcess(
        try TenureProgram.executable, ["work"],
        environment: settings.merging(["TENURE_METRICS_PORT": "\(port)"]) { $1 }, in: directory)
      while worker.isRunning {
        let request = HTTPClientRequest(url: "http://127.0.0.1:\(port)/metrics")
        if let answer = try? await HTTPClient.shared.execute(request, timeout: .seconds(30)),
          let body = try? await answer.body.collect(upTo: 1 << 22), answer.status == .ok
        {
          await worker.stop()
          return String(buffer: body)
        }
        try await Task.sleep(for: .milliseconds(50))
      }
      await worker.kill()
    }
    throw NoPort()
  }

  private struct NoPort: Error {}
}
