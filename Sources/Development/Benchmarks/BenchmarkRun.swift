import Bootstrap
package import Foundation
package import Logging
import Postgres
package import Secrets
import ServiceLifecycle
import Synchronization
import UnixSignals

/// `tenure bench`: runs benchmarks and removes everything that they start.
package struct BenchRun: Sendable {
  let subject: BenchSubject
  let databaseURL: Secret<String>?
  /// Nil: the subject's default.
  let accounts: Int?
  let seconds: Int
  let rounds: Int
  /// Nil: the subject's default.
  let subscriptions: Int?
  let polls: Int
  let lines: Int
  /// `TENURE_READ_CACHE` of the server of reads; nil: that of the environment.
  let readCache: String?
  /// The directory in which the reports' database is kept; nil: it is removed.
  let databaseDirectory: URL?
  let logger: Logger

  package init(
    subject: BenchSubject, databaseURL: Secret<String>?, accounts: Int?, seconds: Int, rounds: Int,
    subscriptions: Int?, polls: Int, lines: Int, readCache: String?, databaseDirectory: URL?,
    logger: Logger
  ) {
    self.subject = subject
    self.databaseURL = databaseURL
    self.accounts = accounts
    self.seconds = seconds
    self.rounds = rounds
    self.subscriptions = subscriptions
    self.polls = polls
    self.lines = lines
    self.readCache = readCache
    self.databaseDirectory = databaseDirectory
    self.logger = logger
  }

  /// With minimal WAL, tables written in the transaction that creates them bypass the log.
  private static let reportsSettings = ["wal_level": "minimal", "max_wal_senders": "0"]

  /// A quarter of the memory, as PostgreSQL's manual recommends.
  private static let memorySettings = [
    "shared_buffers": "\(ProcessInfo.processInfo.physicalMemory / 4 / 1024)kB"
  ]

  /// Measures until done; returns nil if stopped by SIGINT or SIGTERM.
  package func run() async throws -> BenchReport? {
    let task = MeasuringTask { try await measure() }
    let group = ServiceGroup(
      configuration: .init(
        services: [.init(service: task, successTerminationBehavior: .gracefullyShutdownGroup)],
        cancellationSignals: [.sigint, .sigterm], logger: logger))
    do {
      try await group.run()
    } catch is CancellationError {
      return nil
    }
    return task.report
  }

  private func measure() async throws -> BenchReport {
    if subject == .reports { return try await measureReports() }
    if subject == .growth {
      let results = try await measureGrowth()
      let year = try await withDatabase { database, _ in
        try await CustomerYear.measure(of: CustomerYear.customers, in: database, logger: logger)
      }
      return BenchReport(results: results, year: year)
    }
    if subject == .audit || subject == .whatIf {
      return try await withDatabase { database, _ in
        let benchmark = AuditBenchmark(
          kinds: subject == .audit ? [.audited, .accounts] : [.compared], database: database,
          customers: accounts ?? AuditBenchmark.customers, rounds: rounds,
          logger: logger)
        return BenchReport(results: try await benchmark.run())
      }
    }
    if subject == .distributed { return BenchReport(results: try await measureDistributed()) }
    var results: [BenchResult] = []
    if subject == .signatures || subject == .all {
      let benchmark = SignatureBenchmark(seconds: seconds, rounds: rounds, logger: logger)
      results += try await benchmark.run()
    }
    if [.reads, .submissions, .notifications, .all].contains(subject) {
      results += try await withDatabase { try await measure(on: $0, in: $1) }
    }
    if subject == .jobs || subject == .all {
      results += try await withDatabase { database, directory in
        let benchmark = JobBenchmark(
          database: database, seconds: seconds, rounds: rounds, directory: directory,
          logger: logger)
        return [try await benchmark.run()]
      }
    }
    if subject == .polling || subject == .all {
      results += try await withDatabase { database, _ in
        try await PollingBenchmark(
          database: database, subscriptions: subscriptions ?? PollingBenchmark.subscriptions,
          polls: polls, logger: logger
        ).run()
      }
    }
    if subject == .import || subject == .all {
      results += try await withDatabase { database, directory in
        let benchmark = ImportBenchmark(
          database: database, lines: lines, rounds: rounds, directory: directory, logger: logger)
        return [try await benchmark.run()]
      }
    }
    return BenchReport(results: results)
  }

  private func measureReports() async throws -> BenchReport {
    try await withDatabase(keptIn: databaseDirectory, settings: Self.reportsSettings) {
      database, directory in
      let (results, answers) = try await ReportsBenchmark(
        database: database, subscriptions: subscriptions ?? ReportsBenchmark.subscriptions,
        seconds: seconds, rounds: rounds, directory: directory, logger: logger
      ).run()
      return BenchReport(results: results, answers: answers)
    }
  }

  private func measureGrowth() async throws -> [BenchResult] {
    let accounts = accounts ?? GrowthBenchmark.accounts
    return try await withDatabase { many, directory in
      try await withDatabase(beside: "few") { few, _ in
        try await GrowthBenchmark(
          many: .init(database: many, accounts: SampleAccounts(count: accounts)),
          few: .init(
            database: few,
            accounts: SampleAccounts(count: max(1, accounts / GrowthBenchmark.growth))),
          seconds: seconds, rounds: rounds, directory: directory, logger: logger
        ).run()
      }
    }
  }

  private func measureDistributed() async throws -> [BenchResult] {
    try await withDatabase(at: databaseURL) { citus, directory in
      try await withDatabase(at: nil, beside: "plain") { plain, _ in
        try await DistributedBenchmark(
          citus: citus, plain: plain, seconds: seconds, rounds: rounds, directory: directory,
          logger: logger
        ).run()
      }
    }
  }

  private func withDatabase<Value>(
    beside name: String? = nil, keptIn place: URL? = nil, settings: [String: String] = [:],
    _ body: (BenchDatabase, _ directory: URL) async throws -> Value
  ) async throws -> Value {
    try await withDatabase(
      at: databaseURL, beside: name, keptIn: place, settings: settings, body)
  }

  /// Creates a database for a body and removes it afterwards unless it is kept.
  private func withDatabase<Value>(
    at url: Secret<String>?, beside name: String? = nil, keptIn place: URL? = nil,
    settings: [String: String] = [:],
    _ body: (BenchDatabase, _ directory: URL) async throws -> Value
  ) async throws -> Value {
    let process = ProcessInfo.processInfo.processIdentifier
    let directory = FileManager.default.temporaryDirectory
      .appending(path: "tenure-bench-\(process)\(name.map { "-" + $0 } ?? "")")
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: directory) }
    let database = try await BenchDatabase.create(
      url: url, in: place ?? directory, isKept: place != nil,
      settings: settings.merging(Self.memorySettings) { given, _ in given }
        .merging(await statistics(in: directory)) { given, _ in given }, logger: logger)
    do {
      let results = try await body(database, directory)
      await database.remove()
      return results
    } catch {
      // In its own task because a cancelled task would not finish removing it.
      await Task { await database.remove() }.value
      throw error
    }
  }

  /// The settings for ``StatementCost``, where the extension is installed.
  private func statistics(in directory: URL) async -> [String: String] {
    guard [.submissions, .notifications].contains(subject),
      let program = try? BenchTool("pg_config", package: "postgresql"),
      let folder = try? await program.run(["--pkglibdir"], in: directory),
      case let library = folder.trimmingCharacters(in: .whitespacesAndNewlines),
      FileManager.default.fileExists(atPath: "\(library)/pg_stat_statements.so")
    else { return [:] }
    return [
      "shared_preload_libraries": "pg_stat_statements",
      "pg_stat_statements.track_planning": "on",
    ]
  }

  private func measure(on database: BenchDatabase, in directory: URL) async throws
    -> [BenchResult]
  {
    let accounts = SampleAccounts(count: accounts ?? SampleAccounts.usualCount)
    try await accounts.fill(database, logger: logger)
    var results: [BenchResult] = []
    if subject == .reads || subject == .all {
      let benchmark = ReadBenchmark(
        database: database, accounts: accounts, seconds: seconds, rounds: rounds,
        directory: directory, logger: logger, cache: readCache)
      results += try await benchmark.run()
    }
    var kinds: [DecisionBenchmark.Kind] = []
    if subject == .submissions || subject == .all { kinds += [.receipts, .signedTransactions] }
    if subject == .notifications || subject == .all { kinds.append(.notifications) }
    for kind in kinds {
      let benchmark = DecisionBenchmark(
        kind: kind, database: database, seconds: seconds, rounds: rounds, directory: directory,
        logger: logger)
      results.append(try await benchmark.run())
    }
    return results
  }
}

/// Work that the service group cancels on a signal, and that ends the group when done.
private final class MeasuringTask: Service {
  private let work: @Sendable () async throws -> BenchReport
  private let found = Mutex<BenchReport>(BenchReport(results: []))

  init(_ work: @escaping @Sendable () async throws -> BenchReport) {
    self.work = work
  }

  var report: BenchReport { found.withLock { $0 } }

  func run() async throws {
    let report = try await work()
    found.withLock { $0 = report }
  }
}

package struct BenchReport: Sendable {
  var results: [BenchResult]
  var answers: [AnswerTime] = []
  var year: CustomerYear?

  /// Whether every page and report was answered in time.
  package var isMet: Bool { answers.allSatisfy(\.isMet) }

  private enum Item: Encodable {
    case result(BenchResult)
    case answer(AnswerTime)
    case year(CustomerYear)

    func encode(to encoder: any Encoder) throws {
      switch self {
      case .result(let result): try result.encode(to: encoder)
      case .answer(let answer): try answer.encode(to: encoder)
      case .year(let year): try year.encode(to: encoder)
      }
    }
  }

  /// An array of objects, each with its rounds or its response times.
  package var json: String {
    get throws {
      let encoder = JSONEncoder()
      encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
      let items =
        results.map(Item.result) + answers.map(Item.answer)
        + [year].compactMap(\.self).map(Item.year)
      return String(decoding: try encoder.encode(items), as: UTF8.self)
    }
  }

  /// A line for each result, followed by a description of the limits.
  package var table: String {
    [answers.isEmpty ? nil : answersTable, results.isEmpty ? nil : resultsTable, year?.table]
      .compactMap(\.self).joined(separator: "\n\n")
  }

  private var answersTable: String {
    let header = ["", "cold ms", "warm ms", "ready after ms", "", "limit"]
    let limit = Self.whole(AnswerTime.limit / .milliseconds(1))
    let rows = answers.map { answer in
      [
        answer.name, Self.whole(answer.cold / .milliseconds(1)),
        Self.whole(answer.warm / .milliseconds(1)),
        Self.whole(answer.answeredAfter / .milliseconds(1)), answer.outcome,
        answer.isMet ? "met" : "missed",
      ]
    }
    let missed = answers.count { !$0.isMet }
    return Self.lines([header] + rows)
      + "\n\n\(missed) of \(answers.count) missed the limit: a first request must be answered, or "
      + "reported as in progress, within \(limit) ms."
  }

  private var resultsTable: String {
    let header = [
      "", "per second", "limit", "ratio", "goal", "", "p50 ms", "p99 ms", "memory MB",
      "database MB",
    ]
    let notes = results.map { result in
      "\(result.name): the limit is \(result.limitName)."
        + (result.cost.map { " Each: \(Self.cost($0))" } ?? "")
        + (result.limitCost.map { "; the limit: \(Self.cost($0))." } ?? "")
        + (result.longest.map { " The goal for p99 is \(Self.whole($0 / .milliseconds(1))) ms." }
          ?? "")
    }
    return ([Self.lines([header] + results.map(Self.cells)), ""] + notes).joined(separator: "\n")
  }

  /// Aligns rows in columns: the first to the left, the others to the right.
  private static func lines(_ rows: [[String]]) -> String {
    let widths = (rows.first ?? []).indices.map { column in
      rows.map { $0[column].count }.max() ?? 0
    }
    return rows.map { row in
      zip(row, widths).enumerated().map { column, cell in
        let padding = String(repeating: " ", count: cell.1 - cell.0.count)
        return column == 0 ? cell.0 + padding : padding + cell.0
      }.joined(separator: "  ")
    }.joined(separator: "\n")
  }

  private static func cells(_ result: BenchResult) -> [String] {
    [
      result.name, whole(result.perSecond), whole(result.limitPerSecond),
      decimal(result.ratio, digits: 2), result.goal.map { "≥ " + decimal($0, digits: 2) } ?? "–",
      result.isMet.map { $0 ? "met" : "missed" } ?? "",
      result.p50Milliseconds.map { decimal($0, digits: 2) } ?? "–",
      result.p99Milliseconds.map { decimal($0, digits: 2) } ?? "–",
      result.memory.map { whole(Double($0) / 1_000_000) } ?? "–",
      result.database.map { whole(Double($0) / 1_000_000) } ?? "–",
    ]
  }

  private static func cost(_ cost: StatementCost) -> String {
    [
      cost.statements.map { "\(decimal($0, digits: 1)) statements" },
      cost.milliseconds.map { "\(decimal($0, digits: 2)) ms of PostgreSQL" },
      "\(decimal(cost.wal / 1000, digits: 1)) kB of WAL",
    ].compactMap(\.self).joined(separator: ", ")
  }

  private static func whole(_ value: Double) -> String {
    let digits = String(Int(value.rounded()))
    var grouped = ""
    for (index, digit) in digits.enumerated() {
      if index > 0, (digits.count - index).isMultiple(of: 3) { grouped.append(",") }
      grouped.append(digit)
    }
    return grouped
  }

  private static func decimal(_ value: Double, digits: Int) -> String {
    value.formatted(
      .number.precision(.fractionLength(digits)).grouping(.never)
        .locale(Locale(identifier: "en_US_POSIX")))
  }
}

struct Measurement: Sendable {
  /// Operations per second.
  var rate: Double
  /// The median duration of an operation; nil where it was not measured.
  var p50: Duration?
  /// The 99th percentile of the durations.
  var p99: Duration?
}

/// A benchmark's result and its limit, measured alternately in the same run.
struct BenchResult: Sendable, Encodable {
  let name: String
  let limitName: String
  /// The target ratio to the limit; nil: measured for information only.
  let goal: Double?
  /// The target of the 99th percentile; nil: none.
  let longest: Duration?
  /// The peak memory of the measured process in bytes; nil if not meaningful.
  let memory: Int?
  /// The size of the database in bytes; nil if not meaningful.
  let database: Int?
  /// PostgreSQL's costs of one piece of work, and of the limit's; nil if not measured.
  let cost: StatementCost?
  let limitCost: StatementCost?
  private let rounds: [Round]

  private struct Round: Sendable, Encodable {
    var perSecond: Double
    var limitPerSecond: Double
    var p50Milliseconds: Double?
    var p99Milliseconds: Double?

    enum CodingKeys: String, CodingKey {
      case perSecond = "per_second"
      case limitPerSecond = "limit_per_second"
      case p50Milliseconds = "p50_ms"
      case p99Milliseconds = "p99_ms"
    }
  }

  init(
    name: String, limitName: String, goal: Double?, longest: Duration? = nil,
    rounds: [(measured: Measurement, limit: Measurement)], memory: Int? = nil,
    database: Int? = nil, cost: StatementCost? = nil, limitCost: StatementCost? = nil
  ) {
    precondition(!rounds.isEmpty, "A result has at least one round.")
    self.name = name
    self.limitName = limitName
    self.goal = goal
    self.longest = longest
    self.memory = memory
    self.database = database
    self.cost = cost
    self.limitCost = limitCost
    self.rounds = rounds.map { measured, limit in
      Round(
        perSecond: measured.rate, limitPerSecond: limit.rate,
        p50Milliseconds: measured.p50.map { $0 / .milliseconds(1) },
        p99Milliseconds: measured.p99.map { $0 / .milliseconds(1) })
    }
  }

  var perSecond: Double { median(rounds.map(\.perSecond)) }
  var limitPerSecond: Double { median(rounds.map(\.limitPerSecond)) }
  var ratio: Double { perSecond / limitPerSecond }
  /// Nil without a goal.
  var isMet: Bool? {
    let isShort = longest.map { (p99Milliseconds ?? 0) <= $0 / .milliseconds(1) } ?? true
    return goal.map { ratio >= $0 && isShort }
  }
  var p50Milliseconds: Double? { median(rounds.compactMap(\.p50Milliseconds)) }
  var p99Milliseconds: Double? { median(rounds.compactMap(\.p99Milliseconds)) }

  enum CodingKeys: String, CodingKey {
    case name, limit, goal, ratio, met, rounds, cost
    case limitCost = "limit_cost"
    case perSecond = "per_second"
    case limitPerSecond = "limit_per_second"
    case p50Milliseconds = "p50_ms"
    case p99Milliseconds = "p99_ms"
    case memory = "memory_bytes"
    case database = "database_bytes"
  }

  func encode(to encoder: any Encoder) throws {
    var result = encoder.container(keyedBy: CodingKeys.self)
    try result.encode(name, forKey: .name)
    try result.encode(perSecond, forKey: .perSecond)
    try result.encode(limitName, forKey: .limit)
    try result.encode(limitPerSecond, forKey: .limitPerSecond)
    try result.encode(ratio, forKey: .ratio)
    try result.encodeIfPresent(goal, forKey: .goal)
    try result.encodeIfPresent(isMet, forKey: .met)
    try result.encodeIfPresent(p50Milliseconds, forKey: .p50Milliseconds)
    try result.encodeIfPresent(p99Milliseconds, forKey: .p99Milliseconds)
    try result.encodeIfPresent(memory, forKey: .memory)
    try result.encodeIfPresent(database, forKey: .database)
    try result.encodeIfPresent(cost, forKey: .cost)
    try result.encodeIfPresent(limitCost, forKey: .limitCost)
    try result.encode(rounds, forKey: .rounds)
  }
}

/// The middle value, or the mean of the two middle values.
private func median(_ values: [Double]) -> Double {
  let sorted = values.sorted()
  let middle = sorted.count / 2
  return sorted.count.isMultiple(of: 2) ? (sorted[middle - 1] + sorted[middle]) / 2 : sorted[middle]
}

private func median(_ values: [Double]) -> Double? {
  values.isEmpty ? nil : median(values) as Double
}

/// The subjects of `tenure bench`.
package enum BenchSubject: String, CaseIterable, Sendable {
  case reads, submissions, notifications, signatures, jobs, polling, `import`, all, growth, reports,
    distributed, audit
  case whatIf = "what-if"
}
