import ArgumentParser
import Foundation
import Logging
import PrometheusMetrics
import UnixSignals

/// `tenure rehearse`: the day of the switch, before it comes.
struct RehearseCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "rehearse",
    abstract: "Plays the day on which a team moves in, and the week after it.",
    discussion: """
      Starts two PostgreSQL, one the other's standby, a simulated App Store with customers of \
      another backend, a server and two workers. The customers are imported and confirmed by \
      Apple, what the other backend says is compared. Notifications come from the beginning. A \
      week passes on a fast clock, in which the schema is upgraded, the database fails over and a \
      worker is killed, each in the middle of the work. In the end what Tenure says of every \
      account is compared with what is true, and the ledger is audited. Exit status 1 if anything \
      is not as it has to be. Settings and the environment are not looked at.
      """)

  @Option(help: "How many customers the other backend has.")
  var owners = 100_000

  @Option(help: "How many customers come in the week.")
  var newcomers = 200

  @Option(help: "The same seed gives the same lives.")
  var seed: UInt64 = 1

  @Option(help: "Log level.")
  var logLevel = "error"

  func validate() throws {
    guard (100...1_000_000).contains(owners) else {
      throw ValidationError("--owners is from 100 to 1000000.")
    }
    guard (0...10_000).contains(newcomers) else {
      throw ValidationError("--newcomers is from 0 to 10000.")
    }
    guard Logger.Level(rawValue: logLevel) != nil else {
      throw ValidationError("--log-level is one of trace, debug, info, notice, warning, error.")
    }
  }

  func run() async throws {
    let logger = Logger.bootstrapTenure(level: Logger.Level(rawValue: logLevel) ?? .error)
    PrometheusRegistry.bootstrapTenure()
    guard let executable = Bundle.main.executableURL else {
      throw Rehearsal.Failure(description: "The path of this program is unknown.")
    }
    let plan = RehearsalPlan(seed: seed, owners: owners, newcomers: newcomers)
    let rehearsal = Rehearsal(plan, executable: executable, logger: logger)
    guard let isWell = try await untilSignalled({ try await rehearsal.run() }) else {
      throw ExitCode(Self.interrupted)
    }
    guard isWell else { throw ExitCode.failure }
  }

  /// The exit status of a shell command that Ctrl-C has ended.
  private static let interrupted: Int32 = 130
}

/// Runs a body until it ends, or until SIGINT, SIGTERM or SIGHUP cancels it; then waits until
/// it has cleaned up.
///
/// - Returns: The body's value; nil if a signal came.
/// - Throws: What the body throws, unless a signal came.
private func untilSignalled<Value: Sendable>(
  _ body: @escaping @Sendable () async throws -> Value
) async throws -> Value? {
  let signals = await UnixSignalsSequence(trapping: .sigint, .sigterm, .sighup)
  let work = Task { try await body() }
  let watch = Task {
    for await _ in signals {
      work.cancel()
      return true
    }
    return false
  }
  let result = await work.result
  watch.cancel()
  return await watch.value ? nil : try result.get()
}
