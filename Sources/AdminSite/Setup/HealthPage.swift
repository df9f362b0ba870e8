package import HTTPAPI
import Hummingbird
import HummingbirdCore
import LedgerStorage
package import Subscriptions

/// The parts of the program that only the pages about the program use.
package struct Installation: Sendable {
  /// The receiver of events.
  package struct Webhook: Sendable {
    let origin: String
    let send: @Sendable (_ body: String, _ now: Timestamp) async throws -> String?

    /// - Parameters:
    ///   - origin: The receiver's scheme, host and port; the rest of the URL can contain a token.
    ///   - send: Sends an event, and returns the reason if it was not delivered.
    package init(
      origin: String,
      send: @escaping @Sendable (_ body: String, _ now: Timestamp) async throws -> String?
    ) {
      (self.origin, self.send) = (origin, send)
    }
  }

  let version: String
  /// Nil if no events are delivered.
  let webhook: Webhook?
  let checkup: Checkup

  package init(
    version: String = "", webhook: Webhook? = nil,
    examine: @escaping @Sendable () async -> [DoctorFinding] = { [] }
  ) {
    (self.version, self.webhook, checkup) = (version, webhook, Checkup(examine: examine))
  }
}

/// The latest findings of `tenure doctor`, whose checks can take longer than a page may.
actor Checkup {
  private let examine: @Sendable () async -> [DoctorFinding]
  private var latest: (findings: [DoctorFinding], at: ContinuousClock.Instant)?
  private var running: Task<[DoctorFinding], any Error>?

  /// Findings are not looked for again within this time.
  private static let memory: Duration = .seconds(60)
  /// How long a page waits that has more to say.
  private static let patience: Duration = .milliseconds(300)

  init(examine: @escaping @Sendable () async -> [DoctorFinding]) { self.examine = examine }

  /// The faults found so far; nil before the first checks.
  var faults: Int? { latest?.findings.count { $0.verdict == .fault } }

  func findings() async -> [DoctorFinding] {
    (try? await run().value) ?? []
  }

  /// The faults after new checks, if those end soon; else they go on, for the next page.
  func recentFaults() async -> Int? {
    if let latest, .now - latest.at < Self.memory { return faults }
    _ = await run().result(within: Self.patience)
    return faults
  }

  private func run() -> Task<[DoctorFinding], any Error> {
    if let running { return running }
    let task = Task { () throws -> [DoctorFinding] in
      let found = await examine()
      (latest, running) = ((found, .now), nil)
      return found
    }
    running = task
    return task
  }
}

/// The page of the program's version, the checks of `tenure doctor`, and the names of the API keys.
struct HealthPageController: Controller {
  let api: API
  let installation: Installation

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let findings = await installation.checkup.findings()
    let verdicts: [(DoctorFinding.Verdict, Badge, one: String, many: String)] = [
      (.fault, Badge(text: "Fault", tone: Tone.bad), "fault", "faults"),
      (.warning, Badge(text: "Warning", tone: Tone.warning), "warning", "warnings"),
      (.ok, Badge(text: "OK", tone: Tone.good), "check passed", "checks passed"),
    ]
    // The worst first.
    let groups = verdicts.compactMap { verdict, badge, one, many in
      let found = findings.filter { $0.verdict == verdict }
      return found.isEmpty
        ? nil : (badge: badge, count: Count.text(found.count, one, many), findings: found)
    }
    let checks = groups.flatMap { group in
      group.findings.map {
        (
          badge: group.badge, check: $0.check,
          // As the pages call them.
          found: $0.found.withTimesForPeople.replacing("Parked", with: "Failed")
            .replacing("parked", with: "failed"),
          hasRemedy: $0.remedy != nil,
          // The texts between backticks are commands.
          remedy: $0.remedy.map { text in
            text.split(separator: "`", omittingEmptySubsequences: false).enumerated().map {
              (text: String($1), isCode: !$0.isMultiple(of: 2))
            }
          } ?? []
        )
      }
    }
    var context = context
    context.admin.faults = await installation.checkup.faults
    let frame = try await pages.frame("Health", at: AdminURL.health, context)
    return PageRenderer.response(
      (
        page: frame,
        properties: [
          Property("Version", installation.version),
          Property(
            "Database schema", "version \(SchemaMigrator.currentVersion)",
            note: "since \(Moment(try await ledger.maintenance.schemaChangedAt()).text)"),
          Property(
            "API keys", "\(api.keys.callers.count)",
            note: api.keys.reloadedAt.map { "read again \(Moment($0).text)" }
              ?? "read when this server started"),
        ],
        checks: checks,
        summary: groups.first.map { worst in
          (state: worst.badge.tone, text: "\(groups.map(\.count).joined(separator: ", ")).")
        },
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
