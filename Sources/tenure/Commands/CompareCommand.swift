import ArgumentParser
import BackgroundJobs
import Bootstrap
import Foundation
import Intake
import JSONText
import LedgerStorage
import Logging
import Subscriptions

/// `tenure compare`: Tenure in the shadow of another backend.
struct CompareCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "compare",
    abstract: "Compares what another backend says of entitlements with what Tenure says.",
    discussion: """
      The file is CSV with a line of names, or JSON lines: account_id, entitlement, and until (RFC \
      3339; empty: it does not end) or active (true or false), or both. Every difference is \
      printed with Tenure's reason: active there alone (only_there: this account would lose \
      access), active here alone (only_here), or until other times (other_end; without a time: it \
      does not end). Accounts that are not in the file are looked at with --all; the lines of one \
      account stand next to each other. Exit status 1 if there is a difference, or a line that \
      can't be read.
      """)

  /// In which form differences are printed.
  enum Format: String, CaseIterable, ExpressibleByArgument {
    case table, csv, json
  }

  @OptionGroup var options: SettingOptions

  @Argument(help: "The file; a hyphen: standard input.")
  var file: String

  @Option(help: "table (each difference a line), csv, or json (one object on each line).")
  var format = Format.table

  @Option(help: "How many minutes two ends may be apart and count as one.")
  var tolerance = 5

  @Flag(help: "Tells of accounts that are not in the file, too: what they may use here.")
  var all = false

  func validate() throws {
    guard (0...527_040).contains(tolerance) else {
      throw ValidationError("--tolerance is from 0 to 527040 minutes.")
    }
  }

  func run() async throws {
    let settings = try await options.settings()
    let logger = Logger.bootstrapTenure(
      level: settings.logLevel, format: settings.logFormat)
    let now = settings.clock.now()
    let isSame = try await withDatabase(settings, logger: logger) { database in
      let ledger = Ledger(database: database)
      let catalogue = try await CatalogueCache(ledger: ledger, logger: logger)
      let reader = EntitlementReader(
        ledger: ledger, catalogue: catalogue, sandboxAccess: settings.sandboxAccess)
      let input = try InputFile(file, now: now)
      var run = try ComparisonRun(
        rows: RowFile(FileBytes(input.handle), columns: ToldAccess.columns), reader: reader,
        explanation: AccessExplanation(ledger: ledger, terms: reader.terms),
        comparison: AccessComparison(tolerance: .seconds(tolerance * 60), now: now),
        isOfAll: all, printer: DifferencePrinter(format))
      return try await run.run()
    }
    guard isSame else { throw ExitCode.failure }
  }
}

/// One comparison from the file's first line to its last.
struct ComparisonRun {
  private var rows: RowFile
  private let reader: EntitlementReader
  private let explanation: AccessExplanation
  private let comparison: AccessComparison
  /// Whether it goes on with the accounts that are not in the file.
  private let isOfAll: Bool
  private var printer: DifferencePrinter

  init(
    rows: RowFile, reader: EntitlementReader, explanation: AccessExplanation,
    comparison: AccessComparison, isOfAll: Bool, printer: DifferencePrinter
  ) {
    self.rows = rows
    self.reader = reader
    self.explanation = explanation
    self.comparison = comparison
    self.isOfAll = isOfAll
    self.printer = printer
  }

  /// Reads the file, asks for a batch of accounts at a time, and prints.
  ///
  /// - Returns: Whether nothing differs and everything could be read.
  mutating func run() async throws -> Bool {
    var (batch, lines, faults): ([[ToldAccess]], Int, Int) = ([], 0, 0)
    // By their hashes, so that a file of many millions needs little memory.
    var seen: Set<Int> = []
    // The account of the line before, whether the rest of that could be read or not.
    var last: AccountID?
    while let row = try rows.next() {
      lines += 1
      var told = row.values.flatMap { ToldAccess.access($0, at: comparison.now) }
      if case .success(let values) = row.values, let account = values[0].map(AccountID.init(_:)),
        account != last
      {
        if seen.insert(account.hashValue).inserted {
          last = account
        } else {
          told = .failure(
            RowFault(
              code: "not_sorted",
              reason: "The lines of an account stand next to each other: sort the file."))
        }
      }
      switch told {
      case .failure(let fault):
        faults += 1
        FileHandle.standardError.write(Data("line \(row.line): \(fault.reason)\n".utf8))
      case .success(let told):
        if batch.last?.last.map({ AccountID($0.accountID) }) == AccountID(told.accountID) {
          batch[batch.count - 1].append(told)
          continue
        }
        if batch.count == EntitlementReader.maximumBatch {
          try await compare(batch)
          batch = []
        }
        batch.append([told])
      }
    }
    try await compare(batch)
    if isOfAll { try await tellOthers(than: seen) }
    printer.finish(lines: lines, faults: faults)
    return faults == 0 && printer.counts.isEmpty
  }

  private mutating func compare(_ batch: [[ToldAccess]]) async throws {
    let accounts = batch.compactMap { $0.first?.accountID }
    guard !accounts.isEmpty else { return }
    let all = try await reader.entitlements(of: accounts, now: comparison.now)
    for (told, (account, entitlements)) in zip(batch, zip(accounts, all)) {
      let differences = try await comparison.differences(told, entitlements) { name in
        try await explanation.sentence(for: name, of: account, among: entitlements)
      }
      for difference in differences { printer.write(difference) }
    }
  }

  /// Goes through all accounts, a batch at a time, and tells what those have that the file lacks.
  private mutating func tellOthers(than seen: Set<Int>) async throws {
    let (ledger, reader, comparison) = (explanation.ledger, reader, comparison)
    try await ExportCommand.eachPage { (last: String?) in
      try await ledger.exportAccounts(after: last, limit: EntitlementReader.maximumBatch)
    } write: { page in
      let others = page.filter { !seen.contains(AccountID($0).hashValue) }
      let all = try await reader.entitlements(of: others, now: comparison.now)
      for (account, entitlements) in zip(others, all) {
        for difference in comparison.differences(ofUntold: account, entitlements) {
          printer.write(difference)
        }
      }
    }
  }
}

/// Prints differences, and what they come to.
struct DifferencePrinter {
  private static let names = [
    "difference", "account_id", "entitlement", "until_there", "until_here", "explanation",
  ]

  private let format: CompareCommand.Format
  private(set) var counts: [AccessDifference.Kind: Int] = [:]

  init(_ format: CompareCommand.Format) {
    self.format = format
    if format == .csv { print(Self.names.joined(separator: ","), terminator: "\r\n") }
  }

  mutating func write(_ difference: AccessDifference) {
    counts[difference.kind, default: 0] += 1
    let fields: [String?] = [
      difference.kind.rawValue, difference.accountID, difference.entitlement,
      difference.untilThere?.description, difference.untilHere?.description,
      difference.explanation,
    ]
    switch format {
    case .csv:
      let row = fields.map { ($0 ?? "").csvField(guardsFormulas: false) }
      print(row.joined(separator: ","), terminator: "\r\n")
    case .json: print(RowWriter.object(Self.names, fields))
    case .table:
      let kind = Self.column(difference.kind)
      let ends = [("there", difference.untilThere), ("here", difference.untilHere)]
        .compactMap { place, end in
          end.map { "\(place) until \($0)" }
            ?? (difference.kind == .otherEnd ? "\(place) without an end" : nil)
        }.joined(separator: ", ")
      let what = "\(kind)\(difference.accountID)  \(difference.entitlement)"
      print("\(what)  \(ends.isEmpty ? "" : "\(ends): ")\(difference.explanation)")
    }
  }

  private static func column(_ kind: AccessDifference.Kind) -> String {
    kind.rawValue.padding(toLength: 12, withPad: " ", startingAt: 0)
  }

  /// Says how many there were of each: for people beside the differences, else on standard error.
  func finish(lines: Int, faults: Int) {
    let numbers =
      ["lines       \(lines)", "unreadable  \(faults)"]
      + AccessDifference.Kind.allCases.map { kind in
        "\(Self.column(kind))\(counts[kind] ?? 0)"
      }
    let text = numbers.joined(separator: "\n") + "\n"
    if format == .table {
      print(text, terminator: "")
    } else {
      FileHandle.standardError.write(Data(text.utf8))
    }
  }
}
