import LedgerStorage
import Reports
import Subscriptions

extension DataTable {
  /// A report's rows, each number of which leads to what is counted in it.
  ///
  /// - Parameters:
  ///   - table: The answer.
  ///   - request: What was asked for.
  init(_ table: ReportTable, of request: ReportRequest) {
    let most = table.columns.map { column in
      column.kind == .number && request.report.hasBars
        ? table.rows.indices.compactMap { table.value(column.name, inRow: $0)?.integer }.max() ?? 0
        : 0
    }
    // A column without a value says nothing.
    let shown = table.columns.indices.filter { place in
      table.rows.isEmpty || table.rows.contains { $0[place] != .none }
    }
    self.init(
      caption: request.report.label,
      columns: shown.map {
        DataColumn(label: table.columns[$0].label, isNumber: table.columns[$0].isNumber)
      },
      rows: table.rows.enumerated().map { index, row in
        DataRow(
          cells: shown.map { place in
            let (column, value) = (table.columns[place], row[place])
            var cell = DataCell(
              text: value.words, isNumber: column.isNumber, isHeading: place == shown.first,
              isCode: column.kind == .text && column.name.hasSuffix("_id"))
            cell.href = table.cell(column.name, inRow: index, of: request.choices)
              .map(request.href)
            if let share = request.report.shares[column.name] {
              cell.take(share, table, index)
            }
            if most[place] > 0, let number = value.integer, number > 0 {
              cell.barWidth = Coordinate.text(Double(number) / Double(most[place]) * 100)
            }
            return cell
          })
      },
      emptyText: "Nothing is counted with these choices.",
      note: table.isCutShort
        ? "There are more rows than these \(table.rows.count), and so there is no chart: choose "
          + "fewer days, or take the file."
        : nil)
  }

  /// Things that are counted, each with where it leads to.
  init(_ items: ReportTable, caption: String, environment: Subscriptions.Environment) {
    self.init(
      caption: caption,
      columns: items.columns.map { DataColumn(label: $0.label, isNumber: $0.isNumber) },
      rows: items.rows.indices.map { index in
        DataRow(
          cells: zip(items.columns, items.rows[index]).map { column, value in
            var cell = DataCell(
              text: value.words, isNumber: column.isNumber,
              isCode: column.kind == .text && column.name.hasSuffix("_id"))
            guard let text = value.text, !text.isEmpty else { return cell }
            switch column.name {
            case "original_transaction_id":
              cell.href = PageAddress.originalTransaction(text, environment: environment.rawValue)
            case "account_id", "from_account_id", "previous_account_id":
              cell.href = PageAddress.account(text)
            case "order_id": cell.href = PageAddress.search(text)
            case "subject":
              cell.href = Self.line(
                named: text, byJob: items.value("cause", inRow: index)?.text)
            default: break
            }
            return cell
          })
      },
      emptyText: "Nothing is counted in this number.")
  }

  /// Where an original transaction is that a job of some kind is about, or an act, which names a
  /// transaction of it, too; nil: it is about something else.
  private static func line(named subject: String, byJob kind: String?) -> String? {
    if let kind {
      switch Job.Task(kind: kind, subject: subject) {
      case .pollLine(let line), .writeOwnership(let line):
        return PageAddress.originalTransaction(
          line.originalTransactionID.rawValue, environment: line.environment.rawValue)
      default: return nil
      }
    }
    let parts = subject.split(separator: "/", omittingEmptySubsequences: false).map(String.init)
    guard parts.count == 3, Subscriptions.Environment(rawValue: parts[0]) != nil,
      !parts[1].isEmpty
    else { return nil }
    return PageAddress.originalTransaction(parts[1], environment: parts[0])
  }

  /// Cohorts, from a row for each of their periods.
  init(cohortsOf table: ReportTable, of request: ReportRequest) {
    var cohorts: [Cohort] = []
    for index in table.rows.indices {
      guard case .date(let day)? = table.value("cohort", inRow: index) else { continue }
      if table.value("period", inRow: index) == .number(0) {
        cohorts.append(
          Cohort(
            label: String(day.prefix(7)),
            size: table.value("cohort_size", inRow: index)?.integer ?? 0, retained: [],
            sizeHref: table.cell("cohort_size", inRow: index, of: request.choices)
              .map(request.href)))
      }
      guard !cohorts.isEmpty else { continue }
      cohorts[cohorts.count - 1].retained.append(
        table.value("retained", inRow: index)?.integer)
      cohorts[cohorts.count - 1].hrefs.append(
        table.cell("retained", inRow: index, of: request.choices).map(request.href) ?? "")
    }
    self.init(cohorts: cohorts, caption: request.report.label, period: "Month")
  }
}

extension DataCell {
  /// A share is made of two numbers of its row, and says which.
  fileprivate mutating func take(
    _ share: (part: String, whole: String), _ table: ReportTable, _ index: Int
  ) {
    guard let part = table.value(share.part, inRow: index)?.integer,
      let whole = table.value(share.whole, inRow: index)?.integer,
      let exact = ReportValue.hundredthsOfPercent(of: part, in: whole)
    else { return }
    text = ChartUnit.share.text(exact)
    note = "\(ChartUnit.count.text(part)) of \(ChartUnit.count.text(whole))"
  }
}

extension Report {
  /// Whether the numbers of a column are parts of a whole, and are shown by their lengths too.
  fileprivate var hasBars: Bool {
    switch self {
    case .subscriptions, .unclaimed, .intake, .audit: true
    default: false
    }
  }
}
