import ArgumentParser
import Logging
import PrometheusMetrics

/// `tenure demo`: the whole product, with nothing to configure.
struct DemoCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "demo",
    abstract: "Shows everything at once, with no account anywhere and nothing to configure.",
    discussion: """
      Starts a private PostgreSQL, a simulated App Store, the server and the worker, and lets \
      sample customers live through purchases, renewals, account switches and refunds, while \
      Apple's notifications come late, twice, in the wrong order or not at all. Then two hundred \
      customers live through a year on a fast clock, and what Tenure says of each at its end is \
      compared with what the simulated App Store knows. Then it stays up, to be tried with curl, \
      until Ctrl-C, and leaves nothing behind. Settings and the environment are not looked at.
      """)

  @Option(help: "The port of the API. Default: 8080, or a free one if that is taken.")
  var port: Int?

  @Flag(name: .customLong("exit"), help: "End after the story; exit status 1 on any wrong outcome.")
  var exits = false

  @Option(help: "How many customers live through the year; 0: none, and there is no year.")
  var customers = 200

  @Option(help: "Log level.")
  var logLevel = "warning"

  /// A year of more takes hours.
  private static let mostCustomers = 10_000

  func validate() throws {
    guard (0...65_535).contains(port ?? 0) else {
      throw ValidationError("--port is from 0 to 65535.")
    }
    guard (0...Self.mostCustomers).contains(customers) else {
      throw ValidationError("--customers is from 0 to \(Self.mostCustomers).")
    }
    guard Logger.Level(rawValue: logLevel) != nil else {
      throw ValidationError("--log-level is one of trace, debug, info, notice, warning, error.")
    }
  }

  func run() async throws {
    let logger = Logger.bootstrapTenure(level: Logger.Level(rawValue: logLevel) ?? .warning)
    PrometheusRegistry.bootstrapTenure()
    let program = DemoProgram(port: port, customers: customers, exits: exits, logger: logger)
    let isAsExpected = try await program.run()
    if exits, !isAsExpected { throw ExitCode.failure }
  }
}
