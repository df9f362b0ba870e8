import ArgumentParser
import BackgroundJobs
import Bootstrap
import Foundation
import Intake
import JSONText
import LedgerStorage
import Subscriptions

struct ImportCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "import", abstract: "Imports subscription ownership from another backend.",
    discussion: """
      The file is CSV with a header, or JSON lines: environment (production or sandbox), \
      original_transaction_id, account_id, and optionally transaction_id, receipt_data and \
      bundle_id. Purchases on an original transaction up to the file's date belong to the account \
      once Apple confirms them; later purchases follow the ownership rule. A worker confirms each \
      original transaction with Apple, within Apple's rate limit; --status shows the progress.

      Rejected lines are written to FILE.errors.csv with their reason, and the exit status is 1. \
      Importing a file again is a no-op; repeat the command to resume an interrupted import.
      """)

  @OptionGroup var options: SettingOptions

  @Argument(help: "File to read, or - for standard input.")
  var file: String?

  @Flag(help: "Checks the file without writing to the database.")
  var dryRun = false

  @Flag(help: "Shows how much of all imports Apple has confirmed. Exit status 0 once all is.")
  var status = false

  @Option(help: "Error file. (default: FILE.errors.csv)")
  var errors: String?

  @Option(
    help: "Point in time the file reflects. (default: its modification time)",
    transform: ArgumentText.moment)
  var asOf: Timestamp?

  @Option(help: "Source recorded in the ledger. (default: the file name)")
  var source: String?

  func validate() throws {
    guard status != (file != nil) else { throw ValidationError("Specify a FILE or --status.") }
    guard !status || !dryRun else {
      throw ValidationError("--status and --dry-run can't be combined.")
    }
  }

  func run() async throws {
    let isWell = try await options.useDatabase { database, settings, logger in
      let ledger = Ledger(database: database)
      guard let file else { return try await showStatus(of: ledger) }
      let catalogue = try await CatalogueCache(ledger: ledger, logger: logger)
      return try await run(
        file, ledger, catalogue.terms(settings.sandboxAccess), now: settings.clock.now)
    }
    guard isWell else { throw ExitCode.failure }
  }

  /// Prints the progress of all imports; returns whether Apple has confirmed all of them.
  private func showStatus(of ledger: Ledger) async throws -> Bool {
    let progress = try await ledger.exports.importProgress()
    print(
      """
      imported      \(progress.lines)
      confirmed     \(progress.verified)
      waiting       \(progress.waiting)
      unconfirmed   \(progress.unverifiable)
      """)
    if progress.unverifiable > 0 {
      print("`tenure export unverified` lists the unconfirmed lines with the reason.")
    }
    return progress.waiting == 0 && progress.unverifiable == 0
  }

  /// Imports a file and prints the result; returns whether every line was accepted.
  private func run(
    _ path: String, _ ledger: Ledger, _ terms: AccessTerms, now: @escaping @Sendable () -> Timestamp
  ) async throws -> Bool {
    let input = try InputFile(path, now: now())
    let bar = ProgressBar("")
    let faults = try ErrorFile(
      path: errors ?? ((path == "-" ? "import" : path) + ".errors.csv"), besides: path)
    let rows = try RowFile(FileBytes(input.handle), columns: OwnerRow.columns)
    let taking = OwnerImport(
      ledger: ledger, terms: terms, source: source ?? input.name,
      asOf: asOf ?? input.writtenAt, isDryRun: dryRun, now: now)
    let summary = try await taking.run(rows, report: faults.write) {
      bar.show($0, of: input.bytes)
    }
    bar.finish()
    try faults.finish()
    print(
      """
      lines      \(summary.lines)
      \(dryRun ? "to record" : "recorded ")  \(summary.recorded)
      known      \(summary.known)
      repeated   \(summary.repeated)
      errors     \(summary.errors)
      """)
    if summary.errors > 0 { print("Errors: \(faults.path)") }
    return summary.errors == 0
  }
}

struct InputFile {
  let handle: FileHandle
  let name: String
  /// Nil for standard input.
  let bytes: Int?
  /// The modification time, at most the current time.
  let writtenAt: Timestamp

  init(_ path: String, now: Timestamp) throws {
    guard path != "-" else {
      (handle, name, bytes, writtenAt) = (.standardInput, "standard input", nil, now)
      return
    }
    let url = URL(filePath: path)
    guard let handle = try? FileHandle(forReadingFrom: url) else {
      throw FileFault(description: "\(path) can't be read.")
    }
    let target = url.resolvingSymlinksInPath().path(percentEncoded: false)
    let attributes = try FileManager.default.attributesOfItem(atPath: target)
    guard attributes[.type] as? FileAttributeType != .typeDirectory else {
      throw FileFault(description: "\(path) is a directory.")
    }
    self.handle = handle
    name = url.lastPathComponent
    bytes = (attributes[.size] as? NSNumber)?.intValue
    let written = (attributes[.modificationDate] as? Date).map {
      Timestamp(milliseconds: Int64(($0.timeIntervalSince1970 * 1000).rounded(.down)))
    }
    writtenAt = min(now, written ?? now)
  }
}

/// The file of rejected lines, created with the first of them.
final class ErrorFile {
  let path: String
  private var file: FileHandle?

  /// Removes a regular file of an earlier run; devices, pipes and links stay.
  ///
  /// - Throws: ``FileFault`` if `path` is the input file.
  init(path: String, besides input: String) throws {
    self.path = path
    let (file, other) = (URL(filePath: path), URL(filePath: input))
    guard input == "-" || file.resolvingSymlinksInPath() != other.resolvingSymlinksInPath() else {
      throw FileFault(description: "\(path) is the input file: specify another --errors file.")
    }
    let type = try? FileManager.default.attributesOfItem(atPath: path)[.type] as? FileAttributeType
    if type == .typeRegular { try? FileManager.default.removeItem(at: file) }
  }

  func write(_ error: OwnerImport.RowError) throws {
    if file == nil {
      file = try FileHandle(replacingContentsOf: path)
      try file?.write(contentsOf: Data("line,code,reason\r\n".utf8))
    }
    let fields: [String?] = ["\(error.line)", error.fault.code, error.fault.reason]
    try file?.write(contentsOf: Data(fields.csvLine(guardsFormulas: false).utf8))
  }

  func finish() throws { try file?.close() }
}

extension ProgressBar {
  /// Shows the progress of an import, with the rate and the time left.
  func show(_ summary: OwnerImport.Summary, of bytes: Int?) {
    show(Self.text(summary, of: bytes, after: began.duration(to: .now)))
  }

  static func text(_ summary: OwnerImport.Summary, of bytes: Int?, after time: Duration) -> String {
    let seconds = max(0.001, time / .seconds(1))
    let rate = Int(Double(summary.lines) / seconds)
    var text = "\(summary.lines) lines, \(rate)/s, \(summary.errors) errors"
    if let bytes, bytes > 0, summary.bytesRead > 0 {
      let part = min(1, Double(summary.bytesRead) / Double(bytes))
      let percent = Int(part * 100)
      let left = Int((seconds / part - seconds).rounded(.up))
      text = "\(bar(percent, of: 100)) \(percent)%, \(text), \(left) s left"
    }
    return text
  }
}
