import AppStore
import AppStoreSimulator
import AsyncHTTPClient
import Bootstrap
import Foundation
import LedgerStorage
import ServiceLifecycle
import Subscriptions
import Synchronization

/// Writes the story to standard output, line by line as it happens.
struct StoryPrinter: Sendable {
  /// Wide enough for a sentence with a transaction id, narrow enough for two windows side by side.
  private static let width = 100

  func line(_ text: String = "") {
    write(text + "\n")
  }

  /// Writes a text as it is.
  func write(_ text: String) {
    try? FileHandle.standardOutput.write(contentsOf: Data(text.utf8))
  }

  func heading(_ number: String, _ title: String) {
    let text = "── \(number) ── \(title) "
    line("\n" + text + String(repeating: "─", count: max(0, Self.width - text.count)))
  }

  /// Something that happened, with its date.
  func event(_ moment: Timestamp, _ text: String) {
    paragraph("  " + moment.description.prefix(10) + "  ", text)
  }

  /// Whether something is as it has to be.
  func check(_ isMet: Bool, _ text: String) {
    paragraph("          \(Self.mark(isMet))   ", text)
  }

  /// Something about the story as a whole.
  func remark(_ text: String) {
    paragraph("  ", text)
  }

  /// A table whose columns are as wide as their widest cell; all rows have as many cells.
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

  static func mark(_ isMet: Bool) -> String { isMet ? "✓" : "✗" }

  /// Breaks a text between words; further lines stand under the first one's text.
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
  /// The day alone, as the story tells dates.
  var day: String { String(description.prefix(10)) }
}

/// What somebody pays.
struct SimulatedPrice {
  let milliunits: Int64
  let currency: String

  /// For example `9.99 USD`.
  var text: String {
    let cents = (milliunits + 5) / 10
    let (whole, rest) = (cents / 100, cents % 100)
    return "\(whole).\(rest < 10 ? "0" : "")\(rest) \(currency)"
  }
}

/// Plays every scenario, says how it came out, and then keeps the program up.
final class DemoStory: Service {
  /// How long before now the story begins: what the scenarios of the past take, and some days.
  static let monthsBeforeNow = 32
  /// How long before now today's scenarios begin.
  private static let today = Duration.hours(4)

  private let simulation: AppStoreSimulation
  private let network: DemoNetwork
  private let ledger: Ledger
  private let server: DemoServer
  private let client: HTTPClient
  private let sender: NotificationSender
  private let serverAPI: AppStoreServerAPI
  private let keys: DemoKeys
  private let simulatorPort: Int
  private let settingsPath: String
  /// Lets many customers live through a year; nil if there is to be none.
  private let year: @Sendable () async throws -> YearComparison?
  private let showingYear: ShowingYear
  private let exits: Bool
  /// Shows that year to whoever has the keys while something goes on, which is told the address;
  /// nil if there was none.
  typealias ShowingYear =
    @Sendable (DemoKeys, @escaping @Sendable (String?) async throws -> Void) async throws -> Void

  private let printer = StoryPrinter()
  private let result = Mutex(false)

  init(
    simulation: AppStoreSimulation, network: DemoNetwork, ledger: Ledger, server: DemoServer,
    client: HTTPClient, sender: NotificationSender, serverAPI: AppStoreServerAPI, keys: DemoKeys,
    simulatorPort: Int, settingsPath: String,
    year: @escaping @Sendable () async throws -> YearComparison?,
    showingYear: @escaping ShowingYear, exits: Bool
  ) {
    self.simulation = simulation
    self.network = network
    self.ledger = ledger
    self.server = server
    self.client = client
    self.sender = sender
    self.serverAPI = serverAPI
    self.keys = keys
    self.simulatorPort = simulatorPort
    self.settingsPath = settingsPath
    self.year = year
    self.showingYear = showingYear
    self.exits = exits
  }

  /// Whether the story was told to its end, and everything came out as it has to.
  var isAsExpected: Bool { result.withLock { $0 } }

  func run() async throws {
    do {
      try await cancelWhenGracefulShutdown {
        let tenure = "http://\(DemoServer.host):\(try await self.server.port)"
        let checks = try await self.tell(to: tenure)
        if !self.exits { try await self.stay(up: tenure, after: checks) }
      }
    } catch is CancellationError {
      return
    }
  }

  /// - Parameter baseURL: Where Tenure answers.
  /// - Returns: What was expected.
  /// - Throws: What keeps the story from being told.
  private func tell(to baseURL: String) async throws -> [DemoCheck] {
    let admin = TenureClient(client: client, baseURL: baseURL, key: keys.admin)
    let tenure = TenureClient(client: client, baseURL: baseURL, key: keys.app)
    try await DemoCatalogue.describe(to: admin)
    printer.line(
      """

      What follows really happens: phones buy at the simulated App Store, the app's server submits
      their receipts over HTTP, Tenure asks the App Store about each, records it in PostgreSQL and
      decides whose it is. The App Store sends signed notifications, too: they arrive where the
      story says so, and get lost everywhere else, for receipts alone have to do. Only the years
      pass faster.
      """)

    let stage = DemoStage(
      simulation: simulation, network: network, tenure: tenure, sender: sender,
      serverAPI: serverAPI, printer: printer)
    for scenario in DemoScenario.past { try await play(scenario, on: stage) }
    guard stage.now < .now - Self.today else {
      throw TenureClient.Failure(description: "The story is too long for its beginning.")
    }
    simulation.advance(to: .now - Self.today)
    for scenario in DemoScenario.today { try await play(scenario, on: stage) }
    // From here on the simulated clock, which runs at the speed of the real one, shows its time.
    simulation.advance(to: .now)

    let audit = try await ledger.audit()
    DemoSummary(checks: stage.checks, audit: audit).print(with: printer)
    let comparison = try await year()
    let isAsExpected =
      stage.checks.allSatisfy(\.isMet) && audit.isClean && comparison?.isClean ?? true
    result.withLock { $0 = isAsExpected }
    return stage.checks
  }

  /// Keeps the program up; from here on Apple's notifications arrive by themselves.
  private func stay(up tenure: String, after checks: [DemoCheck]) async throws {
    try await showingYear(keys) { [self] year in
      printInvitation(to: tenure, and: year, after: checks)
      try await sender.run()
    }
  }

  /// Plays one scenario; should it fail in the middle, the others go on.
  private func play(_ scenario: DemoScenario, on stage: DemoStage) async throws {
    do {
      try stage.begin(scenario)
      try await scenario.play(stage)
    } catch {
      try Task.checkCancellation()
      stage.expect(false, "The scenario failed: \(error)")
    }
  }

  /// Says where to look and what to try.
  private func printInvitation(
    to tenure: String, and year: String?, after checks: [DemoCheck]
  ) {
    let curl = "curl -s -H 'Authorization: Bearer \(keys.app)' \(tenure)"
    let yearPages =
      year.map { "\nthe year's     \($0)/admin: the same key, on the year's last day" } ?? ""
    let appStore = "http://\(DemoServer.host):\(simulatorPort)/simulator"
    func transaction(of scenario: DemoScenario) -> String {
      checks.filter { $0.scenario == scenario.number }.compactMap(\.ownership).last?
        .transaction.rawValue ?? ""
    }
    printer.line(
      """

      Tenure         \(tenure)
      its pages      \(tenure)/admin: log in with the key of role admin\(yearPages)
      its interface  \(tenure)/openapi.yaml
      App Store      \(appStore)
      keys           \(keys.app) (role app), \(keys.admin) (role admin): of this demo only

      What may petra use?
        \(curl)/v1/accounts/petra/entitlements
      Whose is the corrected charge of scenario 18, and why?
        \(curl)/v1/transactions/\(transaction(of: .correction))
      Let Apple refund petra's month, and ask again: notifications arrive by themselves now.
        curl -s \(appStore)/refund -d '{"transaction_id": "\(transaction(of: .appleIsDown))"}'
      Which notifications got lost in the last seven days, by Apple's own books?
        \(CommandLine.arguments[0]) app-store notifications --failures --config \(settingsPath)

      Ctrl-C ends it, and leaves nothing behind.
      """)
  }
}
