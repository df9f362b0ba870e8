import Subscriptions

/// A number of a report: what is counted in it can be listed, one by one, and adds up to it.
package struct ReportCell: Hashable, Sendable {
  package let report: Report
  /// The report's choices, narrowed down to the row.
  package let choices: ReportChoices
  /// Of the report's numbers.
  package let column: String
  /// What the row says of all that is counted in it, by the columns of the items; nil: nothing.
  package let row: [String: String?]

  /// Names a number again, as ``ReportTable/cell(_:inRow:of:)`` told it.
  ///
  /// - Throws: ``ReportFault`` for a column or a row that the report does not have.
  package init(
    of report: Report, _ choices: ReportChoices, column: String, row: [String: String?]
  ) throws {
    guard let rule = report.rule(column) else {
      throw ReportFault(.column, "must be a number of the report")
    }
    guard row.keys.allSatisfy(rule.rowColumns.contains) else {
      throw ReportFault(.column, "has no such row")
    }
    self.report = report
    self.choices = choices
    self.column = column
    self.row = row
  }

  /// How the items add up.
  var rule: CellRule {
    guard let rule = report.rule(column) else {
      preconditionFailure("A cell is made of a number of its report.")
    }
    return rule
  }
}

extension ReportTable {
  /// Finds what is counted in a number.
  ///
  /// Of amounts that were converted it is not told: their items are in their own currencies. And a
  /// row that stands for all products says nothing of them.
  ///
  /// - Parameters:
  ///   - column: The number's.
  ///   - index: The row's.
  ///   - choices: With which the report was asked for.
  /// - Returns: Nil for what is no sum of items.
  package func cell(_ column: String, inRow index: Int, of choices: ReportChoices) -> ReportCell? {
    guard !choices.listsItems, choices.reportingCurrency == nil,
      let rule = report.rule(column), value(column, inRow: index) != ReportValue.none
    else { return nil }
    var narrowed = choices
    // The same moment: what happens in the meantime is another number.
    if report.parameters.contains(.asOf) { narrowed.asOf = asOf }
    var rowColumns = rule.rowColumns
    if !report.splitsByProduct(choices) { rowColumns.removeAll { $0 == "product_id" } }
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
    return try? ReportCell(
      of: report, narrowed, column: column,
      row: Dictionary(
        uniqueKeysWithValues: rowColumns.map { ($0, value($0, inRow: index)?.rowText) }))
  }

  /// A value by the names of its column; nil: there is no such column.
  package func value(_ column: String, inRow index: Int) -> ReportValue? {
    columns.firstIndex { $0.name == column }.map { rows[index][$0] }
  }

  private func day(_ column: String, inRow index: Int) -> CalendarDate? {
    guard case .date(let text)? = value(column, inRow: index) else { return nil }
    return CalendarDate(iso8601: text)
  }
}

extension ReportValue {
  /// As the database writes it where a row is looked for again.
  fileprivate var rowText: String? {
    switch self {
    case .text(let text), .date(let text): text
    case .flag(let isSet): "\(isSet)"
    case .number, .time, .duration, .money, .fraction, .rate, .none: nil
    }
  }
}

/// How the items of a number add up to it.
struct CellRule: Sendable {
  /// The items' measures that are added; nil: all of the row.
  var added: [String]?
  /// Those that are taken off.
  var takenOff: [String] = []
  /// The column of the items that is summed up.
  var summed: String
  /// Only what is at the catalogue's price.
  var isFromCatalogue = false
  /// What was there before the row is what was there at the end of the day before it.
  var isOfDayBefore = false
  /// What the row has in common with all of its items.
  var rowColumns: [String]
}

extension Report {
  /// How the items of a column add up to its numbers; nil: they don't, for it is a share, a time,
  /// or what exchange rates did.
  func rule(_ column: String) -> CellRule? {
    let shape = self.shape
    guard let kind = shape.columns.first(where: { $0.name == column })?.kind,
      kind == .number || kind == .money || kind == .fraction,
      let summed = summed(kind, column)
    else { return nil }
    var rule = CellRule(summed: summed, rowColumns: rowColumns(of: column))
    switch column {
    case "opening":
      rule.added = [self == .trials ? "trials" : "active"]
      rule.isOfDayBefore = true
    case "opening_milliunits":
      rule.added = ["mrr"]
      rule.isOfDayBefore = true
    case "churned":
      (rule.added, rule.takenOff) = (["expired"], ["resubscribed"])
    case "mrr_twelfths":
      rule.added = ["mrr"]
    case "from_catalogue_milliunits":
      rule.isFromCatalogue = true
      rule.added = shape.cells[stockOfCatalogue]
    case _ where shape.cellColumn == "measure" && !shape.cells.isEmpty && self != .ownership:
      guard let measures = shape.cells[column] else { return nil }
      rule.added = measures
    default: break
    }
    return rule
  }

  /// Whether there is a row for each product, with these choices.
  func splitsByProduct(_ choices: ReportChoices) -> Bool {
    shape.parameters.contains(.byProduct) ? choices.splitsByProduct ?? (self == .refunds) : true
  }

  /// The column of money a part of which is at the catalogue's price.
  private var stockOfCatalogue: String {
    switch self {
    case .mrr: "mrr_milliunits"
    case .revenue: "charged_milliunits"
    case .refunds: "refunded_milliunits"
    default: "amount_milliunits"
    }
  }

  private func summed(_ kind: ReportColumn.Kind, _ column: String) -> String? {
    let names = Set(shape.itemColumns.map(\.name))
    if self == .mrr { return "mrr_twelfths" }
    if kind == .money { return names.contains("amount_milliunits") ? "amount_milliunits" : nil }
    return names.contains(column) ? column : names.contains("number") ? "number" : nil
  }

  private func rowColumns(of column: String) -> [String] {
    let names = Set(shape.itemColumns.map(\.name))
    let found = shape.columns.filter { column in
      switch column.kind {
      case .text, .date, .flag: names.contains(column.name)
      case .number, .time, .duration, .money, .fraction, .rate: false
      }
    }.map(\.name)
    // What was paid is compared with each of its refunds.
    return self == .refunds && column == "paid"
      ? found.filter { $0 == "from_day" || $0 == "product_id" } : found
  }
}
