import ArgumentParser
import Foundation
import Logging
import Secrets

/// What `tenure bench` measures.
enum BenchSubject: String, CaseIterable, ExpressibleByArgument, Sendable {
  case reads, submissions, signatures, jobs, polling, `import`, all, growth, reports
}

/// How its results are printed.
enum BenchFormat: String, CaseIterable, ExpressibleByArgument, Sendable {
  case table, json
}

/// `tenure bench`: the benchmarks, each with its limit.
struct BenchCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "bench",
    abstract: "Measures the speed, each figure beside its limit measured in the same run.",
    discussion: """
      reads: entitlements over HTTP, 64 connections, random accounts; beside pgbench's prepared \
      select on the same table, and once more in a way that only the router answers. submissions: \
      receipts decided, Apple's answer at hand; beside the bare SQL of one. signatures: signed \
      transactions and notifications verified on one core, their certificates known and unknown; \
      beside the bare verification of their signatures. jobs: orders that expire, through the \
      queue and a worker; beside pgbench's bare SKIP LOCKED of the same. polling: subscriptions \
      that have ended, found and planned, and then asked about and their renewals recorded, Apple \
      simulated in the same process; beside the bare SQL of the writes. import: the lines of a \
      file of owners; beside psql's COPY of the rows that this writes. Rounds of both sides \
      alternate, and medians are printed; polling has one round. All of a million subscriptions \
      takes an hour: tenure bench polling --subscriptions 1000000 --polls 1000000.

      growth, which is no part of all: entitlement reads of ten million accounts, beside the same \
      reads of a hundredth of them, each with a PostgreSQL and a server of its own. It takes five \
      minutes, and 6 GB on the disk.

      reports, which is no part of all either: every report and every page on a large ledger with \
      three years of history, each asked for twice through a server; it is missed, and the exit \
      status 1, what neither answers nor says that it is working within two seconds. And \
      entitlement reads while somebody asks for one report after the other, beside the same reads \
      alone. Filling comes first: some hundred lives are recorded as the programs do, and copied \
      with other numbers and dates. Left out is what neither reports nor pages read (what was \
      submitted, what Apple answered, what apps were told), and entries, notifications and events \
      are there for every tenth customer only. A million subscriptions take about 20 minutes and \
      30 GB: --database keeps them for the next run.

      Uses a private PostgreSQL in the temporary directory, with a quarter of the memory as its \
      shared buffers, and removes it afterwards. Needs the programs pgbench and wrk (packages \
      postgresql and wrk on Debian); signatures and polling need neither, jobs only pgbench, \
      growth only wrk, import only psql. Trust the ratios: absolute figures depend on the machine \
      and on who else uses it.
      """)

  @Argument(help: "What to measure.")
  var subject = BenchSubject.all

  @Option(
    help: """
      How many accounts there are, each with one subscription (1000000; 10000000 when growth is \
      measured).
      """)
  var accounts: Int?

  @Option(help: "How long each side of a round takes.")
  var seconds = 10

  @Option(help: "How many rounds; their median counts.")
  var rounds = 3

  @Option(
    help: """
      How many subscriptions are due when polling is measured (100000), or there are when reports \
      are (1000000).
      """)
  var subscriptions: Int?

  @Option(help: "How many of them are polled.")
  var polls = 10_000

  @Option(help: "How many lines the imported file has.")
  var lines = 200_000

  @Option(help: "How the results are printed: table or json.")
  var format = BenchFormat.table

  @Option(help: "An empty database to use instead of a private one. What is made in it is removed.")
  var databaseURL: Secret<String>?

  @Option(
    help: "A directory where the private database of the reports is kept for the next run.",
    completion: .directory)
  var database: String?

  func validate() throws {
    guard (1...100_000_000).contains(accounts ?? 1) else {
      throw ValidationError("--accounts is from 1 to 100000000.")
    }
    guard (1...3600).contains(seconds) else {
      throw ValidationError("--seconds is from 1 to 3600.")
    }
    guard (1...1000).contains(rounds) else {
      throw ValidationError("--rounds is from 1 to 1000.")
    }
    guard (1...100_000_000).contains(subscriptions ?? 1) else {
      throw ValidationError("--subscriptions is from 1 to 100000000.")
    }
    guard
      subject == .reports
        || (1...(subscriptions ?? PollingBenchmark.subscriptions)).contains(polls)
    else {
      throw ValidationError("--polls is from 1 to the number of subscriptions.")
    }
    guard (1...100_000_000).contains(lines) else {
      throw ValidationError("--lines is from 1 to 100000000.")
    }
    guard databaseURL?.revealed.isEmpty != true else {
      throw ValidationError("--database-url is empty: leave it out, or give a value.")
    }
    guard database == nil || subject == .reports && database?.isEmpty == false else {
      throw ValidationError("--database names a directory, and is for reports alone.")
    }
    guard subject != .growth || databaseURL == nil else {
      throw ValidationError("--database-url names one database, and growth compares two.")
    }
    guard database == nil || databaseURL == nil else {
      throw ValidationError("--database and --database-url are two ways: give one of them.")
    }
  }

  func run() async throws {
    let logger = Logger.bootstrapTenure(level: .notice)
    #if DEBUG
      logger.warning("This is a debug build: its figures mean nothing (swift build -c release)")
    #endif
    let report = try await BenchRun(
      subject: subject, databaseURL: databaseURL, accounts: accounts, seconds: seconds,
      rounds: rounds, subscriptions: subscriptions, polls: polls, lines: lines,
      databaseDirectory: database.map { URL(filePath: $0, directoryHint: .isDirectory) },
      logger: logger
    ).run()
    guard let report else { throw ExitCode(130) }
    switch format {
    case .table: print(report.table)
    case .json: print(try report.json)
    }
    guard report.isMet else { throw ExitCode(1) }
  }
}
