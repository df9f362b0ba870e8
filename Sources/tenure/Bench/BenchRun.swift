import Foundation
import Logging
import Postgres
import Secrets
import ServiceLifecycle
import Synchronization
import UnixSignals

/// A whole run of benchmarks: everything that it starts is gone when it ends, however it ends.
struct BenchRun: Sendable {
  let subject: BenchSubject
  let databaseURL: Secret<String>?
  /// Nil: as many as is usual for the subject.
  let accounts: Int?
  let seconds: Int
  let rounds: Int
  /// Nil: as many as is usual for the subject.
  let subscriptions: Int?
  let polls: Int
  let lines: Int
  /// Where the database of the reports is kept; nil: nowhere.
  let databaseDirectory: URL?
  let logger: Logger

  /// What one transaction writes need not go through the log; everything else is as usual.
  private static let reportsSettings = ["wal_level": "minimal", "max_wal_senders": "0"]

  /// A quarter of the memory for PostgreSQL, as its manual advises.
  private static let memorySettings = [
    "shared_buffers": "\(ProcessInfo.processInfo.physicalMemory / 4 / 1024)kB"
  ]

  /// Measures, until it is done or told to stop by SIGINT or SIGTERM.
  ///
  /// - Returns: The results; nil if it was told to stop.
  func run() async throws -> BenchReport? {
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
    if subject == .growth { return BenchReport(results: try await measureGrowth()) }
    var results: [BenchResult] = []
    if subject == .signatures || subject == .all {
      let benchmark = SignatureBenchmark(seconds: seconds, rounds: rounds, logger: logger)
      results += try await benchmark.run()
    }
    if [.reads, .submissions, .all].contains(subject) {
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

  /// Makes a database for some of the benchmarks, and removes it afterwards unless it is kept.
  private func withDatabase<Value>(
    beside name: String? = nil, keptIn place: URL? = nil, settings: [String: String] = [:],
    _ body: (BenchDatabase, _ directory: URL) async throws -> Value
  ) async throws -> Value {
    let process = ProcessInfo.processInfo.processIdentifier
    let directory = FileManager.default.temporaryDirectory
      .appending(path: "tenure-bench-\(process)\(name.map { "-" + $0 } ?? "")")
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: directory) }
    let database = try await BenchDatabase.create(
      url: databaseURL, in: place ?? directory, isKept: place != nil,
      settings: settings.merging(Self.memorySettings) { given, _ in given }, logger: logger)
    do {
      let results = try await body(database, directory)
      await database.remove()
      return results
    } catch {
      // Also when this task is cancelled, removing has to happen to its end.
      await Task { await database.remove() }.value
      throw error
    }
  }

  private func measure(on database: BenchDatabase, in directory: URL) async throws
    -> [BenchResult]
  {
    let accounts = SampleAccounts(count: accounts ?? SampleAccounts.usualCount)
    try await accounts.fill(database, logger: logger)
    var results: [BenchResult] = []
    if subject != .submissions {
      let benchmark = ReadBenchmark(
        database: database, accounts: accounts, seconds: seconds, rounds: rounds,
        directory: directory, logger: logger)
      results += try await benchmark.run()
    }
    if subject != .reads {
      let benchmark = SubmissionBenchmark(
        database: database, seconds: seconds, rounds: rounds, logger: logger)
      results.append(try await benchmark.run())
    }
    return results
  }
}

/// Work that the service group cancels on a signal, and whose end ends the group.
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
