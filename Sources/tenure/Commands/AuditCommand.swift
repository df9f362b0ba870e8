import ArgumentParser
import Bootstrap
import LedgerStorage

struct AuditCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "audit",
    abstract:
      "Verifies hash chains, decisions, projections and orders. Exit status 1 on a difference.",
    discussion: """
      Recomputes every hash chain, replays the ownership rule on every original transaction, \
      rebuilds every projection from the entries and compares it row by row. Servers may keep \
      running.
      """)

  /// The number of differences that are listed; all are counted.
  private static let printed = 50

  @OptionGroup var options: SettingOptions

  func run() async throws {
    let progress = ProgressBar("original transactions audited")
    let audit = try await options.useDatabase { database, _, _ in
      try await Ledger(database: database).auditor.audit { progress.show($0) }
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
      print("  The movements that reports count are skipped: their reconciliation is pending.")
    }
    for difference in audit.differences.prefix(Self.printed) { print("  \(difference)") }
    if audit.differences.count > Self.printed {
      print("  … and \(audit.differences.count - Self.printed) more")
    }
    guard audit.isClean else { throw ExitCode.failure }
  }
}

struct RebuildCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "rebuild", abstract: "Rewrites projections that differ from the ledger's entries.")

  @OptionGroup var options: SettingOptions

  func run() async throws {
    let progress = ProgressBar("original transactions rebuilt")
    let (lines, rewritten) = try await options.useDatabase { database, _, _ in
      try await Ledger(database: database).auditor.rebuild { progress.show($0) }
    }
    progress.finish()
    print("original transactions  \(lines)\nrewritten              \(rewritten)")
  }
}
