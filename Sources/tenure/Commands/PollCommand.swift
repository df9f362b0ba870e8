import ArgumentParser
import BackgroundJobs
import Bootstrap
import Foundation
import Intake
import LedgerStorage
import Logging
import Subscriptions
import Synchronization

struct PollCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "poll", abstract: "Polls Apple once for due subscriptions (for cron).",
    discussion: """
      A worker does the same continuously. Passes and workers can run concurrently: no \
      subscription is polled twice, and all of them share TENURE_POLLS_PER_HOUR. Polls that Apple \
      does not answer are retried later. Exit status 1 only on failures that need a fix.
      """)

  @OptionGroup var options: SettingOptions

  @Flag(help: "Poll all due subscriptions, then exit.")
  var once = false

  @Option(help: "Poll this original transaction now, due or not.")
  var originalTransactionID: String?

  @Option(help: "production or sandbox; required if both have the original transaction.")
  var environment: Environment?

  @Option(help: "Minutes to wait for the hourly rate limit; remaining polls stay due.")
  var wait = 5

  func validate() throws {
    guard once != (originalTransactionID != nil) else {
      throw ValidationError("Specify --once or --original-transaction-id.")
    }
    guard (0...1440).contains(wait) else { throw ValidationError("--wait must be from 0 to 1440.") }
    guard environment == nil || originalTransactionID != nil else {
      throw ValidationError("--environment requires --original-transaction-id.")
    }
  }

  func run() async throws {
    let settings = try await options.settings(needing: [.apps])
    let logger = settings.bootstrapLogger()
    let isWell = try await withAssembly(settings, logger: logger) { assembly in
      if let originalTransactionID {
        return try await poll(OriginalTransactionID(originalTransactionID), with: assembly)
      }
      return try await pass(with: assembly)
    }
    guard isWell else { throw ExitCode.failure }
  }

  /// - Returns: Whether no poll failed.
  private func pass(with assembly: Assembly) async throws -> Bool {
    let bar = ProgressBar("polls")
    let summary = try await assembly.pollPass(patience: .minutes(wait)).run {
      bar.show($0.done, of: $0.due)
    }
    bar.finish()
    print(
      """
      due           \(summary.due)
      polled        \(summary.polled)
      changed       \(summary.changed)
      skipped       \(summary.passedOver)
      postponed     \(summary.postponed)
      failed        \(summary.failed)
      rate limited  \(summary.left)
      """)
    return summary.failed == 0
  }

  /// - Returns: Whether Apple answered.
  private func poll(_ id: OriginalTransactionID, with assembly: Assembly) async throws -> Bool {
    let known = try await assembly.ledger.ownership.environments(of: id)
    guard let environment = environment ?? (known.count == 1 ? known[0] : nil) else {
      throw known.isEmpty
        ? SettingError("--original-transaction-id", "unknown: \(id)")
        : SettingError("--environment", "required: both have \(id)")
    }
    let line = OriginalTransactionKey(environment, id)
    switch try await assembly.poll.pollNow(line) {
    case .polled(let isChanged):
      print("\(line): \(isChanged ? "changed" : "unchanged")")
      return true
    case .passedOver(let reason), .postponed(let reason, _), .failed(let reason, _):
      print("\(line): \(reason)")
      return false
    case .over:
      print("\(line): unknown, or nothing left to poll")
      return false
    }
  }
}

/// A progress bar, or a count, on standard error; every ten seconds where that is no terminal.
final class ProgressBar: Sendable {
  private static let width = 40
  static let interval: Duration = .seconds(10)

  let what: String
  let began = ContinuousClock.now
  private let isTerminal = isatty(STDERR_FILENO) == 1
  private let lastLine = Mutex(ContinuousClock.now)

  init(_ what: String) { self.what = what }

  func show(_ done: Int, of all: Int? = nil) {
    show(all.map { Self.text(done, of: $0, what) } ?? "\(done) \(what)")
  }

  func show(_ text: @autoclosure () -> String) {
    if isTerminal {
      FileHandle.standardError.write(Data("\r\(text())\u{1B}[K".utf8))
    } else if isDue(at: .now) {
      FileHandle.standardError.write(Data("\(text())\n".utf8))
    }
  }

  /// Whether ten seconds have passed since the last line, which is then this one.
  func isDue(at now: ContinuousClock.Instant) -> Bool {
    lastLine.withLock { last in
      guard now - last >= Self.interval else { return false }
      last = now
      return true
    }
  }

  func finish() {
    guard isTerminal else { return }
    FileHandle.standardError.write(Data("\n".utf8))
  }

  static func text(_ done: Int, of all: Int, _ what: String) -> String {
    "\(bar(done, of: all)) \(done) of \(all) \(what)"
  }

  /// Full if `done` exceeds `all`, which other processes can cause.
  static func bar(_ done: Int, of all: Int) -> String {
    let part = all > 0 ? min(done, all) * width / all : width
    let bar = String(repeating: "#", count: part) + String(repeating: ".", count: width - part)
    return "[\(bar)]"
  }
}
