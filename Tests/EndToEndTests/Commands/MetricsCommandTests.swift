import AsyncHTTPClient
import Foundation
import NIOCore
import NIOHTTP1
import Observability
import Postgres
import ScratchDatabases
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
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
