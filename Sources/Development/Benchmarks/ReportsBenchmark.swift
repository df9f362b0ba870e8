import Bootstrap
import Foundation
import LedgerStorage
import Logging
import Postgres
import Reports
import Subscriptions

/// Response times of every report and page on a large ledger, and the speed of entitlement reads
/// while reports are computed.
///
/// The ledger is filled first, unless the database contains it from an earlier run.
struct ReportsBenchmark: Sendable {
  static let subscriptions = 1_000_000
  private static let readsName = "entitlement reads during reports"
  private static let readsLimit = "the same reads without reports"
  /// The maximum of different customer histories that are copied.
  private static let mostLives = 400
  /// The minimum of copies of each, given enough customers.
  private static let fewestCopies = 2
  /// The customer whose copy is looked up: one with orders.
  private static let lookedAt = 23
  private static let deadline: Duration = .seconds(7200)
  /// The interval and the limit for waiting until a page is ready.
  private static let pause: Duration = .milliseconds(200)
  private static let patience: Duration = .seconds(90)

  let database: BenchDatabase
  let subscriptions: Int
  /// The seconds for each side of a round of reads; 0: reads are not measured.
  let seconds: Int
  let rounds: Int
  let directory: URL
  let logger: Logger
  var executable = Bundle.main.executableURL

  func run() async throws -> (results: [BenchResult], answers: [AnswerTime]) {
    try await fill()
    // Caches must be cold.
    try await database.restart()
    return try await ServeProcess.run(executable, databaseURL: database.url, in: directory) {
      try await ask($0)
    }
  }

  private func ask(_ server: ServeProcess) async throws
    -> (results: [BenchResult], answers: [AnswerTime])
  {
    let pages = try await BenchPages(of: server)
    do {
      var answers: [AnswerTime] = []
      for question in try await questions() { answers += try await ask(question, pages) }
      let reads = seconds > 0 ? [try await reads(server, pages)] : []
      await pages.close()
      return (reads, answers)
    } catch {
      await pages.close()
      throw error
    }
  }

  // MARK: Filling

  private var lifeCount: Int { min(Self.mostLives, max(1, subscriptions / Self.fewestCopies)) }

  private func fill() async throws {
    if let filled = try await filledSubscriptions() {
      guard filled == subscriptions else {
        throw BenchError.wrongAnswer("the database has \(filled) subscriptions")
      }
      return logger.notice("The database is filled", metadata: ["subscriptions": "\(filled)"])
    }
    let start = ContinuousClock.now
    try await database.withPool { pool in
      logger.notice("Recording sample customers", metadata: ["customers": "\(lifeCount)"])
      try await pool.runScript(Self.haste("SET"))
    }
    try await database.withPool { pool in
      var lives = SampleCustomers(in: pool, until: .now)
      let originals = try await lives.record(lifeCount)
      logger.notice("Filling the database", metadata: ["subscriptions": "\(subscriptions)"])
      try await CopiedCustomers(
        lives: originals, subscriptions: subscriptions, database: pool, logger: logger
      ).write()
      logger.notice("Rolling up movements")
      try await Ledger(database: pool).maintenance.repairMovements()
      logger.notice("Vacuuming")
      try await pool.runScript("VACUUM (ANALYZE)", deadline: Self.deadline)
      try await pool.runScript(Self.haste("RESET"))
      try await pool.runScript("CHECKPOINT", deadline: Self.deadline)
      // Written last: an interrupted run leaves no such table, and its data is not reused.
      try await pool.runScript(
        "CREATE TABLE bench.filled AS SELECT \(subscriptions)::bigint AS subscriptions")
      let size = try await pool.query("SELECT pg_database_size(current_database())")
        .decodeOnly(Int.self)
      logger.notice(
        "Filled the database",
        metadata: [
          "minutes": "\(Int((.now - start) / .seconds(60)))", "MB": "\(size / 1_000_000)",
        ])
    }
  }

  /// Nil if the database is empty.
  private func filledSubscriptions() async throws -> Int? {
    try await database.withPool { pool in
      let isFilled = try await pool.query("SELECT to_regclass('bench.filled') IS NOT NULL")
        .decodeOnly(Bool.self)
      guard isFilled else {
        let isEmpty = try await pool.query("SELECT NOT EXISTS (SELECT FROM tenure.account)")
          .decodeOnly(Bool.self)
        guard isEmpty else { throw BenchError.databaseInUse }
        return nil
      }
      return try await pool.query("SELECT subscriptions FROM bench.filled").decodeOnly(Int.self)
    }
  }

  /// Changes the database's settings for filling, effective on new connections.
  private static func haste(_ verb: String) -> String {
    let settings = [
      ("synchronous_commit", "off"), ("work_mem", "'512MB'"), ("maintenance_work_mem", "'1GB'"),
      ("jit", "off"),
    ]
    let commands = settings.map { name, value in
      "EXECUTE format('ALTER DATABASE %I \(verb) \(name)"
        + (verb == "SET" ? " = \(value.replacing("'", with: "''"))" : "")
        + "', current_database());"
    }
    return "DO $$ BEGIN \(commands.joined(separator: " ")) END $$"
  }

  // MARK: Requests

  private struct Question {
    var name: String
    var path: String
    /// Whether the pages behind the page's numbers are requested as well.
    var hasNumbers = false
  }

  private func questions() async throws -> [Question] {
    let years = Timestamp.now - SampleCustomers.span
    let from = String("\(years)".prefix(10))
    var questions: [Question] = []
    for report in Report.all {
      let long = report.parameters.contains(.from) ? "from=\(from)&bucket=month" : nil
      let name = report.name
      questions.append(Question(name: "GET \(name)", path: "/v1/reports/\(name)"))
      if let long {
        let query = report.parameters.contains(.bucket) ? long : "from=\(from)"
        questions.append(
          Question(name: "GET \(name), three years", path: "/v1/reports/\(name)?\(query)"))
      }
    }
    for report in Report.all {
      let name = report.name
      questions.append(
        Question(name: "page \(name)", path: "/admin/reports/\(name)", hasNumbers: true))
      guard report.parameters.contains(.from) else { continue }
      let bucket = report.parameters.contains(.bucket) ? "&bucket=month" : ""
      questions.append(
        Question(
          name: "page \(name), three years",
          path: "/admin/reports/\(name)?from=\(from)\(bucket)"))
    }
    questions.append(Question(name: "overview", path: "/admin"))
    return try await questions + customerQuestions() + [
      Question(name: "unclaimed", path: "/admin/unclaimed"),
      Question(name: "parked", path: "/admin/parked"),
      Question(name: "rejected", path: "/admin/rejected"),
    ]
  }

  /// Requests about a copied customer, one with ledger entries if there are enough copies.
  private func customerQuestions() async throws -> [Question] {
    let place = min(Self.lookedAt, lifeCount - 1)
    let copies = (subscriptions - 1 - place) / lifeCount
    let step = copies < CopiedCustomers.sampling ? 1 : CopiedCustomers.sampling
    let customer = SampleCustomer(place + lifeCount * (copies - copies % step))
    let line = customer.originalTransactionID.rawValue
    let found = try await database.withPool { pool in
      (
        try await pool.query(
          """
          SELECT transaction_id, web_order_line_item_id FROM tenure.store_transaction
          WHERE original_transaction_id = \(line) ORDER BY number LIMIT 1
          """
        ).decodeFirst(String.self, String?.self),
        try await pool.query(
          "SELECT order_id::text FROM tenure.purchase_order ORDER BY order_id DESC LIMIT 1"
        ).decodeFirst(String.self)
      )
    }
    let texts = [
      ("account", customer.accountID), ("original transaction id", line),
      ("transaction id", found.0?.0), ("line item", found.0?.1), ("order id", found.1),
    ]
    return texts.compactMap { name, text in
      text.map { Question(name: "search by \(name)", path: "/admin/search?q=\($0)") }
    } + [
      Question(name: "account", path: "/admin/accounts/\(customer.accountID)"),
      Question(
        name: "original transaction",
        path: "/admin/original-transactions/\(line)?environment=production"),
    ]
  }

  // MARK: Measuring

  /// Requests a page twice, and the pages behind its numbers.
  private func ask(_ question: Question, _ pages: BenchPages) async throws -> [AnswerTime] {
    let start = ContinuousClock.now
    let first: BenchPages.Answer
    do {
      first = try await pages.get(question.path)
    } catch is CancellationError {
      throw CancellationError()
    } catch {
      let elapsed = ContinuousClock.now - start
      return [
        AnswerTime(
          name: question.name, cold: elapsed, warm: elapsed, wasWorking: false,
          answeredAfter: elapsed, fault: "no response")
      ]
    }
    var last = first
    while last.isWorking, .now - start < Self.patience {
      try await Task.sleep(for: Self.pause)
      last = try await pages.get(question.path)
    }
    let answeredAfter = ContinuousClock.now - start
    let warm = first.isGood && last.isGood ? try await pages.get(question.path) : last
    let fault = [first, last, warm].first { !$0.isGood }.map { "status \($0.status)" }
    let time = AnswerTime(
      name: question.name, cold: first.duration, warm: warm.duration, wasWorking: first.isWorking,
      answeredAfter: first.isWorking ? answeredAfter : first.duration,
      fault: fault ?? (last.isWorking ? "never answered" : nil))
    logger.notice(
      "Requested",
      metadata: [
        "what": "\(time.name)", "cold_ms": "\(Int(time.cold / .milliseconds(1)))",
        "warm_ms": "\(Int(time.warm / .milliseconds(1)))", "outcome": "\(time.outcome)",
      ])
    guard question.hasNumbers, fault == nil else { return [time] }
    var times = [time]
    for (column, path) in Self.numbers(in: last.body) {
      times += try await ask(
        Question(name: "\(question.name): \(column)", path: path), pages)
    }
    return times
  }

  /// Query parameters of measures that are rows instead of columns.
  private static let measures = ["row_measure", "row_state"]

  /// The links of a page's numbers: the last one for each column and measure.
  private static func numbers(in page: String) -> [(column: String, path: String)] {
    var paths: [String: String] = [:]
    for part in page.split(separator: "href=\"").dropFirst() {
      let path = String(part.prefix { $0 != "\"" }).replacing("&amp;", with: "&")
      guard path.hasPrefix("/admin/reports/"), path.contains("/transactions?"),
        !path.contains("format=csv"), let column = value(of: "cell", in: path)
      else { continue }
      let names = [column] + measures.compactMap { value(of: $0, in: path) }
      paths[names.joined(separator: " ")] = path
    }
    return paths.sorted { $0.key < $1.key }.map { (column: $0.key, path: $0.value) }
  }

  private static func value(of name: String, in path: String) -> String? {
    path.split(separator: "?").last?.split(separator: "&")
      .first { $0.hasPrefix(name + "=") }
      .map { String($0.dropFirst(name.count + 1)) }
  }

  // MARK: Reads during reports

  private func reads(_ server: ServeProcess, _ pages: BenchPages) async throws -> BenchResult {
    let reads = try EntitlementReads(
      of: SampleCustomer.numbers(0...subscriptions - 1), from: server, in: directory)
    let from = String("\(Timestamp.now - SampleCustomers.span)".prefix(10))
    let paths = Report.all.map { report in
      "/v1/reports/\(report.name)"
        + (report.parameters.contains(.from) ? "?from=\(from)" : "")
    }
    var figures: [(measured: Measurement, limit: Measurement)] = []
    for round in 1...rounds {
      logger.notice("Reads", metadata: ["round": "\(round) of \(rounds)"])
      let alone = try await reads.measure(seconds: seconds)
      let asking = Task {
        while !Task.isCancelled {
          for path in paths where !Task.isCancelled { _ = try? await pages.get(path) }
        }
      }
      do {
        figures.append((try await reads.measure(seconds: seconds), alone))
      } catch {
        asking.cancel()
        throw error
      }
      asking.cancel()
      await asking.value
    }
    return BenchResult(
      name: Self.readsName, limitName: Self.readsLimit, goal: nil, rounds: figures,
      memory: server.peakMemory)
  }
}
