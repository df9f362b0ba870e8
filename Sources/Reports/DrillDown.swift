import Subscriptions

/// A number of a report, whose items can be listed and add up to it.
package struct ReportCell: Hashable, Sendable {
  package let report: Report
  /// The report's choices, narrowed to the row.
  package let choices: ReportChoices
  package let column: String
  /// The values that the row shares with all of its items, by column; nil for NULL.
  package let row: [String: String?]
  let rule: CellRule

  /// Restores a number that ``ReportTable/cell(_:inRow:of:)`` returned.
  package init(
    of report: Report, _ choices: ReportChoices, column: String, row: [String: String?]
  ) throws {
    guard let rule = report.rule(column) else {
      throw ReportFault(.column, "must be a number of the report")
    }
    guard row.keys.allSatisfy({ rule.rowColumns.contains($0) || $0 == choices.by?.column }) else {
      throw ReportFault(.column, "has no such row")
    }
    self.report = report
    self.choices = choices
    self.column = column
    self.row = row
    self.rule = rule
  }
}

extension ReportTable {
  /// The number in a column and row, with the choices that the table answers; nil for a value that
  /// is not a sum of items, such as a converted amount, whose items are in their own currencies.
  package func cell(_ column: String, inRow index: Int, of choices: ReportChoices) -> ReportCell? {
    guard !choices.listsItems, choices.reportingCurrency == nil,
      let rule = report.rule(column), value(column, inRow: index) != ReportValue.none
    else { return nil }
    var narrowed = choices
    // The moment of the table, so that later changes don't alter the number.
    if report.parameters.contains(.asOf) { narrowed.asOf = asOf }
    var rowColumns = rule.rowColumns
    if let from = day("from_day", inRow: index), let to = day("to_day", inRow: index) {
      rowColumns.removeAll { $0 == "from_day" }
      let dayBefore = CalendarDate(daysSince1970: from.daysSince1970 - 1)
      narrowed.from = rule.isOfDayBefore ? dayBefore : from
      narrowed.to = rule.isOfDayBefore ? dayBefore : to
    }
    if let cohort = day("cohort", inRow: index) {
      (narrowed.from, narrowed.to) = (cohort, cohort)
      if case .number(let period)? = value("period", inRow: index) { narrowed.period = Int(period) }
    }
    var row = Dictionary(
      uniqueKeysWithValues: rowColumns.map { ($0, value($0, inRow: index)?.rowText) })
    if let by = choices.by { row[by.column] = value("segment", inRow: index)?.rowText }
    return try? ReportCell(of: report, narrowed, column: column, row: row)
  }

  /// The value in a column; nil if the table has no such column.
  package func value(_ column: String, inRow index: Int) -> ReportValue? {
    columns.firstIndex { $0.name == column }.map { rows[index][$0] }
  }

  private func day(_ column: String, inRow index: Int) -> CalendarDate? {
    guard case .date(let text)? = value(column, inRow: index) else { return nil }
    return CalendarDate(iso8601: text)
  }
}

extension ReportValue {
  /// As the database writes it.
  fileprivate var rowText: String? {
    switch self {
    case .text(let text), .date(let text): text
    case .flag(let isSet): "\(isSet)"
    case .number, .time, .duration, .money, .fraction, .rate, .none: nil
    }
  }
}

/// How the items of a report add up to its numbers: by their measures, or row by row.
struct DrillDown: Sendable {
  struct Measures: Sendable {
    let added: [String]
    let takenOff: [String]
    /// The columns that the row shares with the items; nil: all that both have.
    let rowColumns: [String]?

    init(_ added: String..., minus takenOff: String..., rowColumns: [String]? = nil) {
      (self.added, self.takenOff, self.rowColumns) = (added, takenOff, rowColumns)
    }
  }

  /// By the names that the choice `column` accepts.
  let columns: [String: Measures]
  /// The column of the rows that ``columns`` has the values of; nil: they are columns.
  let rowColumn: String?

  static let all = DrillDown(columns: [:], rowColumn: nil)

  /// Columns whose items have the column's name as their measure, and sums of other measures.
  static func columns(_ names: String..., sums: [String: Measures] = [:]) -> DrillDown {
    let named = names.map { ($0, Measures($0)) }
    return DrillDown(columns: sums.merging(named) { sum, _ in sum }, rowColumn: nil)
  }

  /// A number is the sum of all items of its row; the rows have these values in a column.
  static func rows(_ column: String, _ values: String...) -> DrillDown {
    DrillDown(
      columns: Dictionary(uniqueKeysWithValues: values.map { ($0, Measures($0)) }),
      rowColumn: column)
  }
}

/// How the items of a number add up to it.
struct CellRule: Hashable, Sendable {
  /// The measures of the items that are added; nil: all items of the row.
  var added: [String]?
  var takenOff: [String] = []
  /// The column of the items that is summed up.
  var summed: String
  /// Only items at the catalogue's price.
  var isFromCatalogue = false
  /// An opening number is the stock at the end of the day before.
  var isOfDayBefore = false
  /// The columns that the row shares with its items.
  var rowColumns: [String]
}

extension Report {
  /// How the items of a column add up to it; nil for a rate, a time or an effect of exchange rates.
  func rule(_ column: String) -> CellRule? {
    guard let kind = columns.first(where: { $0.name == column })?.kind,
      kind == .number || kind == .money || kind == .fraction, let summed = summed(kind, column)
    else { return nil }
    var rule = CellRule(summed: summed, rowColumns: rowColumns)
    switch column {
    case "opening", "opening_milliunits", "mrr_twelfths":
      rule.added = stock.map { [$0] }
      rule.isOfDayBefore = column != "mrr_twelfths"
    case "from_catalogue_milliunits":
      rule.isFromCatalogue = true
      rule.added = drillDown.columns[priced]?.added
    case _ where drillDown.rowColumn == nil && !drillDown.columns.isEmpty:
      guard let measures = drillDown.columns[column] else { return nil }
      (rule.added, rule.takenOff) = (measures.added, measures.takenOff)
      rule.rowColumns = measures.rowColumns ?? rowColumns
    default: break
    }
    return rule
  }

  private func summed(_ kind: ReportColumn.Kind, _ column: String) -> String? {
    let names = Set(itemColumns.map(\.name))
    if names.contains("mrr_twelfths") { return "mrr_twelfths" }
    if kind == .money { return names.contains("amount_milliunits") ? "amount_milliunits" : nil }
    return names.contains(column) ? column : names.contains("number") ? "number" : nil
  }

  private var rowColumns: [String] {
    let names = Set(itemColumns.map(\.name))
    return columns.filter { $0.distinguishesRows && names.contains($0.name) }.map(\.name)
  }
}
