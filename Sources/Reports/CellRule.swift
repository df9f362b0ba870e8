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
