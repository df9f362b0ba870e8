import ArgumentParser
import BackgroundJobs
import Bootstrap
import Foundation
import LedgerStorage
import Logging
import Subscriptions

/// `tenure jobs`: the queue, by hand.
struct JobsCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "jobs",
    abstract: "Shows what is still to be done, and starts again what was given up.",
    subcommands: [List.self, Show.self, Retry.self], defaultSubcommand: List.self)

  /// `tenure jobs list`.
  struct List: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Counts the jobs by kind and lane, and lists those that were given up.",
      discussion: """
        due: a worker could begin it. waiting: its time has not come. running: a worker is at it. \
        parked: it was given up, and waits for `tenure jobs retry`. failing: how many of those \
        that are not parked failed the last time.
        """)

    @OptionGroup var options: SettingOptions

    @Option(help: "Only jobs of this kind, among those that were given up.")
    var kind: String?

    @Option(help: "How many of those that were given up to list at the most.")
    var limit = 50

    func run() async throws {
      let kind = try kind.map(JobsCommand.known)
      try await JobsCommand.withLedger(options) { ledger, now in
        let counts = try await ledger.jobCounts(at: now)
        let parked = try await ledger.parkedJobs(kind: kind, limit: max(0, limit))
        print(JobsReport.counts(counts, at: now))
        if !parked.isEmpty { print("\n" + JobsReport.parked(parked)) }
        let total = counts.filter { kind == nil || $0.kind == kind }.map(\.parked).reduce(0, +)
        if total > parked.count { print("… and \(total - parked.count) more") }
      }
    }
  }

  /// `tenure jobs show`.
  struct Show: AsyncParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Shows all about a job.")

    @OptionGroup var options: SettingOptions

    @Argument(help: "Its number, or what it is about: the id of a submission, for example.")
    var id: String

    func run() async throws {
      let jobs = try await JobsCommand.withLedger(options) { try await $0.jobs(named: id, at: $1) }
      guard !jobs.isEmpty else { throw NoSuchJob(description: "no job is called \(id)") }
      print(jobs.map(JobsReport.details).joined(separator: "\n\n"))
    }
  }

  /// `tenure jobs retry`.
  struct Retry: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Starts jobs again, at once, and as patiently as new ones.",
      discussion: """
        Those that are named, given up or waiting; or those that were given up, of a kind or all. \
        One that a worker is at stays as it is. It is recorded who did it, and why if that is said.
        """)

    @OptionGroup var options: SettingOptions
    @OptionGroup var act: RestartOptions

    @Argument(help: "Their numbers, or what they are about: ids of submissions, for example.")
    var ids: [String] = []

    @Option(help: "All of this kind that were given up.")
    var kind: String?

    @Flag(help: "All that were given up.")
    var all = false

    func validate() throws {
      guard [!ids.isEmpty, kind != nil, all].count(where: \.self) == 1 else {
        throw ValidationError("Name jobs, or a --kind, or --all: one of the three.")
      }
    }

    func run() async throws {
      let selection: JobSelection =
        if let kind { .parked(kind: try JobsCommand.known(kind)) } else if all { .allParked } else {
          .named(ids)
        }
      let count = try await JobsCommand.withLedger(options) {
        try await $0.restartJobs(selection, by: act.administrator, at: $1)
      }
      guard count > 0 || ids.isEmpty else {
        throw NoSuchJob(description: "no job of that name waits or was given up")
      }
      print("started again  \(count)")
    }
  }

  private static func withLedger<Value>(
    _ options: SettingOptions, _ body: (Ledger, _ now: Timestamp) async throws -> Value
  ) async throws -> Value {
    let settings = try await options.settings()
    let logger = Logger.bootstrapTenure(
      level: settings.logLevel, format: settings.logFormat)
    return try await withDatabase(settings, logger: logger) { database in
      try await body(Ledger(database: database), settings.clock.now())
    }
  }

  private static func known(_ kind: String) throws -> String {
    let kinds = Job.Task.Kind.allCases.map(\.rawValue)
    guard kinds.contains(kind) else {
      throw ValidationError(
        "There is no kind \(kind): name one of \(kinds.joined(separator: ", ")).")
    }
    return kind
  }
}

/// Why a job can't be shown or started again.
struct NoSuchJob: Error, CustomStringConvertible {
  let description: String
}

/// The queue as text for people.
enum JobsReport {
  static func counts(_ counts: [JobCount], at now: Timestamp) -> String {
    guard !counts.isEmpty else { return "There is nothing to do." }
    return table(
      ["kind", "lane", "due", "waiting", "running", "parked", "failing", "due for"],
      counts.map { count in
        let numbers = [count.due, count.waiting, count.running, count.parked, count.failing]
        return [count.kind, count.lane.rawValue] + numbers.map(String.init)
          + [count.dueSince.map { age(now - $0) } ?? ""]
      })
  }

  static func parked(_ jobs: [StoredJob]) -> String {
    table(
      ["id", "kind", "about", "given up", "begun", "because"],
      jobs.map { job in
        let parkedAt = job.parkedAt.map { "\($0)" } ?? ""
        return [
          "\(job.id)", job.kind, job.subject, parkedAt, "\(job.attempts)", job.lastError ?? "",
        ]
      })
  }

  static func details(_ job: StoredJob) -> String {
    let fields: [(String, String?)] = [
      ("id", "\(job.id)"), ("kind", job.kind), ("about", job.subject),
      ("state", job.state.rawValue), ("lane", job.lane.rawValue), ("priority", "\(job.priority)"),
      ("due at", "\(job.runAt)"), ("begun", "\(job.attempts)"),
      ("patience since", "\(job.createdAt)"), ("worker", job.worker),
      ("lease until", job.lockedUntil.map { "\($0)" }),
      ("given up at", job.parkedAt.map { "\($0)" }), ("because", job.lastError),
    ]
    return AppStoreText.columns(fields.compactMap { name, value in value.map { [name, $0] } })
      .joined(separator: "\n")
  }

  private static func table(_ head: [String], _ rows: [[String]]) -> String {
    AppStoreText.columns([head] + rows).joined(separator: "\n")
  }

  /// A duration in its largest unit.
  private static func age(_ duration: Duration) -> String {
    let seconds = max(0, duration.components.seconds)
    let units = [(86_400, "d"), (3600, "h"), (60, "min")] as [(Int64, String)]
    let unit = units.first { seconds >= $0.0 } ?? (1, "s")
    return "\(seconds / unit.0) \(unit.1)"
  }
}
