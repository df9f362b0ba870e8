import ArgumentParser
import BackgroundJobs
import Bootstrap
import Foundation
import Intake
import JSONText
import LedgerStorage
import Logging
import Subscriptions

/// `tenure import`: who owns what, from another backend.
struct ImportCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "import",
    abstract: "Takes over whose the subscriptions are that another backend has sold.",
    discussion: """
      The file is CSV with a line of names, or JSON lines: environment (production or sandbox), \
      original_transaction_id, account_id, and if you have them transaction_id or receipt_data. \
      Whatever was bought on such an original transaction until the file was written belongs to \
      the account, as soon as Apple has told of it; what is bought later follows the rule. A \
      worker asks Apple about each of them, at Apple's rate: `tenure import --status` says how far \
      that is.

      What can't be taken over is written to FILE.errors.csv, with its line and why, and the exit \
      status is 1. To import a file again does nothing; one that was interrupted is begun again \
      the same way.
      """)

  @OptionGroup var options: SettingOptions

  @Argument(help: "The file; a hyphen: standard input.")
  var file: String?

  @Flag(help: "Checks everything, and writes nothing to the database.")
  var dryRun = false

  @Flag(help: "Says how much of all imports Apple has confirmed. Exit status 1 until it is all.")
  var status = false

  @Option(help: "Where errors are written; instead of FILE.errors.csv.")
  var errors: String?

  @Option(help: "When the file was true, in RFC 3339; instead of when it was written.")
  var asOf: String?

  @Option(help: "What the ledger names as the source; instead of the file's name.")
  var source: String?

  func validate() throws {
    guard status != (file != nil) else {
      throw ValidationError("Name a FILE, or say --status.")
    }
    guard !status || !dryRun else { throw ValidationError("--status needs no --dry-run.") }
    if let asOf, Timestamp(rfc3339: asOf) == nil {
      throw ValidationError("--as-of is a time like 2026-11-21T09:30:00Z.")
    }
  }

  func run() async throws {
    let settings = try await options.settings()
    let logger = Logger.bootstrapTenure(
      level: settings.logLevel, format: settings.logFormat)
    let isWell = try await withDatabase(settings, logger: logger) { database in
      let ledger = Ledger(database: database)
      guard let file else { return try await showStatus(of: ledger) }
      let catalogue = try await CatalogueCache(ledger: ledger, logger: logger)
      return try await run(
        file, ledger, catalogue.terms(settings.sandboxAccess), now: settings.clock.now,
        logger: logger)
    }
    guard isWell else { throw ExitCode.failure }
  }

  /// True if all is confirmed.
  private func showStatus(of ledger: Ledger) async throws -> Bool {
    let progress = try await ledger.importProgress()
    print(
      """
      imported      \(progress.lines)
      confirmed     \(progress.verified)
      waiting       \(progress.waiting)
      unconfirmed   \(progress.unverifiable)
      """)
    if progress.unverifiable > 0 {
      print("Apple tells nothing of those: `tenure export unverified` lists them with the reason.")
    }
    return progress.waiting == 0 && progress.unverifiable == 0
  }

  /// True if every line was taken over.
  private func run(
    _ path: String, _ ledger: Ledger, _ terms: AccessTerms,
    now: @escaping @Sendable () -> Timestamp, logger: Logger
  ) async throws -> Bool {
    let input = try InputFile(path, now: now())
    let bar = ImportBar(bytes: input.bytes, logger: logger)
    let faults = try ErrorFile(
      path: errors ?? ((path == "-" ? "import" : path) + ".errors.csv"), besides: path)
    let rows = try RowFile(FileBytes(input.handle), columns: OwnerRow.columns)
    let taking = OwnerImport(
      ledger: ledger, terms: terms, source: source ?? input.name,
      asOf: asOf.flatMap { Timestamp(rfc3339: $0) } ?? input.writtenAt, isDryRun: dryRun, now: now)
    let summary = try await taking.run(rows, report: faults.write) { bar.show($0) }
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
    if summary.errors > 0 { print("The errors are in \(faults.path).") }
    return summary.errors == 0
  }
}

/// A file that is read from its beginning.
struct InputFile {
  let handle: FileHandle
  let name: String
  /// Nil: nobody knows.
  let bytes: Int?
  /// When it was last written, which is before now.
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
      throw FileFault(description: "\(path) is a directory: name a file.")
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

/// Where the errors of a file go: made with the first of them; one of an earlier run is removed.
final class ErrorFile {
  let path: String
  private var file: FileHandle?

  /// - Parameters:
  ///   - path: Where; what is neither a file nor missing stays.
  ///   - input: The file that is read.
  /// - Throws: ``FileFault`` if both are the same.
  init(path: String, besides input: String) throws {
    self.path = path
    let (file, other) = (URL(filePath: path), URL(filePath: input))
    guard input == "-" || file.resolvingSymlinksInPath() != other.resolvingSymlinksInPath() else {
      throw FileFault(description: "\(path) is the file that is read: name another for errors.")
    }
    let type = try? FileManager.default.attributesOfItem(atPath: path)[.type] as? FileAttributeType
    if type == .typeRegular { try? FileManager.default.removeItem(at: file) }
  }

  func write(_ error: OwnerImport.LineError) throws {
    if file == nil {
      file = try FileHandle(replacingContentsOf: path)
      try file?.write(contentsOf: Data("line,code,reason\r\n".utf8))
    }
    let fields = ["\(error.line)", error.fault.code, error.fault.reason].map {
      $0.csvField(guardsFormulas: false)
    }
    try file?.write(contentsOf: Data((fields.joined(separator: ",") + "\r\n").utf8))
  }

  func finish() throws { try file?.close() }
}

/// How far an import is: a bar on a terminal, else a line of the log from time to time.
final class ImportBar {
  /// So many lines are worth one of the log.
  private static let loggedLines = 100_000

  private let bytes: Int?
  private let logger: Logger
  private let began = ContinuousClock.now
  private let isTerminal = isatty(STDERR_FILENO) == 1
  private var logged = 0

  init(bytes: Int?, logger: Logger) {
    self.bytes = bytes
    self.logger = logger
  }

  func show(_ summary: OwnerImport.Summary) {
    guard isTerminal || summary.lines >= logged + Self.loggedLines else { return }
    let text = Self.text(summary, of: bytes, after: began.duration(to: .now))
    if isTerminal {
      FileHandle.standardError.write(Data("\r\(text)\u{1B}[K".utf8))
    } else {
      logged = summary.lines
      logger.info("The import goes on", metadata: ["progress": "\(text)"])
    }
  }

  func finish() {
    if isTerminal { FileHandle.standardError.write(Data("\n".utf8)) }
  }

  /// The part of the file, the lines, their rate, the errors and the time that is left.
  static func text(_ summary: OwnerImport.Summary, of bytes: Int?, after time: Duration) -> String {
    let seconds = max(0.001, time / .seconds(1))
    let rate = Int(Double(summary.lines) / seconds)
    var text = "\(summary.lines) lines, \(rate)/s, \(summary.errors) errors"
    if let bytes, bytes > 0, summary.bytesRead > 0 {
      let part = min(1, Double(summary.bytesRead) / Double(bytes))
      let left = Int((seconds / part - seconds).rounded(.up))
      text = "\(ProgressBar.text(Int(part * 100), of: 100, "%")), \(text), \(left) s left"
    }
    return text
  }
}
