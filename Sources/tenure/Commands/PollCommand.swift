import ArgumentParser
import BackgroundJobs
import Bootstrap
import Foundation
import Intake
import LedgerStorage
import Logging
import Subscriptions

/// `tenure poll`: asks Apple what is due, without a worker.
struct PollCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "poll",
    abstract: "Asks Apple how the subscriptions stand that are due, once: for cron.",
    discussion: """
      A worker does the same all the time. Any number of passes may run beside workers: nothing is \
      asked twice, and all of them share TENURE_POLLS_PER_HOUR. What Apple does not answer comes \
      again. Exit status 1 only where something fails until somebody mends it.
      """)

  @OptionGroup var options: SettingOptions

  @Flag(help: "One pass over what is due.")
  var once = false

  @Option(help: "Asks about this original transaction at once, due or not.")
  var originalTransactionID: String?

  @Option(help: "Its environment, production or sandbox; needed where both know it.")
  var environment: Environment?

  @Option(help: "How many minutes a pass may wait for the hour's budget; what is left stays due.")
  var wait = 5

  func validate() throws {
    guard once != (originalTransactionID != nil) else {
      throw ValidationError("Say --once, or name an --original-transaction-id.")
    }
    guard (0...1440).contains(wait) else { throw ValidationError("--wait is from 0 to 1440.") }
    guard environment == nil || originalTransactionID != nil else {
      throw ValidationError("--environment needs --original-transaction-id.")
    }
  }

  func run() async throws {
    let settings = try await options.settings(needing: [.apps])
    let logger = Logger.bootstrapTenure(
      level: settings.logLevel, format: settings.logFormat)
    let isWell = try await withAssembly(settings, logger: logger) { assembly in
      if let originalTransactionID {
        return try await poll(OriginalTransactionID(originalTransactionID), with: assembly)
      }
      return try await pass(with: assembly)
    }
    guard isWell else { throw ExitCode.failure }
  }

  /// One pass; false if something failed for good.
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
      news          \(summary.news)
      passed over   \(summary.passedOver)
      postponed     \(summary.postponed)
      failed        \(summary.failed)
      left, for lack of budget  \(summary.left)
      """)
    return summary.failed == 0
  }

  /// One line; false if Apple did not answer.
  private func poll(_ id: OriginalTransactionID, with assembly: Assembly) async throws -> Bool {
    let known = try await assembly.ledger.environments(of: id)
    guard let environment = environment ?? (known.count == 1 ? known[0] : nil) else {
      throw known.isEmpty
        ? SettingError(name: "--original-transaction-id", fault: "nothing is recorded of \(id)")
        : SettingError(name: "--environment", fault: "both know \(id): name one of them")
    }
    let line = LineID(environment, id)
    switch try await assembly.poll.pollNow(line) {
    case .polled(let isNews):
      print("\(line): \(isNews ? "Apple has answered, and there is news." : "nothing new.")")
      return true
    case .passedOver(let reason), .postponed(let reason, _), .failed(let reason, _):
      print("\(line): \(reason)")
      return false
    case .over:
      print("\(line): nothing is recorded of it, or nothing more can be learned.")
      return false
    }
  }
}

/// A bar on a terminal that grows with what is done.
struct ProgressBar: Sendable {
  private static let width = 40

  private let what: String
  private let isTerminal = isatty(STDERR_FILENO) == 1

  init(_ what: String) {
    self.what = what
  }

  func show(_ done: Int, of all: Int) {
    guard isTerminal else { return }
    FileHandle.standardError.write(Data("\r\(Self.text(done, of: all, what))".utf8))
  }

  func finish() {
    guard isTerminal else { return }
    FileHandle.standardError.write(Data("\n".utf8))
  }

  /// The bar as it stands.
  static func text(_ done: Int, of all: Int, _ what: String) -> String {
    // More can be done than was due, when others are at it.
    let part = all > 0 ? min(done, all) * width / all : width
    let bar = String(repeating: "#", count: part) + String(repeating: ".", count: width - part)
    return "[\(bar)] \(done) of \(all) \(what)"
  }
}
