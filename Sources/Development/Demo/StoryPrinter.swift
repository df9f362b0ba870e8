import AppStore
import AppStoreSimulator
import AsyncHTTPClient
import Bootstrap
import Foundation
import LedgerStorage
import NIOHTTP1
import ServiceLifecycle
import Subscriptions
import Synchronization

/// Prints the story to standard output as it happens.
struct StoryPrinter: Sendable {
  /// The output's width in columns.
  private static let width = 100
  static let isTerminal = isatty(STDOUT_FILENO) == 1

  /// Whether nothing is printed.
  var isSilent = false

  func line(_ text: String = "") {
    write(text + "\n")
  }

  /// Writes a text without a line break.
  func write(_ text: String) {
    guard !isSilent else { return }
    try? FileHandle.standardOutput.write(contentsOf: Data(text.utf8))
  }

  func heading(_ title: String) {
    let text = "── \(title) "
    let rule = String(repeating: "─", count: max(0, Self.width - text.count))
    line(Self.isTerminal ? "\n\u{1B}[1m\(text)\u{1B}[0m\(rule)" : "\n\(text)\(rule)")
  }

  /// Prints an event with its date.
  func event(_ moment: Timestamp, _ text: String) {
    paragraph("  " + moment.description.prefix(10) + "  ", text)
  }

  /// Prints an outcome and whether it is as expected.
  func check(_ isMet: Bool, _ text: String) {
    paragraph("          \(mark(isMet))   ", text)
  }

  /// Prints a remark on the story as a whole.
  func remark(_ text: String) {
    paragraph("  ", text)
  }

  /// Prints a table with aligned columns.
  func table(_ rows: [[String]]) {
    let columns = rows.map(\.count).max() ?? 0
    let widths = (0..<columns).map { column in
      rows.map { column < $0.count ? $0[column].count : 0 }.max() ?? 0
    }
    for row in rows {
      let cells = zip(row, widths.dropLast()).map {
        $0 + String(repeating: " ", count: $1 - $0.count)
      }
      line("  " + (cells + row.suffix(1)).joined(separator: "  "))
    }
  }

  /// A check mark or a cross, on a terminal in green or red.
  func mark(_ isMet: Bool) -> String {
    let mark = isMet ? "✓" : "✗"
    return Self.isTerminal ? "\u{1B}[\(isMet ? 32 : 31)m\(mark)\u{1B}[0m" : mark
  }

  /// Wraps a text at spaces, with hanging indentation.
  private func paragraph(_ lead: String, _ text: String) {
    var current = lead
    var isEmpty = true
    for word in text.split(separator: " ") {
      if !isEmpty, current.count + 1 + word.count > Self.width {
        line(current)
        current = String(repeating: " ", count: lead.count)
        isEmpty = true
      }
      current += isEmpty ? "\(word)" : " \(word)"
      isEmpty = false
    }
    line(current)
  }
}

extension Timestamp {
  var day: String { String(description.prefix(10)) }
}

/// Plays every scenario, prints the results, and keeps the program running.
struct DemoStory: Service {
  private static let surnames = ["Keller", "Novak", "Brandt", "Olsen", "Rossi", "Martin", "Silva"]
  /// The simulated months before now at which the story begins: long enough for all past scenarios.
  static let monthsBeforeNow = 32
  /// The time before now at which today's scenarios begin.
  private static let today = Duration.hours(4)

  let simulation: AppStoreSimulation
  let network: DemoNetwork
  let ledger: Ledger
  let server: DemoServer
  let client: HTTPClient
  let sender: NotificationSender
  let serverAPI: AppStoreServerAPI
  let keys: DemoKeys
  let simulatorPort: Int
  let settingsPath: String
  /// The path of the log.
  let log: String
  /// Polls Apple about an original transaction.
  let poll: @Sendable (OriginalTransactionKey) async throws -> Void
  /// Simulates a year; returns nil if it is skipped.
  let year: @Sendable () async throws -> YearComparison?
  let showingYear: ShowingYear
  let exits: Bool
  /// Serves the simulated year's admin UI, if there is one, while a body runs with its address.
  typealias ShowingYear =
    @Sendable (DemoKeys, @escaping @Sendable (String?) async throws -> Void) async throws -> Void

  private let printer = StoryPrinter()
  private let outcome = Outcome()

  private final class Outcome: Sendable {
    let isAsExpected = Mutex(false)
  }

  /// Whether the story was played to its end and every outcome was as expected.
  var isAsExpected: Bool { outcome.isAsExpected.withLock { $0 } }

  func run() async throws {
    do {
      try await cancelWhenGracefulShutdown {
        let tenure = "http://\(DemoServer.host):\(try await self.server.port)"
        try await self.play(to: tenure)
        if !self.exits { try await self.stayUp() }
      }
    } catch is CancellationError {
      return
    }
  }

  /// Plays the story against the API at a URL.
  private func play(to baseURL: String) async throws {
    let admin = TenureClient(client: client, baseURL: baseURL, key: keys.admin)
    let tenure = TenureClient(client: client, baseURL: baseURL, key: keys.app)
    try await DemoCatalogue.describe(to: admin)
    printer.line(
      """

      Everything below runs for real, on an accelerated clock: phones buy from a simulated App
      Store, the app's server submits their receipts over HTTP, and Tenure verifies each with the
      App Store, records it in PostgreSQL and decides who owns it. The App Store also sends signed
      notifications: they are delivered where the story says so and lost everywhere else, because
      receipts alone must be sufficient.
      """)

    let stage = DemoEnvironment(
      simulation: simulation, network: network, tenure: tenure, sender: sender,
      serverAPI: serverAPI, printer: printer)
    for scenario in DemoScenario.past { try await play(scenario, on: stage) }
    guard stage.now < .now - Self.today else {
      throw TenureClient.Failure(description: "The past scenarios took too much simulated time.")
    }
    simulation.advance(to: .now - Self.today)
    for scenario in DemoScenario.today { try await play(scenario, on: stage) }
    for (index, account) in stage.accounts.sorted().enumerated() {
      let surname = Self.surnames[index % Self.surnames.count]
      try await tenure.name(
        account, "\(account.capitalized) \(surname)", "\(account)@example.com")
    }
    // From here on the simulated clock runs in real time and shows the current time.
    simulation.advance(to: .now)

    // Polling was off, and notifications got lost: renewals since the stories are not known yet.
    let charges = simulation.truth()
    for line in Set(
      charges.map { OriginalTransactionKey($0.environment, $0.originalTransactionID) })
    {
      try await poll(line)
    }
    var summary = DemoSummary(
      checks: stage.checks, audit: try await ledger.auditor.audit(), charges: charges.count)
    for charge in charges {
      do {
        let found = try await admin.transaction(charge.transactionID)
        if found.productID != charge.productID { summary.missing.append(charge.transactionID) }
      } catch let failure as TenureClient.Failure where failure.status == .notFound {
        summary.missing.append(charge.transactionID)
      }
    }
    summary.print(with: printer)
    printInvitation(to: baseURL, after: stage.checks)
    let comparison = try await year()
    let isAsExpected = summary.isAsExpected && comparison?.isClean ?? true
    outcome.isAsExpected.withLock { $0 = isAsExpected }
  }

  /// Keeps the program running; Apple's notifications are delivered automatically from here on.
  private func stayUp() async throws {
    try await showingYear(keys) { [self] year in
      printer.line()
      if let year {
        printer.line("Admin UI of the simulated year  \(year)/admin (same key, on its last day)")
      }
      printer.line("Press Ctrl-C to stop; all demo data except the log is removed.")
      try await sender.run()
    }
  }

  private func play(_ scenario: DemoScenario, on stage: DemoEnvironment) async throws {
    do {
      try stage.begin(scenario)
      try await scenario.play(stage)
    } catch {
      try Task.checkCancellation()
      stage.expect(false, "The scenario failed: \(error)")
    }
  }

  /// Prints addresses and commands to try.
  private func printInvitation(to tenure: String, after checks: [DemoCheck]) {
    let curl = "curl -s -H 'Authorization: Bearer \(keys.app)' \(tenure)"
    let appStore = "http://\(DemoServer.host):\(simulatorPort)/simulator"
    let executable =
      Bundle.main.executableURL?.path(percentEncoded: false) ?? CommandLine.arguments[0]
    func transaction(of scenario: DemoScenario) -> String {
      checks.filter { $0.scenario == scenario.title }.compactMap(\.ownership).last?
        .transaction.rawValue ?? ""
    }
    printer.line(
      """

      Tenure                          \(tenure)
      Admin UI                        \(tenure)/admin (log in with the admin key)
      API reference                   \(tenure)/openapi.yaml
      App Store                       \(appStore)
      Keys (valid for this demo)      \(keys.app) (role app), \(keys.support) (role support),
                                      \(keys.admin) (role admin)
      Log of all programs             \(log)

      petra's entitlements:
        \(curl)/v1/accounts/petra/entitlements
      klara's corrected charge, its owner and the reason:
        \(curl)/v1/transactions/\(transaction(of: .correction))
      Refund petra's month, then repeat the first request (from “Press Ctrl-C” on, notifications
      arrive automatically):
        curl -s \(appStore)/refund -d '{"transaction_id": "\(transaction(of: .appleIsDown))"}'
      Notifications that Apple could not deliver in the last seven days:
        \(executable) app-store notifications --failures --config \(settingsPath)
      """)
  }
}
