import HTTPAPI
import HTTPTypes
import Hummingbird
import HummingbirdCore
import LedgerStorage
import NIOCore
import Reports
import Subscriptions

/// The pages of the reports, and of the items of each number.
struct ReportPageController: Controller {
  let api: API

  /// How often a page reloads while its report is being prepared.
  static let refreshSeconds = 2
  private static let itemsAtOnce = 100
  private static let farthest = 1_000_000

  private static let allReports = PageLink(label: "Reports", href: AdminURL.reports)

  @Sendable
  func list(_ request: Request, context: APIContext) async throws -> Response {
    let groups = Report.Group.allCases.map { group in
      (
        heading: group.rawValue,
        reports: Report.all.filter { $0.group == group }.map {
          (label: $0.label, href: AdminURL.report($0.name), summary: $0.summary)
        }
      )
    }
    return PageRenderer.response(
      (page: try await pages.frame("Reports", at: AdminURL.reports, context), groups: groups),
      "reports")
  }

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let report = try context.report()
    var asked = ReportRequest(report, query: request.uri.query, at: pages.now())
    asked.take(catalogue)
    let previous = asked.previousChoices
    if asked.faults.isEmpty, request.query["format"] == "csv" {
      do {
        return Response(
          try await api.reports.file(of: report, asked.choices, at: pages.now()),
          named: asked.fileName(report.name), logger: context.logger)
      } catch let fault as ReportFault {
        asked.note(fault)
      }
    }
    var tables: [ReportTable] = []
    var isWorking = false
    if asked.faults.isEmpty {
      // At the same time. The money of refunds is compared with all that was charged.
      async let before = outcome(report, previous)
      let choices = report == .refunds && asked.choices.by == nil ? asked.choices : nil
      async let revenue = outcome(.revenue, choices)
      for outcome in [await outcome(report, asked.choices), await before, await revenue] {
        switch outcome {
        case .answered(.table(let answer))?: tables.append(answer)
        case .failed(let fault as ReportFault)?: asked.note(fault)
        case .failed(let error)?: throw error
        case .working?: isWorking = true
        case .answered?, nil: break
        }
      }
    }
    var actions: ReportCellItems?
    if report == .audit, asked.faults.isEmpty {
      let cell = try ReportCell(of: report, asked.choices, column: "number", row: [:])
      switch await api.reportCoordinator.outcome(.items(cell, from: 0, limit: Self.itemsAtOnce)) {
      case .answered(.items(let items)): actions = items
      case .failed(let error): throw error
      case .answered, .working: isWorking = true
      }
    }
    let answers = isWorking || !asked.faults.isEmpty ? [] : tables
    return try await page(
      asked,
      form: ReportForm(
        asked, catalogue, currencies: try await currencies(for: report, in: tables)),
      answers.first, previous: answers.dropFirst().first { $0.report == report },
      revenue: answers.dropFirst().first { $0.report != report }, actions: actions,
      isWorking: asked.faults.isEmpty && isWorking, request, context)
  }

  /// The currencies of charges, products and exchange rates; none where amounts are not converted.
  private func currencies(for report: Report, in tables: [ReportTable]) async throws -> [String] {
    guard report.parameters.contains(.reportingCurrency) else { return [] }
    return Set(
      try await ledger.rates.currencies() + tables.flatMap(\.records).currencies
        + catalogue.products.compactMap(\.currency)
    ).sorted()
  }

  private func outcome(_ report: Report, _ choices: ReportChoices?) async
    -> ReportCoordinator.Outcome?
  {
    guard let choices else { return nil }
    return await api.reportCoordinator.outcome(.table(report, choices))
  }

  @Sendable
  func items(_ request: Request, context: APIContext) async throws -> Response {
    let report = try context.report()
    var asked = ReportRequest(report, query: request.uri.query, at: pages.now())
    asked.take(catalogue)
    do {
      guard asked.faults.isEmpty else { return try await refusal(of: asked, request, context) }
      let cell = try asked.cell()
      if asked.fields["format"] == "csv" {
        return Response(
          try await api.reports.file(of: cell, at: pages.now()),
          named: asked.fileName("\(report.name)-\(cell.column)"), logger: context.logger)
      }
      let offset = min(
        max(asked.fields["offset"].flatMap { Int($0.rawValue) } ?? 0, 0), Self.farthest)
      let question = ReportQuestion.items(cell, from: offset, limit: Self.itemsAtOnce)
      switch await api.reportCoordinator.outcome(question) {
      case .failed(let error): throw error
      case .answered(.items(let items)):
        guard let cohort = Self.cohort(of: cell) else {
          return try await page(items, of: asked, from: offset, context)
        }
        switch await api.reportCoordinator.outcome(.table(report, cohort)) {
        case .failed(let error): throw error
        case .answered(.table(let table)):
          return try await page(
            items, of: asked, from: offset, share: Self.share(cell, in: table), context)
        case .answered, .working:
          return try await page(asked, form: nil, nil, isWorking: true, request, context)
        }
      case .answered, .working:
        return try await page(asked, form: nil, nil, isWorking: true, request, context)
      }
    } catch let fault as ReportFault {
      asked.note(fault)
      return try await refusal(of: asked, request, context)
    }
  }

  /// The choices of the cohort's whole row, of whose size a number is shown as a share.
  private static func cohort(of cell: ReportCell) -> ReportChoices? {
    guard cell.report.hasCohorts, cell.column != "cohort_size", cell.choices.period != nil else {
      return nil
    }
    var choices = cell.choices
    choices.period = nil
    return choices
  }

  /// What the cohort's table shows instead of the number itself.
  private static func share(_ cell: ReportCell, in table: ReportTable) -> Property? {
    let row = table.records.first { row in
      row["period"]?.integer == cell.choices.period.map(Int64.init)
        && cell.row.allSatisfy { name, value in
          name == "cohort" || row[name == cell.choices.by?.column ? "segment" : name]?.text == value
        }
    }
    guard let row, row.integer("cohort_size") > 0 else { return nil }
    let size = row.integer("cohort_size")
    let sizeText = ChartUnit.count.text(size)
    if let retained = row["retained"]?.integer {
      let share = DataCell.retained(retained, of: size) ?? ""
      return Property("Retention", "\(ChartUnit.count.text(retained)) of \(sizeText) = \(share)")
    }
    guard let currency = row["currency"]?.text, let arpu = row["arpu_milliunits"]?.integer,
      let revenue = row["revenue_milliunits"]?.integer
    else { return nil }
    let unit = ChartUnit.money(currency: currency)
    return Property(
      "Revenue per subscription", "\(unit.number(revenue)) / \(sizeText) = \(unit.text(arpu))")
  }

  /// The report's form with the faults.
  private func refusal(of asked: ReportRequest, _ request: Request, _ context: APIContext)
    async throws -> Response
  {
    try await page(
      asked,
      form: ReportForm(
        asked, catalogue, currencies: try await currencies(for: asked.report, in: [])),
      nil, isWorking: false, request, context)
  }

  // MARK: Pages

  /// The page of a report, which reloads automatically while its table is being prepared.
  private func page(
    _ asked: ReportRequest, form: ReportForm?, _ table: ReportTable?, previous: ReportTable? = nil,
    revenue: ReportTable? = nil, actions: ReportCellItems? = nil, isWorking: Bool,
    _ request: Request, _ context: APIContext
  ) async throws -> Response {
    let report = asked.report
    let isRight = asked.faults.isEmpty
    var frame = try await pages.frame(report.label, at: AdminURL.reports, context)
    frame.trail = [Self.allReports]
    frame.actions = asked.knowledge(at: pages.now())
    if let actions, actions.items.isCutShort {
      frame.actions.append(
        PageLink(
          label: "All \(ChartUnit.count.text(actions.count)) actions",
          href: asked.href(actions.cell)))
    }
    if let table { frame.asOf = Moment(table.asOf) }
    if isWorking { frame.refreshSeconds = Self.refreshSeconds }
    if isRight {
      // The file of what the page begins with.
      let file = [("format", "csv")]
      frame.actions.append(
        PageLink(
          label: "CSV",
          href: actions.map {
            AdminURL.drillDown(report.name, choices: asked.query($0.cell) + file)
          } ?? AdminURL.report(report.name, choices: asked.choices.query(of: report) + file)))
    }
    var tables = table.map { asked.tables($0, previous: previous, revenue: revenue) } ?? []
    if let actions {
      if actions.items.rows.isEmpty { tables = [] }
      for index in tables.indices {
        (tables[index].caption, tables[index].isFolded) = ("Counts", true)
      }
      tables.insert(DataTable(latest: actions), at: 0)
    }
    return PageRenderer.response(
      (
        page: frame, name: report.name, summary: report.summary,
        definition: DefinitionText(
          try await api.reports.definitions()[report] ?? report.summary, of: report
        ).lines,
        notes: asked.notes(at: pages.now()), faults: asked.faultTexts(besides: form),
        advice: table.flatMap { Self.advice($0, previous: previous, asked.choices) },
        action: AdminURL.report(report.name),
        range: isRight ? asked.rangeText : nil,
        presets: isRight ? asked.presets : [],
        form: form, workingHref: isWorking ? request.uri.string : nil,
        headlines: table.map { ReportTotals.headlines($0, of: asked) } ?? [],
        // A chart would lack the latest rows.
        charts: table.map {
          $0.isCutShort
            ? []
            : ReportCharts(table: $0, request: asked, previous: previous, showsZeros: false)
              .pictures
        } ?? [],
        tables: tables
      ), "report", status: isRight ? .ok : .badRequest)
  }

  private func page(
    _ found: ReportCellItems, of asked: ReportRequest, from offset: Int, share: Property? = nil,
    _ context: APIContext
  ) async throws -> Response {
    let (report, cell) = (asked.report, found.cell)
    let label = report.columns.first { $0.name == cell.column }?.label(in: report) ?? cell.column
    // A count is of what its row names.
    let kind =
      cell.column != "number"
      ? label
      : ["state", "measure"].lazy.compactMap { name in
        cell.row[name]?.map { EnumText.label($0, in: name) }
      }.first
    let title = kind.map { "\(report.label): \($0)" } ?? report.label
    let entries = Count.text(Int(found.count), "entry", "entries")
    var frame = try await pages.frame(title, at: AdminURL.reports, context)
    frame.trail = [
      Self.allReports,
      PageLink(label: report.label, href: asked.origin(of: cell)),
    ]
    func address(_ more: [(name: String, value: String)]) -> String {
      AdminURL.drillDown(report.name, choices: asked.query(cell) + asked.originRange + more)
    }
    func address(from offset: Int) -> String {
      address(offset > 0 ? [("offset", "\(offset)")] : [])
    }
    func words(_ count: Int) -> String { ChartUnit.count.text(Int64(count)) }
    let last = words(offset + found.items.rows.count)
    let paging =
      offset > 0 || found.items.isCutShort
      ? Paging(
        text: "\(words(offset + 1))–\(last) of \(ChartUnit.count.text(found.count))",
        previousHref: offset > 0 ? address(from: max(0, offset - Self.itemsAtOnce)) : nil,
        nextHref: found.items.isCutShort ? address(from: offset + Self.itemsAtOnce) : nil) : nil
    let row = cell.row.sorted { $0.key < $1.key }.map { name, value in
      let isDay = report.columns.contains { $0.name == name && $0.kind == .date }
      let shown = value.map {
        name == "product_id"
          ? asked.productNames[$0] ?? $0
          : (isDay ? ReportValue.date($0) : .text($0)).label(in: name, of: report).text
      }
      return Property(
        report.columns.first { $0.name == name }?.label(in: report) ?? EnumText.sentence(name),
        shown ?? "none")
    }
    // On other pages there may be other values. Actions are sentences.
    let common = offset > 0 || report == .audit ? [] : found.items.commonColumns
    // The beginning of a subscription has no amount.
    let isOfCohort = cell.column == "cohort_size"
    let amounts = found.items.columns.filter { isOfCohort && $0.kind == .money }
    let shared = common.filter {
      cell.row[$0.name] == nil
        && !DataCell.usual.contains(found.items.value($0.name, inRow: 0)?.text)
    }.map { column in
      var value = found.items.value(column.name, inRow: 0)?.label(in: column.name, of: report).text
      if column.isProduct { value = value.flatMap { asked.productNames[$0] } ?? value }
      return "\(column.label(in: report)) \(value ?? "")"
    }
    let chosen = report.parameters.compactMap { parameter -> Property? in
      guard ![.from, .to, .days, .asOf, .timeZone, .bucket, .column].contains(parameter),
        let text = cell.choices.text(of: parameter)
      else { return nil }
      let name = parameter == .product ? asked.productNames[text] : nil
      return Property(parameter.label, text == "true" ? "yes" : name ?? text)
    }
    var table =
      report == .audit
      ? DataTable(actions: found.items, caption: "Actions")
      : DataTable(
        found.items, caption: "Items", environment: cell.choices.environment,
        without: common + amounts, productNames: asked.productNames)
    if !shared.isEmpty { table.note = "All of them: \(shared.joined(separator: " · "))." }
    let period = cell.choices.period.map { "Month \($0) of the cohort" }
    frame.actions = [PageLink(label: "CSV", href: address([("format", "csv")]))]
    return PageRenderer.response(
      (
        page: frame, number: found.sum.words,
        sentence: found.sum == .number(found.count)
          ? nil
          : found.sum.isMoney
            ? "The sum of \(entries) below." : "The sum of the counts of \(entries) below.",
        properties: [
          Property(
            "Period",
            (period ?? asked.range?.text).map { "\($0), \(cell.choices.timeZone)" }
              ?? asked.rangeText)
        ] + [share].compactMap(\.self) + row + chosen
          + (found.amounts.isEmpty || found.sum.isMoney || isOfCohort
            ? [] : [Property("Amount", found.amounts.map(\.words).joined(separator: ", "))]),
        table: table, paging: paging
      ), "drill-down")
  }
}

extension ReportPageController {
  /// What is to be done about missing exchange rates and about unclaimed charges; nil for a part of
  /// the charges, or an earlier moment.
  private static func advice(
    _ table: ReportTable, previous: ReportTable?, _ choices: ReportChoices
  ) -> (state: String, text: String, link: PageLink?)? {
    var compared = table
    compared.rows += previous?.rows ?? []
    if let note = compared.unconvertedNote {
      return (
        "warning", note.replacing(/[0-9]{4}-[0-9]{2}-[0-9]{2}/) { CalendarDate.name("\($0.0)") },
        PageLink(label: "Set rates", href: AdminURL.rates)
      )
    }
    guard table.report == .unclaimed, !table.isCutShort, choices.product == nil,
      choices.knownAt == nil, choices.environment == .production
    else { return nil }
    let waiting = table.records.filter { $0["has_ended"] == .flag(false) }
    let number = waiting.reduce(0) { $0 + $1.integer("number") }
    guard number > 0 else {
      return ("good", "Nothing to do: no paid charge is waiting for an account.", nil)
    }
    let amounts = waiting.currencies.map { currency in
      ChartUnit.money(currency: currency).text(
        waiting.filter { $0["currency"]?.text == currency }
          .reduce(0) { $0 + $1.integer("amount_milliunits") })
    }
    let worth = amounts.isEmpty ? "" : " (\(amounts.joined(separator: ", ")))"
    return (
      "warning",
      Count.text(Int(clamping: number), "paid charge", "paid charges")
        + "\(worth) without an account: the customer has paid and has no access. It is given when the "
        + "app submits the receipt; for a customer who asks, assign the charge by hand.",
      PageLink(label: "Assign charges", href: AdminURL.unclaimed)
    )
  }
}

extension ReportRequest {
  /// The faults that the form does not show at its fields, as sentences.
  fileprivate func faultTexts(besides form: ReportForm?) -> [String] {
    let fields = Set(((form?.fields ?? []) + (form?.rareFields ?? [])).map(\.name))
    return faults.filter { !fields.contains($0.key) }.sorted { $0.key < $1.key }.map { name, text in
      let parameter = ReportParameter(rawValue: name)
      return parameter == .column
        ? "The link to the number is not valid: it \(text)."
        : "\(parameter?.label ?? name) \(text)."
    }
  }

  /// Remarks on the choices.
  fileprivate func notes(at now: Timestamp) -> [String] {
    var notes: [String] = []
    // Actions are never changed.
    if report.parameters.contains(.knownAt), report != .audit {
      notes.append(
        choices.knownAt.map {
          "As the ledger knew it at \(Moment($0).text) UTC\(constancy(since: $0, at: now))"
        } ?? "As known now: later facts can still change past days.")
    }
    if choices.reportingCurrency != nil {
      notes.append(
        "Converted amounts have no lists of items: remove the conversion to see the items of each "
          + "number.")
    }
    return notes
  }

  /// Whether a report of a past moment can still change.
  private func constancy(since moment: Timestamp, at now: Timestamp) -> String {
    if now < moment { return ", which is in the future: until then it can change." }
    if report.isPartlyFrozen {
      return ", as far as the definition says; the rest is as known now."
    }
    return choices.reportingCurrency == nil
      ? ": this never changes." : ", with the exchange rates that are in the table now."
  }

  /// A link to the same report as known then, or now.
  fileprivate func knowledge(at now: Timestamp) -> [PageLink] {
    guard report.parameters.contains(.knownAt), faults.isEmpty else { return [] }
    var other = choices
    if choices.knownAt != nil {
      other.knownAt = nil
    } else {
      let end = choices.asOf ?? choices.to.map { Timestamp(endOf: $0, in: choices.timeZone) }
      guard let end, end < now else { return [] }
      other.knownAt = end
    }
    return [
      PageLink(
        label: choices.knownAt == nil
          ? "As known on \(other.knownAt.map { ($0 - .milliseconds(1)).day(in: choices.timeZone).name } ?? "")"
          : "As known now",
        href: href(other))
    ]
  }
}
