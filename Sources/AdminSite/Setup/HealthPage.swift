package import HTTPAPI
import Hummingbird
import HummingbirdCore
import LedgerStorage
import Reports
package import Subscriptions

/// The parts of the program that only the pages about the program use.
package struct Installation: Sendable {
  /// The receiver of events.
  package struct Webhook: Sendable {
    let host: String
    let send: @Sendable (_ body: String, _ now: Timestamp) async throws -> String?

    /// - Parameters:
    ///   - host: The receiver's host; the rest of the URL can contain a token.
    ///   - send: Sends an event, and returns the reason if it was not delivered.
    package init(
      host: String,
      send: @escaping @Sendable (_ body: String, _ now: Timestamp) async throws -> String?
    ) {
      (self.host, self.send) = (host, send)
    }
  }

  let version: String
  /// Nil if no events are delivered.
  let webhook: Webhook?
  /// Runs the checks of `tenure doctor`.
  let examine: @Sendable () async -> [DoctorFinding]

  package init(
    version: String = "", webhook: Webhook? = nil,
    examine: @escaping @Sendable () async -> [DoctorFinding] = { [] }
  ) {
    (self.version, self.webhook, self.examine) = (version, webhook, examine)
  }
}

/// The page of the program's version, the checks of `tenure doctor`, and the names of the API keys.
struct HealthPageController: Controller {
  let api: API
  let installation: Installation

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let findings = await installation.examine()
    let verdicts: [(DoctorFinding.Verdict, Badge)] = [
      (.fault, Badge(text: "Fault", tone: Tone.bad)),
      (.warning, Badge(text: "Warning", tone: Tone.warning)),
      (.ok, Badge(text: "OK", tone: Tone.good)),
    ]
    let checks = verdicts.flatMap { verdict, badge in
      findings.filter { $0.verdict == verdict }.map {
        (badge: badge, check: $0.check, found: $0.found.withTimesForPeople, remedy: $0.remedy)
      }
    }
    return PageRenderer.response(
      (
        page: try await pages.frame("Health", at: AdminURL.health, context),
        properties: [
          Property("Version", installation.version),
          Property(
            "Schema", "\(SchemaMigrator.currentVersion)",
            note: "since \(Moment(try await ledger.maintenance.schemaChangedAt()).text)"),
          Property(
            "API keys", "\(api.keys.callers.count)",
            note: api.keys.reloadedAt.map { "reloaded \(Moment($0).text)" }
              ?? "not reloaded since this server started"),
          Property(
            "Changes by administrators", "Audit log", href: AdminURL.report(Report.audit.name)),
        ],
        checks: checks,
        isFine: !checks.isEmpty && findings.allSatisfy { $0.verdict == .ok },
        keys: DataTable(
          caption: "API keys",
          columns: [DataColumn(label: "Name"), DataColumn(label: "Role")],
          rows: api.keys.callers.map {
            DataRow(cells: [
              DataCell(text: $0.name, isHeading: true), DataCell(text: $0.role.rawValue),
            ])
          }, emptyText: "No keys.")
      ), "health")
  }
}
