import ArgumentParser
import Bootstrap
import Foundation
import LedgerStorage
import Logging
import Subscriptions

/// `tenure audit`: the proof of the ledger.
struct AuditCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "audit",
    abstract:
      "Proves the ledger: chains, decisions, projections, orders. Exit status 1 on a difference.",
    discussion: """
      Recomputes every hash chain, replays the rule on every original transaction, folds every \
      projection again from the entries and compares it row by row. Servers may go on meanwhile.
      """)

  /// How many differences are printed; their number is always told.
  private static let printed = 50

  @OptionGroup var options: SettingOptions

  func run() async throws {
    let settings = try await options.settings()
    let logger = Logger.bootstrapTenure(
      level: settings.logLevel, format: settings.logFormat)
    let progress = Progress("original transactions audited")
    let audit = try await withDatabase(settings, logger: logger) { database in
      try await Ledger(database: database).audit { progress.show($0) }
    }
    progress.finish()
    print(
      """
      original transactions  \(audit.lines)
      entries                \(audit.entries)
      charges                \(audit.charges)
      holdings               \(audit.holdings)
      orders                 \(audit.orders)
      checkpoints met        \(audit.checkpoints)
      differences            \(audit.differences.count)
      """)
    if audit.isJournalPending {
      print("  The journal that reports count is left out: a survey is to bring it up to date.")
    }
    for difference in audit.differences.prefix(Self.printed) { print("  \(difference)") }
    if audit.differences.count > Self.printed {
      print("  … and \(audit.differences.count - Self.printed) more")
    }
    guard audit.isClean else { throw ExitCode.failure }
  }
}

/// `tenure rebuild`: the projections, written again.
struct RebuildCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "rebuild",
    abstract: "Writes every projection again from the ledger's entries, where it differs.")

  @OptionGroup var options: SettingOptions

  func run() async throws {
    let settings = try await options.settings()
    let logger = Logger.bootstrapTenure(
      level: settings.logLevel, format: settings.logFormat)
    let progress = Progress("original transactions rebuilt")
    let (lines, rewritten) = try await withDatabase(settings, logger: logger) { database in
      try await Ledger(database: database).rebuild { progress.show($0) }
    }
    progress.finish()
    print("original transactions  \(lines)\nrewritten              \(rewritten)")
  }
}

/// A count that is shown on a terminal while it grows.
struct Progress: Sendable {
  private let what: String
  private let isTerminal = isatty(STDERR_FILENO) == 1

  init(_ what: String) {
    self.what = what
  }

  func show(_ count: Int) {
    guard isTerminal else { return }
    FileHandle.standardError.write(Data("\r\(count) \(what)".utf8))
  }

  func finish() {
    guard isTerminal else { return }
    FileHandle.standardError.write(Data("\n".utf8))
  }
}
