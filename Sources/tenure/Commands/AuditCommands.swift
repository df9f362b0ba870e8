import ArgumentParser
import Foundation
import LedgerStorage
import Subscriptions

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
  @OptionGroup var resumption: ResumptionOptions

  @Option(
    help: ArgumentHelp(
      "Compares with the checkpoints in this file, each a line of JSON, as TENURE_CHECKPOINTS keeps them.",
      valueName: "file"))
  var against: String?

  func run() async throws {
    let kept = try against.map { try Checkpoint.read(from: $0) } ?? []
    let progress = ProgressBar("original transactions audited")
    let audit = try await options.useDatabase { database, _, _ in
      try await Ledger(database: database).auditor.audit(after: resumption.start, against: kept) {
        progress.show($0)
      }
    }
    progress.finish()
    print(
      """
      original transactions  \(audit.lines)
      entries                \(audit.entries)
      accounts               \(audit.accounts)
      accounts' entries      \(audit.accountEntries)
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
    if let checkpoint = audit.checkpoint { print(checkpoint.text) }
    guard audit.isClean else { throw ExitCode.failure }
  }
}

struct RebuildCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "rebuild", abstract: "Rewrites projections that differ from the ledger's entries.")

  @OptionGroup var options: SettingOptions
  @OptionGroup var resumption: ResumptionOptions

  func run() async throws {
    let progress = ProgressBar("original transactions rebuilt")
    let (lines, rewritten) = try await options.useDatabase { database, _, _ in
      try await Ledger(database: database).auditor.rebuild(after: resumption.start) {
        progress.show($0)
      }
    }
    progress.finish()
    print("original transactions  \(lines)\nrewritten              \(rewritten)")
  }
}

struct VerifyProofCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "verify-proof",
    abstract: "Verifies a proof of a charge's entries. Exit status 1 if it is not one.",
    discussion: """
      The file is the answer of GET /v1/transactions/{transaction_id}/evidence?proof=1. Neither a \
      database nor a network is needed.
      """)

  @Argument(help: ArgumentHelp("The proof.", valueName: "file"))
  var file: String

  @Option(
    help: ArgumentHelp(
      "Requires that the proof's checkpoint is in this file, each a line of JSON.",
      valueName: "file"))
  var against: String?

  func run() throws {
    let proof: LedgerProof
    do {
      proof = try JSONDecoder().decode(
        LedgerProof.self, from: Data(contentsOf: URL(filePath: file)))
    } catch is DecodingError {
      throw ValidationError("\(file) is not a proof.")
    }
    do {
      try proof.verify()
      if let against {
        guard let checkpoint = proof.checkpoint,
          try Checkpoint.read(from: against).contains(checkpoint)
        else { throw LedgerProof.Fault(description: "The checkpoint is not in \(against).") }
      }
    } catch let fault as LedgerProof.Fault {
      print(fault.description)
      throw ExitCode.failure
    }
    print(
      """
      original transaction  \(proof.line)
      entries               \(proof.entries.count)
      covered               \(proof.covered)
      checkpoint            \(proof.checkpoint?.text ?? "none")
      """)
  }
}

extension Checkpoint {
  static func read(from path: String) throws -> [Checkpoint] {
    let text = try String(contentsOf: URL(filePath: path), encoding: .utf8)
    return try text.split(separator: "\n").map { line in
      do {
        return try JSONDecoder().decode(Checkpoint.self, from: Data(line.utf8))
      } catch {
        throw ValidationError("\(path) contains a line that is not a checkpoint: \(line)")
      }
    }
  }
}

struct ResumptionOptions: ParsableArguments {
  @Option(
    name: .customLong("after"),
    help: ArgumentHelp(
      "Continues an interrupted run after this original transaction, as its progress named it.",
      valueName: "environment/id"),
    transform: { text in
      guard let line = OriginalTransactionKey(subject: text) else {
        throw ValidationError("\(text) is not an environment, a slash and an ID.")
      }
      return line
    })
  var start: OriginalTransactionKey?
}

extension ProgressBar {
  func show(_ progress: AuditProgress) {
    let left = (.now - began) * (progress.total - progress.done) / max(progress.done, 1)
    show(
      "\(Self.text(progress.done, of: progress.total, what)), \(left.components.seconds) s left, "
        + "at \(progress.last.subject)")
  }
}
