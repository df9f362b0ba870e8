import HTTPTypes
import Hummingbird
import JSONText
import LedgerStorage
import Observability
import Subscriptions
import Synchronization

final class HealthController: Controller {
  /// Short, because load balancers ask every few seconds.
  private static let deadline: Duration = .seconds(2)

  let api: API
  /// A check of the database that all concurrent requests share.
  ///
  /// A hanging statement can't be cancelled, so it is no child task of a request: each is answered
  /// at its deadline, and later ones wait for the same check.
  private let running = Mutex<Task<Void, any Error>?>(nil)

  init(api: API) { self.api = api }

  /// Reports that the process is alive, not the database, which a restart would not fix.
  func healthz(_ request: Request, context: APIContext) async throws -> Response {
    Response {
      $0.member("status", "alive")
      $0.member("version", TenureVersion.current)
    }
  }

  /// Reports whether the database answers with a compatible schema, by a check that may be running.
  func readyz(_ request: Request, context: APIContext) async throws -> Response {
    guard let outcome = await check().result(within: Self.deadline) else {
      throw Problem.unavailable("The database check took longer than \(Self.deadline.words()).")
    }
    try outcome.get()
    return Response { $0.member("status", "ready") }
  }

  private func check() -> Task<Void, any Error> {
    running.withLock { running in
      if let running { return running }
      let task = Task {
        defer { self.running.withLock { $0 = nil } }
        _ = try await api.schema.check()
      }
      running = task
      return task
    }
  }
}

/// The files of `Resources/Monitoring`, embedded in the program.
package enum MonitoringFiles {
  package static let dashboard = String(
    decoding: PackageResources.grafana_dashboard_json, as: UTF8.self)
  /// Prometheus alert rules, in YAML.
  package static let alerts = String(
    decoding: PackageResources.prometheus_alerts_yaml, as: UTF8.self)
}
