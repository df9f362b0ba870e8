package import Postgres
package import Subscriptions
import Synchronization

package struct ReportReader: Sendable {
  private let database: ConnectionPool
  private let files = FilePlaces(count: Self.mostFilesAtOnce)

  /// Years of a large ledger take seconds.
  private static let deadline: Duration = .seconds(60)

  /// Reads a database whose schema is up to date.
  package init(database: ConnectionPool) {
    self.database = database
  }

  /// The configuration of a pool for so few reports that a small machine has room for all else.
  package static func configuration(like other: ConnectionPool.Configuration)
    -> ConnectionPool.Configuration
  {
    var configuration = other
    // One more for short queries, such as that for the definitions.
    configuration.connectionLimit = mostAtOnce + mostFilesAtOnce + 1
    configuration.acquireTimeout = deadline
    configuration.applicationName = "tenure reports"
    return configuration
  }

  /// Reports that run at a time.
  package static let mostAtOnce = 2

  /// Files that are open at a time; each keeps a connection for as long as its reader takes.
  package static let mostFilesAtOnce = 2

  package func table(
    of report: Report, _ choices: ReportChoices = ReportChoices(), at now: Timestamp
  ) async throws -> ReportTable {
    try await check(choices, for: report, at: now)
    let columns = report.columns(choices)
    let limit = choices.limit ?? ReportChoices.usualLimit
    // One row beyond the limit shows whether there are more.
    var table = try ReportTable(
      of: report, asOf: choices.asOf ?? now, columns,
      await rows(report.query(choices, rows: limit + 1, at: now)), limit: limit)
    if !choices.listsItems { table.reportingCurrency = choices.reportingCurrency }
    return table
  }

  func check(_ choices: ReportChoices, for report: Report, at now: Timestamp) async throws {
    try choices.check(for: report)
    try choices.checkRange(at: now)
    try await checkTimeZone(choices.timeZone)
  }

  /// A long report uses one core and leaves the others to requests that must not wait; compiling
  /// takes longer than most reports; sorts of tens of thousands of rows need no files; each plan
  /// fits the choices, so that it reads nothing else.
  private static let settings: [SQL] = [
    "SET LOCAL max_parallel_workers_per_gather = 0", "SET LOCAL jit = off",
    "SET LOCAL work_mem = '32MB'", "SET LOCAL plan_cache_mode = 'force_custom_plan'",
  ]

  /// Queries on a separate connection, so that no other statements wait behind it.
  func rows(_ question: SQL) async throws -> Rows {
    try await database.withTransaction(readOnly: true) { transaction in
      try await transaction.batch(Self.settings + [question], deadline: Self.deadline)[
        Self.settings.count]
    }
  }

  func file(_ columns: [ReportColumn], _ question: SQL) async throws -> ReportFile {
    let place = try files.take()
    return ReportFile(
      columns: columns,
      cursor: try await database.openCursor(
        for: question, settings: Self.settings, rowsAtOnce: ReportFile.rowsAtOnce,
        idleTimeout: ReportFile.patience, deadline: Self.deadline), place: place)
  }

  /// The names of time zones that the database was found to know.
  ///
  /// `pg_timezone_names` reads all files of the IANA database each time, which takes longer than
  /// many reports.
  private static let timeZones = Mutex<Set<String>>([])

  /// Refuses what PostgreSQL accepts beyond IANA names, such as offsets with a reversed sign.
  private func checkTimeZone(_ name: String) async throws {
    guard name != ReportChoices.utc, !Self.timeZones.withLock({ $0.contains(name) }) else { return }
    let isKnown = try await database.query(
      "SELECT EXISTS (SELECT FROM pg_timezone_names WHERE name = \(name))"
    ).decodeOnly(Bool.self)
    guard isKnown else {
      throw ReportFault(.timeZone, "must be a name of the IANA database, as in Europe/Berlin")
    }
    Self.timeZones.withLock { _ = $0.insert(name) }
  }

  /// The definition of each report: the comment of its function or view in the database.
  package func definitions() async throws -> [Report: String] {
    let names = Dictionary(uniqueKeysWithValues: Report.all.map { ($0.relation, $0) })
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

extension ReportTable {
  init(of report: Report, asOf: Timestamp, _ columns: [ReportColumn], _ found: Rows, limit: Int)
    throws
  {
    self.init(
      report: report, asOf: asOf, columns: columns,
      rows: try found.prefix(limit).map { row in try columns.map(row.value) },
      isCutShort: found.count > limit)
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

/// The items of a number: some of them, their count and their sum.
package struct ReportCellItems: Hashable, Sendable {
  package let cell: ReportCell
  package let items: ReportTable
  package let count: Int64
  /// Equals the report's number.
  package let sum: ReportValue
  /// The sums of the items' amounts, one for each currency; empty for items without amounts.
  package let amounts: [ReportValue]
}

extension ReportReader {
  package func items(
    of cell: ReportCell, from offset: Int = 0, limit: Int = 1000, at now: Timestamp
  ) async throws -> ReportCellItems {
    let choices = cell.listing
    try await check(choices, for: cell.report, at: now)
    let columns = cell.report.columns(choices)
    let source = cell.source(choices, at: now)
    let items = try ReportTable(
      of: cell.report, asOf: choices.asOf ?? now, columns,
      await rows(cell.items(source, rows: limit + 1, from: offset)), limit: limit)
    return try await sums(of: cell, items, source)
  }

  private func sums(of cell: ReportCell, _ items: ReportTable, _ source: SQL) async throws
    -> ReportCellItems
  {
    let rule = cell.rule
    let isRate = rule.summed == "mrr_twelfths"
    let hasAmounts = ["currency", "amount_milliunits"].allSatisfy { name in
      items.columns.contains { $0.name == name }
    }
    let (currency, money): (SQL, SQL) =
      hasAmounts ? ("r.currency", "sum(r.amount_milliunits)") : ("NULL::text", "NULL")
    let amount: SQL =
      rule.takenOff.isEmpty
      ? "r.\(unescaped: rule.summed)"
      : """
      CASE WHEN r.measure = ANY (\(rule.takenOff)) THEN -r.\(unescaped: rule.summed)
        ELSE r.\(unescaped: rule.summed) END
      """
    let found = try await rows(
      """
      SELECT \(currency) AS currency, count(*), coalesce(sum(\(amount)), 0)::bigint,
        round(coalesce(sum(\(amount)), 0) / 12.0)::bigint, (\(money))::bigint
      \(source) GROUP BY 1 ORDER BY 1
      """
    ).decode(String?.self, Int64.self, Int64.self, Int64.self, Int64?.self)
    let total = found.reduce(0) { $0 + $1.2 }
    let sum: ReportValue =
      switch cell.report.columns.first(where: { $0.name == cell.column })?.kind {
      case .money:
        .money(
          // A number in money is in one currency.
          milliunits: isRate ? found.reduce(0) { $0 + $1.3 } : total,
          currency: cell.row["currency"] ?? nil)
      case .fraction: .fraction("\(total)")
      default: .number(total)
      }
    return ReportCellItems(
      cell: cell, items: items, count: found.reduce(0) { $0 + $1.1 }, sum: sum,
      amounts: found.compactMap { currency, _, _, _, money in
        currency.flatMap { currency in money.map { .money(milliunits: $0, currency: currency) } }
      })
  }
}

extension ReportCell {
  var listing: ReportChoices {
    var choices = self.choices
    choices.listsItems = true
    return choices
  }

  func items(_ source: SQL, rows: Int?, from offset: Int = 0) -> SQL {
    """
    SELECT \(unescaped: report.itemColumns.map(\.selected).joined(separator: ", ")) \(source)
    ORDER BY \(unescaped: "\(report.itemOrder), \(report.itemTieBreak)")
    LIMIT \(rows) OFFSET \(offset)
    """
  }

  func source(_ choices: ReportChoices, at now: Timestamp) -> SQL {
    var source: SQL = "FROM \(report.items(choices, at: now)) AS r WHERE true"
    if let views = report.views { source.append(" AND \(views.condition(choices, now))") }
    for (column, value) in row.sorted(by: { $0.key < $1.key }) {
      source.append(" AND r.\(unescaped: column)::text IS NOT DISTINCT FROM \(value)::text")
    }
    if let added = rule.added {
      source.append(" AND r.measure = ANY (\(added + rule.takenOff))")
    }
    if rule.isFromCatalogue { source.append(" AND r.price_source = 'catalogue'") }
    return source
  }
}
