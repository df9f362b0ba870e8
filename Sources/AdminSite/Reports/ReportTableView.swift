import Foundation
import LedgerStorage
import Reports
import Subscriptions

extension ReportRequest {
  /// By what the rows are split.
  var splitName: String { choices.by?.rawValue.replacing("_", with: " ") ?? "" }

  fileprivate func meaning(of column: ReportColumn) -> String? {
    column.name == "segment" ? choices.by?.rawValue : nil
  }

  /// The answer as people read it.
  ///
  /// - Parameter revenue: Of the same periods, for the report of refunds.
  func tables(_ table: ReportTable, previous: ReportTable?, revenue: ReportTable? = nil)
    -> [DataTable]
  {
    let comparison = ReportTotals.comparison(table, with: previous, of: self)
    let all = [comparison].compactMap(\.self) + allNumbers(table, revenue: revenue)
    guard choices.by != nil, let measure = report.measure, !table.isCutShort else { return all }
    let currencies: [String?] = measure.isMoney ? table.records.currencies : [nil]
    return currencies.map { DataTable(segmentsOf: table, currency: $0, of: self) }
      + all.map { table in
        var folded = table
        folded.caption = "\(table.caption): all numbers by \(splitName)"
        folded.isFolded = true
        return folded
      }
  }

  private func allNumbers(_ table: ReportTable, revenue: ReportTable?) -> [DataTable] {
    switch report {
    case .retention: return [DataTable(cohortsOf: table, of: self)]
    case .lifetimeValue where choices.by != nil && !table.isCutShort:
      var folded = DataTable(table, of: self, caption: "LTV: all numbers by \(splitName)")
      folded.isFolded = true
      let curves = ReportCharts(table: table, request: self).pictures.map(\.table)
      return zip(curves, table.records.currencies).map { $0.naming(currency: $1) } + [folded]
    case .lifetimeValue where !table.isCutShort && !table.rows.isEmpty:
      return table.records.currencies.flatMap { currency in
        [
          DataTable(
            of: "ltv_milliunits", totals: ["revenue_milliunits", "proceeds_milliunits"], "LTV",
            meaning:
              "Month 3 is the revenue per subscription from the first payment to the end of the "
              + "third month after it.", in: table, currency: currency, of: self),
          DataTable(
            of: "arpu_milliunits", itemized: "revenue_milliunits",
            "Revenue per subscription",
            meaning: "Month 3 is the revenue per subscription in the third month after it; all "
              + "subscriptions of the cohort count, ended ones too.", in: table, currency: currency,
            of: self),
        ]
      }
    case .subscriptions where !table.isCutShort: return [DataTable(statesOf: table, of: self)]
    case .ownership where !table.isCutShort && choices.by == nil:
      let measures = Set(table.records.compactMap { $0["measure"]?.text }).sorted()
      return measures.isEmpty
        ? [DataTable(ownership: nil, of: table, self)]
        : measures.map { DataTable(ownership: $0, of: table, self) }
    case .intake:
      // What is open now has no day.
      return [("Open now", true), ("In the period", false)].map { caption, isOpen in
        var shown = DataTable(
          table, of: self, caption: caption,
          rows: {
            ($0.periodStart == nil) == isOpen && $0["measure"]?.text != Self.listed
          })
        let listed = table.records.filter { $0["measure"]?.text == Self.listed }.sum(of: "number")
        if isOpen {
          shown.emptyText = "Nothing waits."
        } else if let listed, listed > 0 {
          shown.note =
            "Apple's history, which is read repeatedly, listed "
            + "\(Count.text(Int(listed), "notification"))."
        }
        return shown
      }
    case .revenue:
      var folded = DataTable(
        table, of: self, caption: "Trials, offers, and refunds by the date of the purchase",
        columns: { !$0.isNumber || Self.secondary.contains($0.name) })
      folded.isFolded = true
      return [
        DataTable(table, of: self, columns: { !Self.secondary.contains($0.name) }), folded,
      ]
    case .refunds:
      var refunds = DataTable(table, of: self, rows: { $0["days_after"]?.text != nil })
      refunds.note =
        refunds.note
        ?? (refundedShares(table, revenue) + [commonReason(table)].compactMap(\.self) + [
          "Products and periods without refunds are not listed."
        ])
        .joined(separator: " ")
      // Amounts of several currencies have no sum.
      guard choices.by == nil, !table.isCutShort, table.records.currencies.count < 2
      else { return [refunds] }
      var months = DataTable(
        table, of: self, columns: { !["days_after", "reason"].contains($0.name) },
        rows: { $0["days_after"]?.text != nil })
      (months.note, refunds.note) = (refunds.note, nil)
      refunds.caption = "By days after the purchase, and by reason"
      refunds.isFolded = true
      return [months, refunds]
    case .orders where !table.isCutShort:
      let ofCharges: Set<String> = ["paid_without_order", "not_delivered"]
      var charges = DataTable(
        table, of: self, caption: "Charges, by their own date",
        columns: { !$0.isNumber || ofCharges.contains($0.name) })
      charges.note =
        "All charges of these days, with and without an order: they do not add up with the orders. "
        + "Customers may have what your server has not reported as delivered."
      return [
        DataTable(
          table, of: self, caption: "Orders, by the date of the order",
          columns: { !ofCharges.contains($0.name) }), charges,
      ]
    case .unclaimed where !table.isCutShort:
      let parts: [(caption: String, wasOver: Bool, hasEnded: Bool, note: String?)] = [
        ("Waiting for an account", false, false, nil),
        ("Ended since", false, true, "No access is left to give: assign those asked about."),
        (
          "Ended before they were first seen", true, true,
          "The history that came with a first receipt: it will not be claimed. Nothing to do."
        ),
      ]
      return parts.compactMap { caption, wasOver, hasEnded, note in
        // Each with a total of its own.
        let part = table.part {
          $0["was_over"] == .flag(wasOver) && $0["has_ended"] == .flag(hasEnded)
        }
        if hasEnded, part.rows.isEmpty { return nil }
        var shown = DataTable(
          part, of: self, caption: caption,
          columns: { !["was_over", "has_ended"].contains($0.name) })
        shown.emptyText = "None."
        shown.note = note ?? shown.note
        return shown
      }
    default: return [DataTable(table, of: self)]
    }
  }

  /// The reason that Apple gave for all refunds; nil if there are several.
  private func commonReason(_ table: ReportTable) -> String? {
    let reasons = Set(table.records.compactMap { $0["reason"]?.text })
    guard reasons.count == 1, let reason = reasons.first else { return nil }
    return "Reason of all: \(EnumText.label(reason, in: "reason"))."
  }

  /// What part of the money charged in the periods that have ended was refunded, in each currency.
  private func refundedShares(_ table: ReportTable, _ revenue: ReportTable?) -> [String] {
    guard let revenue, !revenue.isCutShort, !table.isCutShort, choices.by == nil else { return [] }
    return revenue.records.currencies.compactMap { currency in
      let unit = ChartUnit.money(currency: currency)
      guard let charged = ReportTotals.sum("charged_milliunits", revenue, in: currency, of: self),
        let refunded = ReportTotals.sum("refunded_milliunits", table, in: currency, of: self)
          .map({ Int64(clamping: $0.magnitude) }),
        let share = ReportValue.hundredthsOfPercent(of: refunded, in: charged)
      else { return nil }
      return "Refunded \(unit.number(refunded)) of \(unit.text(charged)) charged: "
        + ChartUnit.share.text(share) + "."
    }
  }

  /// What Apple's history had, which is no failure.
  private static let listed = "notifications_listed"

  /// The columns of revenue below its table.
  static let secondary: Set<String> = [
    "offers", "trials", "family_shared", "from_catalogue_milliunits", "refunds_of_charges",
    "refunded_of_charges_milliunits", "net_by_charge_milliunits",
  ]
}

extension DataTable {
  /// Some rows of a report, each number with a link to its items, and their total.
  init(
    _ table: ReportTable, of request: ReportRequest, caption: String? = nil,
    columns isShown: (ReportColumn) -> Bool = { _ in true },
    rows isListed: (ReportRow) -> Bool = { _ in true }
  ) {
    let records = table.records.filter(isListed)
    let hasMoney = table.columns.contains { $0.kind == .money }
    let shown = table.columns.indices.filter { place in
      let name = table.columns[place].name
      let values = records.map { table.rows[$0.index][place] }
      // Columns that say nothing of their own, those without any value, and rare ones without a number.
      return isShown(table.columns[place])
        && !["to_day", "is_partial", "mrr_twelfths", "cohort_started"].contains(name)
        // Said in the cells of the product and the amount.
        && !(table.report == .renewalsDue
          && ["renews_as", "from_catalogue_milliunits"].contains(name))
        && (!name.hasSuffix("_wait_ms") || values.contains { $0.integer != 0 })
        && (name != "currency" || !hasMoney)
        && (name != "segment" || request.choices.by != nil)
        && (!["environment", "bundle_id", "reason"].contains(name) || Set(values).count > 1)
        // Below the cause, so that all columns fit.
        && (name != "last_detail" || records.allSatisfy { $0["cause"]?.text == nil })
        && (name != "first_at" || records.contains { $0[name] != $0["last_at"] })
        && (values.isEmpty || values.contains { $0 != .none })
        && (!table.columns[place].isRare(in: table.report) || values.contains { $0.integer != 0 })
        && (name != "from_day" || request.bucket != nil)
    }
    let columns = Self.ordered(shown.map { table.columns[$0] }, in: table.report)
    let periods = Dictionary(
      uniqueKeysWithValues: ReportPeriods(table, of: request).all.map { ($0.from, $0) })
    self.init(
      caption: caption ?? request.report.label,
      columns: columns.map { DataColumn($0, of: table.report, as: request.meaning(of: $0)) },
      rows: records.map { row in
        let period = row["from_day"] == nil ? nil : row.periodStart.flatMap { periods[$0] }
        return DataRow(
          cells: columns.map { column in
            let value = row[column.name] ?? ReportValue.none
            var cell = DataCell(
              value, of: column, as: request.meaning(of: column), in: table.report)
            if column.name == "from_day", let period { cell.take(period) }
            if column.isProduct || request.meaning(of: column) == "product" {
              cell.takeName(from: request.productNames)
            }
            if column.name == "cause" {
              // Of several, the others may have other details.
              let lead = row.integer("number") > 1 ? "latest: " : ""
              cell.note = row["last_detail"]?.label(in: "last_detail", of: table.report).text
                .nonEmpty.map { lead + $0 }
            }
            if table.report == .renewalsDue { cell.note = row.renewalNote(on: column) }
            cell.isHeading = column == columns.first
            // Without a text, a link would have no name.
            if !cell.text.isEmpty {
              cell.href = table.cell(column.name, inRow: row.index, of: request.choices)
                .map(request.href)
            }
            if cell.isNumber, value.integer == 0 {
              (cell.href, cell.isNil) = (nil, true)
            }
            if let share = request.report.shares[column.name] {
              cell.take(share) { row[$0]?.integer }
            }
            return cell
          }, rowClass: period?.isUnfinished == true ? "unfinished" : nil)
      }, emptyText: "No data for these filters.",
      note: table.isCutShort
        ? "Only the first \(table.rows.count) rows are shown, without a chart: choose fewer days, "
          + "or download the file."
        : nil)
    if [.refunds, .renewalsDue].contains(table.report), !table.isCutShort, !columns.isEmpty {
      // Without what tells the rows of a period apart, there is one row for each.
      let isSummed = table.report == .refunds && !columns.contains { $0.name == "days_after" }
      rows = ReportTotals.withSubtotals(
        rows, of: records, table, columns, of: request, alone: isSummed)
    }
    addEmptyPeriods(periods, records, of: table, columns)
    let isRounded = rows.contains { $0.cells.contains { $0.isNumber && $0.identifier != nil } }
    if !rows.isEmpty { rows += ReportTotals.rows(table, columns, of: request) }
    if hasMoney, isRounded, note == nil {
      note = "Amounts are rounded for display: totals add up the exact ones."
    }
    let currencies = records.currencies
    if hasMoney, currencies.count == 1, let currency = currencies.first {
      self.caption += ", \(currency)"
      self = naming(currency: currency)
    }
  }

  /// Adds rows of 0 for the periods without numbers; a table that has nothing else is empty.
  private mutating func addEmptyPeriods(
    _ periods: [String: ReportPeriods.Period], _ records: [ReportRow], of table: ReportTable,
    _ columns: [ReportColumn]
  ) {
    guard columns.first?.name == "from_day", !table.isCutShort else { return }
    let numbers = rows.flatMap(\.cells).filter(\.isNumber)
    if numbers.allSatisfy({ $0.isNil || $0.text.isEmpty }) {
      (rows, emptyText) = ([], "None in this period.")
      return
    }
    guard ![.audit, .refunds].contains(table.report) else { return }
    let currencies = records.currencies
    let amount =
      currencies.count > 1 ? "" : ChartUnit.money(currency: currencies.first ?? "").number(0)
    let cells = columns.dropFirst().map { column in
      DataCell(
        text: column.kind == .number ? "0" : column.kind == .money ? amount : "",
        isNumber: column.isNumber, isNil: true)
    }
    let found = Dictionary(grouping: zip(records, rows)) { $0.0.periodStart ?? "" }
    rows = periods.values.sorted { $0.from < $1.from }.flatMap { period in
      if let found = found[period.from] { return found.map(\.1) }
      var heading = DataCell(text: "", isHeading: true)
      heading.take(period)
      return [
        DataRow(cells: [heading] + cells, rowClass: period.isUnfinished ? "unfinished" : nil)
      ]
    }
  }

  /// The table with its amounts in the currency that its caption names, instead of in each cell.
  fileprivate func naming(currency: String) -> DataTable {
    var table = self
    for row in rows.indices {
      for place in rows[row].cells.indices where rows[row].cells[place].isNumber {
        table.rows[row].cells[place].text.replace(" \(currency)", with: "")
      }
    }
    return table
  }

  /// The items of a number with links: the date, the account and the amount first.
  ///
  /// - Parameter common: The columns that are left out, such as those with one value for all items.
  init(
    _ items: ReportTable, caption: String, environment: Subscriptions.Environment,
    without common: [ReportColumn] = [], productNames: [String: String] = [:]
  ) {
    let isOfCharges = items.columns.contains { $0.name == "transaction_id" }
    let places = items.columns.indices.filter { place in
      let name = items.columns[place].name
      let isAlike = Set(items.rows.map { $0[place] }).count < 2
      return !common.contains(items.columns[place])
        && (items.rows.contains { ![.none, .text("")].contains($0[place]) }
          || isOfCharges && name == "account_id")
        && (name != "currency"
          || !items.columns.contains { ["amount_milliunits", "mrr_twelfths"].contains($0.name) })
        // The heading says what all items have in common.
        && name != "from_day" && !items.repeatsDate(in: items.columns[place])
        && !(isAlike && ["measure", "number", "day"].contains(name))
    }.sorted { (Self.rank(items.columns[$0]), $0) < (Self.rank(items.columns[$1]), $1) }
    let rare = places.filter { Self.details.contains(items.columns[$0].name) }
    // A transaction leads to its original one.
    let hasTransactions = places.contains { items.columns[$0].name == "transaction_id" }
    let shown = places.filter { place in
      !rare.contains(place)
        && !(hasTransactions && items.columns[place].name == "original_transaction_id")
    }
    let details = items.rows.indices.map { DataCell(details: rare, ofItem: $0, in: items) }
    let hasDetails = details.contains { !$0.text.isEmpty }
    self.init(
      caption: caption,
      columns: shown.map { place in
        let column = items.columns[place]
        let isOfCharge = items.report == .revenue && column.name == "origin_at"
        return DataColumn(column, of: items.report, as: isOfCharge ? "charged" : nil)
      } + (hasDetails ? [DataColumn(label: "Details")] : []),
      rows: items.rows.indices.map { index in
        DataRow(
          cells: shown.map { place -> DataCell in
            let (column, value) = (items.columns[place], items.rows[index][place])
            var cell = DataCell(value, of: column, in: items.report)
            cell.isHeading = place == shown.first
            if column.isProduct { cell.takeName(from: productNames) }
            if Self.longIDs.contains(column.name), cell.text.count > Self.longestID {
              (cell.text, cell.identifier) = ("…\(cell.text.suffix(Self.longestID))", cell.text)
            }
            if column.name == "mrr_twelfths", let twelfths = value.integer,
              let currency = items.value("currency", inRow: index)?.text
            {
              cell.text = ChartUnit.money(currency: currency).text(twelfths / 12)
            }
            guard let text = value.text, !text.isEmpty else {
              let isOfCharge =
                isOfCharges && column.name == "account_id"
                && items.value("transaction_id", inRow: index) != ReportValue.none
              if isOfCharge { cell = DataCell(text: "unclaimed") }
              return cell
            }
            switch column.name {
            case "original_transaction_id", "transaction_id":
              if let original = items.value("original_transaction_id", inRow: index)?.text {
                cell.href = AdminURL.originalTransaction(
                  original, environment: environment.rawValue)
                if original != text {
                  cell.identifier = "\(text), original transaction \(original)"
                }
              }
            case "account_id", "from_account_id", "previous_account_id":
              cell.href = AdminURL.account(text)
            case "order_id": cell.href = AdminURL.search(text)
            case "subject":
              cell.href = Self.line(named: text, byJob: items.value("cause", inRow: index)?.text)
              let measure = items.value("measure", inRow: index)?.text
              if Self.searched.contains(measure), UUID(uuidString: text) != nil {
                cell.href = AdminURL.search(text)
              }
              if text.hasPrefix("v1:") {
                (cell.text, cell.identifier) = ("Notification (version 1)", text)
              }
            default: break
            }
            return cell
          } + (hasDetails ? [details[index]] : []))
      },
      emptyText: "No items.")
  }

  /// What intake counts of submissions and notifications, whose IDs lead to accounts and original
  /// transactions.
  private static let searched: [String?] = [
    "apple_failures", "submissions_open", "submissions_rejected", "notifications_missed",
    "notifications_open", "notifications_rejected",
  ]
  /// The columns of items that share one column of the page.
  private static let details = [
    "storefront", "offer_type", "offer_id", "period_type", "ownership_type", "price_source",
  ]
  /// Identifiers that are shown by their ends, which differ; tooltips have all of them.
  private static let longIDs = ["original_transaction_id", "transaction_id", "order_id"]
  private static let longestID = 10

  /// The columns in the order in which they are shown.
  static func ordered(_ columns: [ReportColumn], in report: Report) -> [ReportColumn] {
    columns.enumerated().sorted {
      (rank($0.element, in: report), $0.offset) < (rank($1.element, in: report), $1.offset)
    }.map(\.element)
  }

  /// The place of a report's column: on a phone, the first few are seen.
  private static func rank(_ column: ReportColumn, in report: Report) -> Int {
    let first: [String] =
      switch report {
      case .churn: ["from_day", "segment", "active_at_start", "churned", "churn_rate"]
      case .unclaimed: ["product_id", "amount_milliunits", "number", "age"]
      default: ["from_day", "segment"] + report.columns.map(\.name).filter(report.isStock)
      }
    let isLast =
      ["environment", "bundle_id"].contains(column.name)
      || report == .revenue && ReportRequest.secondary.contains(column.name)
    return first.firstIndex(of: column.name) ?? (isLast ? first.count + 1 : first.count)
  }

  /// The place of an item's column: what is read first has the lowest.
  private static func rank(_ column: ReportColumn) -> Int {
    let first = [
      "at", "refunded_at", "since", "due_at", "first_seen_at", "from_account_id", "account_id",
      "amount_milliunits", "mrr_twelfths", "product_id", "charged_at",
    ]
    return first.firstIndex(of: column.name) ?? first.count
  }

  /// The page of the original transaction that a job's or an action's subject names, or nil.
  private static func line(named subject: String, byJob kind: String?) -> String? {
    if let kind {
      guard [Job.Kind.pollStatus, .setAppAccountToken].contains(where: { $0.rawValue == kind }),
        let line = OriginalTransactionKey(subject: subject)
      else { return nil }
      return AdminURL.originalTransaction(
        line.originalTransactionID.rawValue, environment: line.environment.rawValue)
    }
    let parts = subject.split(separator: "/", omittingEmptySubsequences: false).map(String.init)
    guard parts.count == 3, Subscriptions.Environment(rawValue: parts[0]) != nil,
      !parts[1].isEmpty
    else { return nil }
    return AdminURL.originalTransaction(parts[1], environment: parts[0])
  }
}

extension ReportColumn {
  /// Whether it is left out if all of its numbers are 0.
  func isRare(in report: Report) -> Bool {
    let rare = [
      "from_catalogue_milliunits", "currency_changed_milliunits", "exchange_milliunits",
      "family_shared",
    ]
    return rare.contains(name)
      // The causes.
      || report == .churn && kind == .number && !["active_at_start", "churned"].contains(name)
      || report == .trials && name == "recovered"
  }
}

extension ReportColumn {
  private static let gains: Set<String> = [
    "new", "active", "mrr", "charges", "charged", "net by charge", "net by refund", "proceeds",
    "converted", "recovered", "resubscribed", "reactivated", "expansion", "paid", "switched on",
    "net change",
  ]
  /// Whether growth is good news; nil: neither good nor bad.
  var isMoreGood: Bool? {
    if Self.gains.contains(title) { return true }
    let series = title.prefix(1).uppercased() + title.dropFirst()
    return title.hasPrefix("refund") || ReportCharts.losses.contains(series) ? false : nil
  }
}

extension ReportColumn {
  var isProduct: Bool { ["product_id", "charged_product_id", "renews_as"].contains(name) }
}

extension DataColumn {
  init(_ column: ReportColumn, of report: Report, as meaning: String? = nil) {
    self.init(
      label: meaning.map(EnumText.sentence) ?? column.label(in: report), isNumber: column.isNumber,
      identifier: column.name)
  }
}

extension DataCell {
  init(
    _ value: ReportValue, of column: ReportColumn, as meaning: String? = nil, in report: Report
  ) {
    let label = value.label(in: meaning ?? column.name, of: report)
    self.init(
      text: label.text, isNumber: column.isNumber,
      isCode: column.kind == .text && (column.name.hasSuffix("_id") || column.name == "renews_as"),
      identifier: label.identifier)
  }

  /// Values that most charges have.
  static let usual: [String?] = ["normal", "purchased", "app_store"]

  /// The values of some columns in one cell, as in `USA · Trial`; what most charges have is in the
  /// tooltip only, with the names of the columns.
  fileprivate init(details: [Int], ofItem index: Int, in items: ReportTable) {
    let texts = details.map { place in
      let (column, value) = (items.columns[place], items.rows[index][place])
      return (
        name: column.label(in: items.report),
        value: value.label(in: column.name, of: items.report).text,
        isUsual: Self.usual.contains(value.text)
      )
    }.filter { !$0.value.isEmpty }
    self.init(
      text: texts.filter { !$0.isUsual }.map(\.value).joined(separator: " · "),
      identifier: texts.map { "\($0.name): \($0.value)" }.joined(separator: ", "))
  }

  /// Shows a product's name instead of its ID.
  mutating func takeName(from names: [String: String]) {
    guard let name = names[text] else { return }
    (text, identifier, isCode) = (name, text, false)
  }

  mutating func take(_ period: ReportPeriods.Period) {
    text = period.range.text
    note = period.isUnfinished ? "so far" : period.part
    identifier = "\(period.range.first.text) – \(period.range.last.text)"
  }

  /// Shows a share of those whose outcome is known, with the two numbers that it is made of.
  mutating func take(_ share: Report.Share, _ number: (String) -> Int64?) {
    guard let part = number(share.part), let whole = number(share.whole), whole > 0 else { return }
    let open =
      share.settled.isEmpty ? 0 : share.settled.reduce(whole) { $0 - (number($1) ?? 0) }
    // While all are open there is no rate.
    text =
      ReportValue.hundredthsOfPercent(of: part, in: whole - open).map(ChartUnit.share.text) ?? ""
    note =
      open < whole
      ? "\(ChartUnit.count.text(part)) \(share.relation) \(ChartUnit.count.text(whole - open))"
      : nil
    if open > 0 {
      let text = ChartUnit.count.text(open)
      note = note.map { "\($0) settled, \(text) open" } ?? "\(text) open"
    }
  }
}

/// A row of a report, whose values are found by the names of their columns.
struct ReportRow: Sendable {
  let table: ReportTable
  let index: Int

  subscript(column: String) -> ReportValue? { table.value(column, inRow: index) }

  /// A number, or 0 if there is none.
  func integer(_ column: String) -> Int64 { self[column]?.integer ?? 0 }
}

extension Sequence<ReportRow> {
  /// The currencies of the amounts, each once, in their order.
  var currencies: [String] { Set(compactMap { $0["currency"]?.text }).sorted() }

  /// Nil if it has too many digits.
  func sum(of column: String) -> Int64? {
    reduce(Int64?.some(0)) { sum, row in
      guard let sum = sum?.addingReportingOverflow(row.integer(column)), !sum.overflow else {
        return nil
      }
      return sum.partialValue
    }
  }
}

extension ReportTable {
  var records: [ReportRow] { rows.indices.map { ReportRow(table: self, index: $0) } }

  /// Some of the rows.
  fileprivate func part(_ isListed: (ReportRow) -> Bool) -> ReportTable {
    var part = self
    part.rows = records.filter(isListed).map { rows[$0.index] }
    return part
  }

  /// The columns, such as the storefront, in which all of several items have one value.
  var commonColumns: [ReportColumn] {
    guard rows.count > 1, !isCutShort else { return [] }
    return columns.indices.filter { place in
      columns[place].kind == .text && rows[0][place].text?.isEmpty == false
        && !["account_id", "currency", "measure", "subject"].contains(columns[place].name)
        && rows.allSatisfy { $0[place] == rows[0][place] }
    }.map { columns[$0] }
  }

  /// The items of a column's sum; nil unless the rows are all those that have the same in common.
  func cell(
    _ column: String, sumOf rows: [ReportRow], among all: [ReportRow], of choices: ReportChoices
  ) -> ReportCell? {
    guard let first = rows.first, let cell = cell(column, inRow: first.index, of: choices) else {
      return nil
    }
    if rows.count == 1 { return cell }
    func isShared(_ name: String, by row: ReportRow) -> Bool {
      let name = name == choices.by?.column ? "segment" : name
      return row[name] == first[name]
    }
    let shared = cell.row.filter { name, _ in rows.allSatisfy { isShared(name, by: $0) } }
    guard
      all.count(where: { row in shared.keys.allSatisfy { isShared($0, by: row) } }) == rows.count
    else { return nil }
    var narrowed = cell.choices
    if let from = rows.compactMap({ $0["from_day"]?.text }).min(),
      let to = rows.compactMap({ $0["to_day"]?.text }).max()
    {
      (narrowed.from, narrowed.to) = (CalendarDate(iso8601: from), CalendarDate(iso8601: to))
    }
    return try? ReportCell(of: report, narrowed, column: column, row: shared)
  }

  /// Whether a column has each item's date once more, such as the start of what begins then.
  fileprivate func repeatsDate(in column: ReportColumn) -> Bool {
    column.kind == .time && column.name != "at"
      && records.allSatisfy { $0["at"] == $0[column.name] }
  }
}

extension ReportValue {
  var words: String {
    switch self {
    case .text(let text): text
    case .number(let number): ChartUnit.count.text(number)
    case .time(let moment): Moment(moment).text
    case .duration(1..<1000): "under 1 s"
    case .duration(let milliseconds):
      (milliseconds < 0 ? "−" : "")
        + Age.text(.milliseconds(Int64(clamping: milliseconds.magnitude)))
    case .money(let milliunits, let currency?): ChartUnit.money(currency: currency).text(milliunits)
    case .money(let milliunits, nil):
      // Without the space before a missing currency.
      String(ChartUnit.money(currency: "").text(milliunits).dropLast())
    case .date(let text): CalendarDate.name(text)
    case .fraction(let text): text
    case .rate(let text): ChartUnit.share.text(Self.hundredthsOfPercent(text))
    case .flag(let isSet): isSet ? "yes" : "no"
    case .none: ""
    }
  }

  /// A count, or an amount in milliunits.
  var integer: Int64? {
    switch self {
    case .number(let number), .money(let number, _): number
    default: nil
    }
  }

  var isMoney: Bool {
    if case .money = self { true } else { false }
  }

  /// A text or a day; nil for other values.
  var text: String? {
    switch self {
    case .text(let text), .date(let text): text
    default: nil
    }
  }

  var time: Timestamp? {
    if case .time(let moment) = self { moment } else { nil }
  }

  static func hundredthsOfPercent(of part: Int64, in whole: Int64) -> Int64? {
    share(of: part, in: whole, parts: 10_000)
  }

  /// A part of a whole in so many parts, rounded half away from zero; only the whole has all of them.
  static func share(of part: Int64, in whole: Int64, parts: UInt64) -> Int64? {
    let (doubled, overflow) = part.magnitude.multipliedReportingOverflow(by: 2 * parts)
    guard whole > 0, !overflow else { return nil }
    let rounded = (doubled / UInt64(whole) + 1) / 2
    let shown = rounded == parts && part.magnitude < whole ? parts - 1 : rounded
    return Int64(clamping: shown) * (part < 0 ? -1 : 1)
  }

  /// Rounds the database's six digits of a share to the four that are shown.
  private static func hundredthsOfPercent(_ decimal: String) -> Int64 {
    let millionths = Int64(decimal.replacing(".", with: "")) ?? 0
    return hundredthsOfPercent(of: millionths, in: 1_000_000) ?? 0
  }
}

extension ReportRow {
  /// What a row of the renewals due says of a cell: the other product or the catalogue's price.
  fileprivate func renewalNote(on column: ReportColumn) -> String? {
    switch column.name {
    case "product_id":
      self["renews_as"]?.text.flatMap { next in
        next == self["product_id"]?.text ? nil : "renews as \(next)"
      }
    case "amount_milliunits":
      integer("from_catalogue_milliunits") == 0 ? nil : "at catalogue prices"
    default: nil
    }
  }
}
