import ArgumentParser
import BackgroundJobs
import LedgerStorage
import Reports
import Subscriptions

struct JobsCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "jobs", abstract: "Lists pending and failed jobs, and retries them.",
    subcommands: [List.self, Show.self, Retry.self], defaultSubcommand: List.self)

  struct List: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Counts jobs by kind and queue, and lists those that were given up.",
      discussion: """
        due: can start now. waiting: due later. running: claimed by a worker. parked: given up \
        when its retry window ended; run `tenure jobs retry`. failing: jobs, parked ones excluded, \
        whose last run failed.
        """)

    @OptionGroup var options: SettingOptions

    @Option(help: "List only parked jobs of this kind.")
    var kind: Job.Kind?

    @Option(help: "Maximum number of parked jobs to list.")
    var limit = 50

    func run() async throws {
      let kind = kind?.rawValue
      try await options.withLedger { ledger, _, now in
        let counts = try await ledger.jobs.jobCounts(at: now)
        let discarded = try await ledger.jobs.discardedJobs(kind: kind, limit: max(0, limit))
        print(JobsReport.counts(counts, at: now))
        if !discarded.isEmpty { print("\n" + JobsReport.discarded(discarded)) }
        let total = counts.filter { kind == nil || $0.kind == kind }.map(\.discarded).reduce(0, +)
        if total > discarded.count { print("… and \(total - discarded.count) more") }
      }
    }
  }

  struct Show: AsyncParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Shows the details of a job.")

    @OptionGroup var options: SettingOptions

    @Argument(help: "Job ID or subject, such as a submission ID.")
    var id: String

    func run() async throws {
      let jobs = try await options.withLedger { ledger, _, now in
        try await ledger.jobs.jobs(named: id, at: now)
      }
      guard !jobs.isEmpty else {
        throw CommandFailure(description: "no job has the ID or subject \(id)")
      }
      print(jobs.map(JobsReport.details).joined(separator: "\n\n"))
    }
  }

  struct Retry: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Retries jobs immediately with a fresh retry window.",
      discussion: """
        Retries the given jobs, parked or waiting, or all parked jobs (of one kind). Running jobs \
        are unaffected. The audit log records who retried them, and the reason if one is given.
        """)

    @OptionGroup var options: SettingOptions
    @OptionGroup var action: RestartOptions

    @Argument(help: "Job IDs or subjects, such as submission IDs.")
    var ids: [String] = []

    @Option(help: "Retry all parked jobs of this kind.")
    var kind: Job.Kind?

    @Flag(help: "Retry all parked jobs.")
    var all = false

    func validate() throws {
      guard [!ids.isEmpty, kind != nil, all].count(where: \.self) == 1 else {
        throw ValidationError("Specify job IDs, --kind or --all.")
      }
    }

    func run() async throws {
      let selection: JobSelection =
        if let kind {
          .discarded(kind: kind.rawValue)
        } else if all {
          .allDiscarded
        } else {
          .named(ids)
        }
      let count = try await options.withLedger { ledger, _, now in
        try await ledger.jobs.restartJobs(selection, by: action.administrator, at: now)
      }
      guard count > 0 || ids.isEmpty else {
        throw CommandFailure(description: "no job with this ID or subject is waiting or parked")
      }
      print("retried  \(count)")
    }
  }
}

extension Job.Kind: ExpressibleByArgument {}

enum JobsReport {
  static func counts(_ counts: [JobCount], at now: Timestamp) -> String {
    guard !counts.isEmpty else { return "No jobs." }
    return table(
      ["kind", "queue", "due", "waiting", "running", "parked", "failing", "due for"],
      counts.map { count in
        let numbers = [count.due, count.waiting, count.running, count.discarded, count.failing]
        return [count.kind, count.queue] + numbers.map(String.init)
          + [count.dueSince.map { max(.zero, now - $0).words(isRough: true) } ?? ""]
      })
  }

  static func discarded(_ jobs: [StoredJob]) -> String {
    table(
      ["id", "kind", "subject", "parked at", "attempts", "reason"],
      jobs.map { job in
        [
          "\(job.id)", job.kind, job.subject, job.discardedAt?.description ?? "",
          "\(job.attempts)", job.lastError ?? "",
        ]
      })
  }

  static func details(_ job: StoredJob) -> String {
    let fields: [(String, String?)] = [
      ("id", "\(job.id)"), ("kind", job.kind), ("subject", job.subject),
      ("state", job.state.rawValue), ("queue", job.queue), ("priority", "\(job.priority)"),
      ("due at", "\(job.runAt)"), ("attempts", "\(job.attempts)"),
      ("retrying since", "\(job.createdAt)"), ("worker", job.worker),
      ("leased until", job.lockedUntil.map { "\($0)" }),
      ("parked at", job.discardedAt.map { "\($0)" }), ("reason", job.lastError),
    ]
    return fields.compactMap { name, value in value.map { [name, $0] } }.aligned()
      .joined(separator: "\n")
  }

  private static func table(_ head: [String], _ rows: [[String]]) -> String {
    ([head] + rows).aligned().joined(separator: "\n")
  }
}
