import Postgres
import Subscriptions

/// One question about the books, with one definition: the comment of its function in the SQL.
///
/// There are two functions: `report_churn` for the numbers and `report_churn_item` for the things
/// that these count. Columns and choices are those of the two; see ``churn``.
package struct Report: Sendable {
  /// Reports that are listed together.
  package enum Group: String, CaseIterable, Sendable {
    case subscriptions = "Subscriptions"
    case money = "Money"
    case operations = "Operations"
  }

  /// A rate as two columns: a part of a whole, or a number per another.
  package struct Share: Hashable, Sendable {
    package let part: String
    package let whole: String
    /// Stands between the two numbers: `/` if the part has more than the whole's.
    package let relation: String
    /// The columns of those whose outcome is known; empty if that of all is.
    package let settled: [String]

    init(_ part: String, of whole: String, settled: String...) {
      (self.part, self.whole, self.settled, relation) = (part, whole, settled, "of")
    }

    init(_ part: String, per whole: String) {
      (self.part, self.whole, settled, relation) = (part, whole, [], "/")
    }
  }

  /// As in `GET /v1/reports/{name}` and `tenure report NAME`.
  package let name: String
  package let label: String
  package let group: Group
  /// One sentence for a list of reports.
  package let summary: String
  let sql: String
  /// Those of its function, and after the last day of a row whether it is over.
  package var columns: [ReportColumn] {
    numbers.columns.flatMap { $0.name == "to_day" ? [$0, .isPartial] : [$0] }
  }
  package var itemColumns: [ReportColumn] { items.columns }
  /// The values of the parameter `column`.
  package var itemizedColumns: [String] { drillDown.columns.keys.sorted() }
  let drillDown: DrillDown
  /// The measure whose sum at the end of a row is the opening of the next one.
  let stock: String?
  /// The column whose part at catalogue prices is `from_catalogue_milliunits`.
  let priced: String
  let order: String
  let itemOrder: String
  /// Puts the items of a number into one order where ``itemOrder`` leaves several.
  let itemTieBreak: String
  package let shares: [String: Share]
  package let charts: [ReportChart]
  /// What is drawn by segment where the rows are split; nil for a report without charts of periods.
  package let measure: ReportChart.Series?
  /// Whether later facts can change parts of a past state; the definition names them.
  package let isPartlyFrozen: Bool
  /// Whether other products than auto-renewable subscriptions count.
  package let countsAllProducts: Bool
  private let numbers: Signature
  private let items: Signature
  /// Set for a report that asks views instead of functions.
  let views: Views?

  /// How a report asks its views.
  struct Views: Sendable {
    /// The choices and columns, which no function has.
    let numbers: Signature
    let items: Signature
    /// Makes the statement of the numbers.
    let query: @Sendable (ReportChoices, Int?, Timestamp) -> SQL
    /// The filter that the choices put on the items.
    let condition: @Sendable (ReportChoices, Timestamp) -> SQL
  }

  /// A report; without an order, its rows are sorted by the columns that distinguish them.
  init(
    _ name: String, label: String, group: Group, summary: String, sql: [UInt8],
    drillDown: DrillDown = .all, stock: String? = nil, priced: String = "amount_milliunits",
    order: String? = nil,
    itemOrder: String = "at DESC, original_transaction_id, transaction_id, measure",
    itemTieBreak: String = "r::text", shares: [String: Share] = [:], charts: [ReportChart] = [],
    measure: ReportChart.Series? = nil, isPartlyFrozen: Bool = false,
    countsAllProducts: Bool = false, views: Views? = nil
  ) {
    let text = String(decoding: sql, as: UTF8.self)
    let relation = Self.relation(name)
    numbers = views?.numbers ?? Signature(of: relation, in: text)
    items = views?.items ?? Signature(of: relation + "_item", in: text)
    self.order =
      order
      ?? numbers.columns.filter { $0.distinguishesRows && $0.name != "to_day" }.map(\.name)
      .joined(separator: ", ")
    (self.name, self.label, self.group, self.summary, self.sql) = (
      name, label, group, summary, text
    )
    (self.drillDown, self.stock, self.priced) = (drillDown, stock, priced)
    (self.itemOrder, self.itemTieBreak) = (itemOrder, itemTieBreak)
    (self.shares, self.charts) = (shares, charts)
    self.measure = measure ?? charts.first?.series.first
    (self.isPartlyFrozen, self.countsAllProducts) = (isPartlyFrozen, countsAllProducts)
    self.views = views
  }
}

extension Report {
  /// All reports, in the order in which they are listed.
  package static let all: [Report] = [
    .subscriptions, .active, .trials, .mrr, .churn, .renewalsDue, .billingIssues, .retention,
    .revenue, .lifetimeValue, .refunds, .reactivations, .ownership, .unclaimed, .orders, .intake,
    .audit,
  ]

  /// The SQL of all reports, in the order of its dependencies.
  package static let sql: [String] =
    [PackageResources.calendar_sql, PackageResources.charges_sql, PackageResources.movements_sql]
    .map { String(decoding: $0, as: UTF8.self) } + all.map(\.sql)

  /// Nil for a name that no report has, compared byte by byte.
  package init?(exactly name: String) {
    let name = ExactText(name)
    guard let report = Self.all.first(where: { ExactText($0.name) == name }) else { return nil }
    self = report
  }
}

extension Report: Hashable, CustomStringConvertible {
  package static func == (left: Report, right: Report) -> Bool { left.name == right.name }

  package func hash(into hasher: inout Hasher) { hasher.combine(name) }

  package var description: String { name }
}

extension Report {
  package var relation: String { Self.relation(name) }

  private static func relation(_ name: String) -> String {
    "report_" + name.replacing("-", with: "_")
  }

  package var parameters: [ReportParameter] {
    var parameters = numbers.parameters
    for (place, parameter) in items.parameters.enumerated() where !parameters.contains(parameter) {
      let before = place == 0 ? nil : parameters.firstIndex(of: items.parameters[place - 1])
      parameters.insert(parameter, at: before.map { $0 + 1 } ?? 0)
    }
    return parameters + (drillDown.columns.isEmpty ? [] : [.column])
  }

  func arguments(ofItems: Bool) -> [ReportParameter] {
    ofItems ? items.parameters : numbers.parameters
  }

  func columns(_ choices: ReportChoices) -> [ReportColumn] {
    choices.listsItems ? itemColumns : columns
  }

  /// The values of the parameter `by`: those that its items have a column of.
  package var segmentations: [ReportChoices.Segmentation] {
    guard numbers.parameters.contains(.by) else { return [] }
    return ReportChoices.Segmentation.allCases.filter { segmentation in
      itemColumns.contains { $0.name == segmentation.column }
    }
  }

  /// Whether a column has the number at the end of each row.
  package func isStock(_ column: String) -> Bool {
    charts.contains { chart in
      chart.isStock && chart.series.contains { $0.added.contains(column) }
    }
  }

  /// One chart of the measure, whose series are the segments; nil for a report without a measure.
  package func chart(by segmentation: ReportChoices.Segmentation) -> ReportChart? {
    measure.map { measure in
      ReportChart(
        title: "\(measure.name) by \(segmentation.rawValue.replacing("_", with: " "))",
        series: [measure], isStock: measure.added.contains(where: isStock), net: nil)
    }
  }

  func query(_ choices: ReportChoices, rows: Int?, at now: Timestamp) -> SQL {
    if let views, !choices.listsItems { return views.query(choices, rows, now) }
    let names = columns(choices).map(\.selected).joined(separator: ", ")
    var condition: SQL = views.map { "WHERE \($0.condition(choices, now))" } ?? ""
    if choices.listsItems, let column = choices.column, let values = drillDown.columns[column] {
      let name = drillDown.rowColumn ?? "measure"
      condition = "WHERE \(unescaped: name) = ANY (\(values.added + values.takenOff))"
    }
    var source = items(choices, at: now)
    if !choices.listsItems, columns.contains(.isPartial) {
      source = "(SELECT *, to_day >= \(choices.today(at: now)) AS is_partial FROM \(source))"
    }
    return """
      SELECT \(unescaped: names)
      FROM \(source) AS r
      \(condition)
      ORDER BY \(unescaped: choices.listsItems ? itemOrder : order)
      LIMIT \(rows)
      """
  }

  /// The function's call or, where views answer, the view of the things that the report counts.
  func items(_ choices: ReportChoices, at now: Timestamp) -> SQL {
    let name = relation + (choices.listsItems ? "_item" : "")
    return views == nil
      ? "tenure.\(unescaped: name)(\(arguments(choices, at: now)))" : "tenure.\(unescaped: name)"
  }

  private func arguments(_ choices: ReportChoices, at now: Timestamp) -> SQL {
    var arguments: SQL = ""
    var isFirst = true
    for parameter in self.arguments(ofItems: choices.listsItems) {
      guard let value = choices.value(of: parameter, at: now) else { continue }
      let separator = isFirst ? "" : ", "
      arguments.append("\(unescaped: separator + parameter.argument) => \(value)")
      isFirst = false
    }
    return arguments
  }
}

/// The parameters and the columns of a function, read from the statement that creates it.
struct Signature: Sendable {
  var parameters: [ReportParameter] = []
  var columns: [ReportColumn] = []

  init(parameters: [ReportParameter] = [], columns: [ReportColumn]) {
    (self.parameters, self.columns) = (parameters, columns)
  }

  init(of function: String, in sql: String) {
    guard let start = sql.firstRange(of: "CREATE OR REPLACE FUNCTION \(function)("),
      let middle = sql[start.upperBound...].firstRange(of: ")\nRETURNS TABLE ("),
      let end = sql[middle.upperBound...].firstRange(of: ")\nLANGUAGE")
    else { preconditionFailure("The SQL creates no function \(function) that returns a table.") }
    for words in Self.declarations(sql[start.upperBound..<middle.lowerBound]) {
      guard let parameter = ReportParameter.allCases.first(where: { $0.argument == words[0] })
      else { preconditionFailure("\(function) has an unknown parameter, \(words[0]).") }
      parameters.append(parameter)
    }
    columns = Self.declarations(sql[middle.upperBound..<end.lowerBound]).map { words in
      guard let kind = ReportColumn.Kind(type: words[1], name: words[0]) else {
        preconditionFailure("\(function) has a column of type \(words[1]).")
      }
      return ReportColumn(words[0], kind)
    }
  }

  /// The words of each declaration: its name, its type and the default, which has no comma.
  private static func declarations(_ text: Substring) -> [[String]] {
    text.split(separator: ",").map { $0.split(whereSeparator: \.isWhitespace).map(String.init) }
  }
}

extension ReportColumn.Kind {
  /// Takes it from the column's type, and from the suffixes `_milliunits`, `_ms` and `_rate`.
  fileprivate init?(type: String, name: String) {
    switch type {
    case "text", "uuid": self = .text
    case "date": self = .date
    case "timestamptz": self = .time
    case "boolean": self = .flag
    case "numeric": self = name.hasSuffix("_rate") ? .rate : .fraction
    case "bigint", "integer":
      self = name.hasSuffix("_milliunits") ? .money : name.hasSuffix("_ms") ? .duration : .number
    default: return nil
    }
  }
}

extension ReportChoices {
  /// The day that is not over at the moment that the report is about: after the last millisecond of
  /// a day, the next one.
  func today(at now: Timestamp) -> SQL {
    "(\(PostgresTimestamp(moment(at: now) + .milliseconds(1))) AT TIME ZONE \(timeZone))::date"
  }

  /// A choice as an argument; nil: it is left to the function's default.
  fileprivate func value(of parameter: ReportParameter, at now: Timestamp) -> SQL? {
    switch parameter {
    case .knownAt: knownAt.map { "\(PostgresTimestamp($0))" }
    case .asOf: "\(PostgresTimestamp(asOf ?? now))"
    case .from, .to: text(of: parameter).map { "\($0)::date" }
    case .days, .period: text(of: parameter).map { "\($0)::integer" }
    case .includeFamilyShared, .includeTrials, .includeGrants:
      text(of: parameter).map { "\($0)::boolean" }
    default: text(of: parameter).map { "\($0)" }
    }
  }
}

extension ReportColumn {
  /// Whether the row's last day is not over, so that its numbers can still grow.
  package static let isPartial = ReportColumn("is_partial", .flag)

  /// The column as it is selected: dates and exact fractions travel as text.
  var selected: String {
    switch kind {
    case .text, .date, .fraction, .rate: "r.\(name)::text AS \(name)"
    case .number, .duration, .money: "r.\(name)::bigint AS \(name)"
    case .time, .flag: "r.\(name)"
    }
  }

  /// Whether its values distinguish rows, and do not count or measure anything.
  var distinguishesRows: Bool {
    switch kind {
    case .text, .date, .flag: true
    case .number, .time, .duration, .money, .fraction, .rate: false
    }
  }
}

/// A choice of a report, by its name in HTTP and, with hyphens, in commands.
package enum ReportParameter: String, CaseIterable, Sendable {
  case from
  case to
  case bucket
  case timeZone = "time_zone"
  case product
  case environment
  case includeFamilyShared = "include_family_shared"
  case includeTrials = "include_trials"
  case includeGrants = "include_grants"
  case by
  case dateOf = "date_of"
  case reportingCurrency = "reporting_currency"
  case knownAt = "known_at"
  case asOf = "as_of"
  case days
  case period
  case includeSandbox = "include_sandbox"
  case column

  var argument: String {
    switch self {
    case .from: "from_date"
    case .to: "to_date"
    default: rawValue
    }
  }
}

/// A refused choice; the text is the end of a sentence that begins with the parameter's name.
package struct ReportFault: Error, Hashable {
  package let parameter: ReportParameter
  package let text: String

  init(_ parameter: ReportParameter, _ text: String) {
    self.parameter = parameter
    self.text = text
  }
}

package struct ReportChart: Sendable {
  /// The sum of some columns, less that of others.
  package struct Series: Sendable {
    package let name: String
    package let added: [String]
    package let takenOff: [String]

    init(_ name: String, _ added: String..., minus takenOff: String...) {
      (self.name, self.added, self.takenOff) = (name, added, takenOff)
    }
  }

  package let title: String
  package let series: [Series]
  /// Whether it has the numbers at the end of each row, drawn as lines instead of stacked bars.
  package let isStock: Bool
  package let net: Series?

  static func lines(_ title: String, _ series: Series...) -> ReportChart {
    ReportChart(title: title, series: series, isStock: true, net: nil)
  }

  static func bars(_ title: String, _ series: Series..., net: Series? = nil) -> ReportChart {
    ReportChart(title: title, series: series, isStock: false, net: net)
  }
}
