import ArgumentParser
import BackgroundJobs
import Bootstrap
import Foundation
import Intake
import JSONText
import LedgerStorage
import Reports
import Subscriptions

struct CompareCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "compare", abstract: "Compares another backend's entitlements with Tenure's.",
    discussion: """
      The file is CSV with a header, or JSON lines: account_id, entitlement, and until (RFC 3339; \
      empty: no end), active (true or false), or both. Rows must be grouped by account. Each \
      difference is printed with Tenure's reason: only_there (active there only: the account would \
      lose access), only_here (active here only) or other_end (different ends; without a time: no \
      end). --all adds the accounts that are not in the file. Exit status 1 on a difference or an \
      unreadable line.
      """)

  @OptionGroup var options: SettingOptions

  @Argument(help: "File to read, or - for standard input.")
  var file: String

  @Option(help: "table, csv, or json (one object per line).")
  var format = ReportFormat.table

  @Option(help: "Minutes by which two ends may differ and still match.")
  var tolerance = 5

  @Flag(help: "Also reports the entitlements of accounts that are not in the file.")
  var all = false

  func validate() throws {
    guard (0...527_040).contains(tolerance) else {
      throw ValidationError("--tolerance must be from 0 to 527040 minutes.")
    }
  }

  func run() async throws {
    let isSame = try await options.useDatabase { database, settings, logger in
      let now = settings.clock.now()
      let ledger = Ledger(database: database)
      let catalogue = try await CatalogueCache(ledger: ledger, logger: logger)
      let reader = EntitlementReader(
        ledger: ledger, catalogue: catalogue, sandboxAccess: settings.sandboxAccess)
      let input = try InputFile(file, now: now)
      var run = try ComparisonRun(
        rows: RowFile(FileBytes(input.handle), columns: PublishedAccess.columns), reader: reader,
        explanation: AccessExplanation(ledger: ledger, terms: reader.terms),
        comparison: AccessComparison(tolerance: .seconds(tolerance * 60), now: now),
        isOfAll: all, printer: DifferencePrinter(format))
      return try await run.run()
    }
    guard isSame else { throw ExitCode.failure }
  }
}

struct ComparisonRun {
  var rows: RowFile
  let reader: EntitlementReader
  let explanation: AccessExplanation
  let comparison: AccessComparison
  /// Whether accounts that are not in the file are compared too.
  let isOfAll: Bool
  var printer: DifferencePrinter

  /// Compares the file a batch of accounts at a time and prints the differences.
  ///
  /// - Returns: Whether every row was read and none differs.
  mutating func run() async throws -> Bool {
    var (batch, lines, faults): ([[PublishedAccess]], Int, Int) = ([], 0, 0)
    // Hashes, so that a file of many millions needs little memory.
    var seen: Set<Int> = []
    // The previous row's account, even if the rest of the row is unreadable.
    var last: AccountID?
    while let row = try rows.next() {
      lines += 1
      var reported = row.values.flatMap { PublishedAccess.access($0, at: comparison.now) }
      if case .success(let values) = row.values, let account = values[0].map(AccountID.init(_:)),
        account != last
      {
        if seen.insert(account.hashValue).inserted {
          last = account
        } else {
          reported = .failure(
            RowFault("not_sorted", "Rows must be grouped by account: sort the file."))
        }
      }
      switch reported {
      case .failure(let fault):
        faults += 1
        FileHandle.standardError.write(Data("line \(row.line): \(fault.reason)\n".utf8))
      case .success(let reported):
        if batch.last?.last.map({ AccountID($0.accountID) }) == AccountID(reported.accountID) {
          batch[batch.count - 1].append(reported)
          continue
        }
        if batch.count == EntitlementReader.maximumBatch {
          try await compare(batch)
          batch = []
        }
        batch.append([reported])
      }
    }
    try await compare(batch)
    if isOfAll { try await reportOthers(than: seen) }
    printer.finish(lines: lines, faults: faults)
    return faults == 0 && printer.counts.isEmpty
  }

  private mutating func compare(_ batch: [[PublishedAccess]]) async throws {
    let accounts = batch.compactMap { $0.first?.accountID }
    guard !accounts.isEmpty else { return }
    let all = try await reader.entitlements(of: accounts, now: comparison.now)
    for (reported, (account, entitlements)) in zip(batch, zip(accounts, all)) {
      try await write(reported, of: account, entitlements)
    }
  }

  private mutating func write(
    _ reported: [PublishedAccess]?, of account: String, _ entitlements: [Entitlement]
  ) async throws {
    let differences = try await comparison.differences(of: account, reported, entitlements) {
      try await explanation.sentence(for: $0, of: account, among: entitlements)
    }
    for difference in differences { printer.write(difference) }
  }

  private mutating func reportOthers(than seen: Set<Int>) async throws {
    let (ledger, reader, comparison) = (explanation.ledger, reader, comparison)
    try await ExportCommand.eachPage { (last: String?) in
      try await ledger.exports.exportAccounts(after: last, limit: EntitlementReader.maximumBatch)
    } write: { page in
      let others = page.filter { !seen.contains(AccountID($0).hashValue) }
      let all = try await reader.entitlements(of: others, now: comparison.now)
      for (account, entitlements) in zip(others, all) {
        try await write(nil, of: account, entitlements)
      }
    }
  }
}

struct DifferencePrinter {
  private static let names = [
    "difference", "account_id", "entitlement", "until_there", "until_here", "explanation",
  ]

  private let format: ReportFormat
  private(set) var counts: [AccessDifference.Kind: Int] = [:]

  init(_ format: ReportFormat) {
    self.format = format
    if format == .csv { print(Self.names.joined(separator: ","), terminator: "\r\n") }
  }

  mutating func write(_ difference: AccessDifference) {
    counts[difference.kind, default: 0] += 1
    let fields: [String?] = [
      difference.kind.rawValue, difference.accountID, difference.entitlement,
      difference.untilThere?.description, difference.untilHere?.description, difference.explanation,
    ]
    switch format {
    case .csv: print(fields.csvLine(guardsFormulas: false), terminator: "")
    case .json: print(RowWriter.object(Self.names, fields))
    case .table:
      let kind = Self.column(difference.kind)
      let ends = [("there", difference.untilThere), ("here", difference.untilHere)]
        .compactMap { place, end in
          end.map { "\(place) until \($0)" }
            ?? (difference.kind == .otherEnd ? "\(place) without end" : nil)
        }.joined(separator: ", ")
      let what = "\(kind)\(difference.accountID)  \(difference.entitlement)"
      print("\(what)  \(ends.isEmpty ? "" : "\(ends): ")\(difference.explanation)")
    }
  }

  private static func column(_ kind: AccessDifference.Kind) -> String {
    kind.rawValue.padding(toLength: 12, withPad: " ", startingAt: 0)
  }

  /// Prints the totals: after a table, and otherwise on standard error.
  func finish(lines: Int, faults: Int) {
    let numbers =
      ["lines       \(lines)", "unreadable  \(faults)"]
      + AccessDifference.Kind.allCases.map { "\(Self.column($0))\(counts[$0] ?? 0)" }
    let text = numbers.joined(separator: "\n") + "\n"
    if format == .table {
      print(text, terminator: "")
    } else {
      FileHandle.standardError.write(Data(text.utf8))
    }
  }
}
