package import Postgres
package import Subscriptions

/// Answers reports; reads, and never writes.
package struct ReportReader: Sendable {
  private let database: ConnectionPool
  private let files = FilePlaces(count: Self.mostFilesAtOnce)
  private let timeZones = KnownTimeZones()

  /// Years of a large ledger take seconds; nobody waits for longer than this.
  private static let deadline: Duration = .seconds(60)

  /// Reads a database whose schema is up to date.
  ///
  /// - Parameter database: In a program that does anything else too, a pool of its own
  ///   (``configuration(like:)``).
  package init(database: ConnectionPool) {
    self.database = database
  }

  /// Of connections for reports, as a program has them beside its others.
  ///
  /// As many are asked at a time as leave the rest of a small machine to everybody else, and the
  /// others wait.
  ///
  /// - Parameter other: How the program reaches its database.
  /// - Returns: The same, for reports.
  package static func configuration(like other: ConnectionPool.Configuration)
    -> ConnectionPool.Configuration
  {
    var configuration = other
    // One is left for what is no report: short questions that go with them.
    configuration.connectionLimit = mostAtOnce + mostFilesAtOnce + 1
    configuration.acquireTimeout = deadline
    configuration.applicationName = "tenure reports"
    return configuration
  }

  /// How many reports are asked at a time.
  package static let mostAtOnce = 2

  /// How many files are read at a time: each keeps a connection for as long as its reader takes.
  package static let mostFilesAtOnce = 2

  /// Answers a report.
  ///
  /// - Parameters:
  ///   - report: Which.
  ///   - choices: What is chosen of it.
  ///   - now: The moment that it is about.
  /// - Returns: The answer.
  /// - Throws: ``ReportFault``; what the database says.
  package func table(
    of report: Report, _ choices: ReportChoices = ReportChoices(), at now: Timestamp
  ) async throws -> ReportTable {
    try await check(choices, for: report, at: now)
    let columns = report.columns(choices)
    let limit = choices.limit ?? ReportChoices.usualLimit
    // A row more than are asked for says that there are more.
    let found = try await rows(report.query(choices, rows: limit + 1, at: now))
    let rows = try found.prefix(limit).map { row in try columns.map(row.value) }
    return ReportTable(
      report: report, asOf: choices.asOf ?? now, columns: columns, rows: rows,
      isCutShort: found.count > limit)
  }

  func check(_ choices: ReportChoices, for report: Report, at now: Timestamp) async throws {
    try choices.check(for: report)
    try choices.checkRange(at: now)
    try await checkTimeZone(choices.timeZone)
  }

  /// What holds for the questions of reports alone.
  ///
  /// One that takes long uses one core and leaves the others to those who must not wait; code
  /// compiled for it would take longer than most of them do; what it sorts is some tens of
  /// thousands of rows, which need no files; and each is planned for what is chosen, so that it
  /// looks through nothing else.
  private static let settings: [SQL] = [
    "SET LOCAL max_parallel_workers_per_gather = 0", "SET LOCAL jit = off",
    "SET LOCAL work_mem = '32MB'", "SET LOCAL plan_cache_mode = 'force_custom_plan'",
  ]

  /// Asks on a connection that nobody else's statements are sent on meanwhile: they would wait.
  func rows(_ question: SQL) async throws -> Rows {
    try await database.withTransaction(readOnly: true) { transaction in
      try await transaction.batch(Self.settings + [question], deadline: Self.deadline)[
        Self.settings.count]
    }
  }

  /// Opens a file whose rows are those of a question.
  func file(_ columns: [ReportColumn], _ question: SQL) async throws -> ReportFile {
    let place = try files.take()
    return ReportFile(
      columns: columns,
      cursor: try await database.openCursor(
        for: question, settings: Self.settings, rowsAtOnce: ReportFile.rowsAtOnce,
        idleTimeout: ReportFile.patience, deadline: Self.deadline),
      place: place)
  }

  /// The database takes more for a time zone than there are, with offsets the wrong way round.
  private func checkTimeZone(_ name: String) async throws {
    guard name != ReportChoices.utc, !timeZones.contains(name) else { return }
    let isKnown = try await database.query(
      "SELECT EXISTS (SELECT FROM pg_timezone_names WHERE name = \(name))"
    ).decodeOnly(Bool.self)
    guard isKnown else {
      throw ReportFault(.timeZone, "must be a name of the IANA database, as in Europe/Berlin")
    }
    timeZones.insert(name)
  }

  /// What each report counts, in full: the comment of its function or view in the database.
  ///
  /// - Throws: What the database says.
  package func definitions() async throws -> [Report: String] {
    let names = Dictionary(uniqueKeysWithValues: Report.allCases.map { ($0.relation, $0) })
    let comments = try await database.query(
      """
      SELECT proname::text, obj_description(oid, 'pg_proc') FROM pg_proc
      WHERE pronamespace = 'tenure'::regnamespace AND proname = ANY (\(Array(names.keys)))
      UNION ALL
      SELECT relname::text, obj_description(oid, 'pg_class') FROM pg_class
      WHERE relnamespace = 'tenure'::regnamespace AND relname = ANY (\(Array(names.keys)))
      """
    ).decode(String.self, String?.self)
    return comments.reduce(into: [:]) { definitions, comment in
      if let report = names[comment.0] { definitions[report] = comment.1 }
    }
  }
}

extension Row {
  func value(of column: ReportColumn) throws -> ReportValue {
    switch column.kind {
    case .text: try decode(String?.self, column: column.name).map { .text($0) } ?? .none
    case .number: try decode(Int64?.self, column: column.name).map { .number($0) } ?? .none
    case .duration:
      try decode(Int64?.self, column: column.name).map { .duration(milliseconds: $0) } ?? .none
    case .time:
      try decode(PostgresTimestamp?.self, column: column.name).map { .time(Timestamp($0)) }
        ?? .none
    case .date: try decode(String?.self, column: column.name).map { .date($0) } ?? .none
    case .fraction: try decode(String?.self, column: column.name).map { .fraction($0) } ?? .none
    case .rate: try decode(String?.self, column: column.name).map { .rate($0) } ?? .none
    case .flag: try decode(Bool?.self, column: column.name).map { .flag($0) } ?? .none
    case .money:
      if let milliunits = try decode(Int64?.self, column: column.name) {
        try .money(milliunits: milliunits, currency: decode(String?.self, column: "currency"))
      } else {
        .none
      }
    }
  }
}

// How moments travel; the ledger has its own way, of which reports know nothing.

extension PostgresTimestamp {
  init(_ moment: Timestamp) {
    self.init(millisecondsSince1970: moment.milliseconds)
  }
}

extension Timestamp {
  /// Rounds down to the millisecond.
  init(_ moment: PostgresTimestamp) {
    self.init(milliseconds: moment.millisecondsSince1970)
  }
}
