import HTTPTypes
import Hummingbird
import HummingbirdCore
import NIOCore
import Reports
import Subscriptions

/// The pages of the reports, and of the items of each number.
struct ReportPageController: Sendable {
  let pages: PageMaker
  let desk: ReportDesk
  let reports: ReportReader

  /// How often a page reloads while its report is being prepared.
  static let refreshSeconds = 2
  private static let itemsAtOnce = 100
  private static let farthest = 1_000_000

  @Sendable
  func list(_ request: Request, context: APIContext) async throws -> Response {
    let groups = Report.Group.allCases.map { group in
      ReportGroup(
        heading: group.rawValue,
        reports: Report.all.filter { $0.group == group }.map {
          ReportEntry(label: $0.label, href: PageAddress.report($0.name), summary: $0.summary)
        })
    }
    return pages.response(
      ReportListPage(
        page: try await pages.frame("Reports", at: PageAddress.reports, context), groups: groups),
      .reports)
  }

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let report = try context.report()
    var asked = ReportRequest(report, query: request.uri.query, at: pages.now())
    if asked.faults.isEmpty, Query(request.uri)?["format"] == "csv" {
      do {
        return try await file(report, asked.choices, context)
      } catch let fault as ReportFault {
        asked.note(fault)
      }
    }
    var outcome: ReportDesk.Outcome?
    if asked.faults.isEmpty {
      outcome = await desk.outcome(.table(report, asked.choices))
      if case .failed(let error)? = outcome {
        guard let fault = error as? ReportFault else { throw error }
        asked.note(fault)
        outcome = nil
      }
    }
    var page = try await self.page(asked, context)
    switch outcome {
    case .answered(.table(let table)): page.show(table, of: asked)
    case .working: page.wait(for: request)
    default: break
    }
    return pages.response(page, .report, status: asked.faults.isEmpty ? .ok : .badRequest)
  }

  @Sendable
  func items(_ request: Request, context: APIContext) async throws -> Response {
    let report = try context.report()
    let asked = ReportRequest(report, query: request.uri.query, at: pages.now())
    if let fault = asked.faults.min(by: { $0.key < $1.key }) {
      throw Problem.invalid(fault.key, fault.value)
    }
    do {
      let cell = try asked.cell()
      if asked.fields["format"] == "csv" { return try await file(cell, context) }
      let offset = min(
        max(asked.fields["offset"].flatMap { Int($0.rawValue) } ?? 0, 0), Self.farthest)
      let question = ReportQuestion.items(cell, from: offset, limit: Self.itemsAtOnce)
      switch await desk.outcome(question) {
      case .failed(let error): throw error
      case .answered(.items(let items)):
        return pages.response(
          try await page(items, of: asked, from: offset, context), .drillDown)
      case .answered, .working:
        var page = try await self.page(asked, context)
        page.form.fields = []
        page.wait(for: request)
        return pages.response(page, .report)
      }
    } catch let fault as ReportFault {
      throw Problem.invalid(
        fault.parameter == .column ? "cell" : fault.parameter.rawValue, fault.text)
    }
  }

  // MARK: Pages

  private func page(_ asked: ReportRequest, _ context: APIContext) async throws -> ReportPage {
    var frame = try await pages.frame(asked.report.label, at: PageAddress.reports, context)
    frame.trail = [PageLink(label: "Reports", href: PageAddress.reports)]
    frame.actions = asked.knowledge(at: pages.now())
    let definition = try await desk.definitions()[asked.report] ?? asked.report.summary
    return ReportPage(
      page: frame, name: asked.report.name, definition: [definition],
      notes: asked.notes(at: pages.now()), form: ReportForm(asked), tiles: [], charts: [],
      downloads: asked.faults.isEmpty
        ? [
          PageLink(
            label: "CSV",
            href: PageAddress.report(
              asked.report.name, choices: asked.query(asked.choices) + [("format", "csv")]))
        ] : [])
  }

  private func page(
    _ found: ReportCellItems, of asked: ReportRequest, from offset: Int, _ context: APIContext
  ) async throws -> DrillDownPage {
    let (report, cell) = (asked.report, found.cell)
    let query = asked.query(cell)
    let label = ReportColumn.sentence(cell.column.replacing("_milliunits", with: ""))
    var frame = try await pages.frame("\(report.label): \(label)", at: PageAddress.reports, context)
    frame.trail = [
      PageLink(label: "Reports", href: PageAddress.reports),
      PageLink(
        label: report.label,
        href: PageAddress.report(report.name, choices: asked.query(cell.choices))),
    ]
    func address(from offset: Int) -> String {
      PageAddress.drillDown(
        report.name, choices: query + (offset > 0 ? [("offset", "\(offset)")] : []))
    }
    let shown = found.items.rows.count
    func words(_ count: Int) -> String { ChartUnit.count.text(Int64(count)) }
    let paging =
      offset > 0 || found.items.isCutShort
      ? Paging(
        text: "\(words(offset + 1))–\(words(offset + shown)) of "
          + ChartUnit.count.text(found.count),
        previousHref: offset > 0 ? address(from: max(0, offset - Self.itemsAtOnce)) : nil,
        nextHref: found.items.isCutShort ? address(from: offset + Self.itemsAtOnce) : nil) : nil
    let rows = cell.row.sorted { $0.key < $1.key }.map { name, value in
      Property(
        label: ReportColumn.sentence(name), value: value.flatMap { $0.isEmpty ? nil : $0 } ?? "none"
      )
    }
    return DrillDownPage(
      page: frame, number: found.sum.words,
      sentence: "\(label), in the report “\(report.label)”: "
        + "the sum of \(Count.text(Int(found.count), "entry", "entries")) below.",
      properties: rows
        + asked.query(cell.choices).map { name, value in
          Property(label: ReportColumn.sentence(name), value: value)
        },
      table: DataTable(
        found.items, caption: "Items", environment: cell.choices.environment),
      paging: paging,
      downloads: [
        PageLink(
          label: "CSV",
          href: PageAddress.drillDown(report.name, choices: query + [("format", "csv")]))
      ])
  }

  // MARK: Files

  private func file(
    _ report: Report, _ choices: ReportChoices, _ context: APIContext
  ) async throws -> Response {
    Response(
      try await reports.file(of: report, choices, at: pages.now()),
      named: "\(report.name).csv", logger: context.logger)
  }

  private func file(_ cell: ReportCell, _ context: APIContext) async throws -> Response {
    Response(
      try await reports.file(of: cell, at: pages.now()),
      named: "\(cell.report.name)-\(cell.column).csv", logger: context.logger)
  }
}

extension ReportPage {
  fileprivate mutating func show(_ table: ReportTable, of request: ReportRequest) {
    page.asOf = Moment(table.asOf)
    // A chart would lack the latest rows.
    charts = table.isCutShort ? [] : ReportCharts(table: table).pictures
    self.table =
      table.columns.contains { $0.name == "cohort" }
      ? DataTable(cohortsOf: table, of: request) : DataTable(table, of: request)
  }

  /// Reloads automatically.
  fileprivate mutating func wait(for request: Request) {
    page.refreshSeconds = ReportPageController.refreshSeconds
    working = WorkingState(text: "The report is being prepared.", href: request.uri.string)
  }
}

extension ReportRequest {
  /// Remarks on the choices.
  fileprivate func notes(at now: Timestamp) -> [String] {
    var notes: [String] = []
    if report.parameters.contains(.knownAt) {
      notes.append(
        choices.knownAt.map {
          "As the ledger knew it at \(Moment($0).text) UTC\(constancy(since: $0, at: now))"
        } ?? "As known now: later facts can still change past days.")
    }
    if choices.environment == .sandbox { notes.append("Sandbox data: no real payments.") }
    if choices.reportingCurrency != nil {
      notes.append(
        "Converted amounts combine several currencies; remove the conversion to see the items of "
          + "each number.")
    }
    return notes
  }

  /// Whether what was known at a moment can change.
  private func constancy(since moment: Timestamp, at now: Timestamp) -> String {
    if now < moment { return ", which is in the future: until then it can change." }
    if report.isPartlyFrozen {
      return ", as far as the definition says; the rest is as known now."
    }
    return reportingCurrency == nil
      ? ": this never changes." : ", with the exchange rates that are in the table now."
  }

  private var reportingCurrency: String? { choices.reportingCurrency }

  /// A link to the same report as known then, or now.
  fileprivate func knowledge(at now: Timestamp) -> [PageLink] {
    guard report.parameters.contains(.knownAt), faults.isEmpty else { return [] }
    var other = choices
    if choices.knownAt != nil {
      other.knownAt = nil
      return [
        PageLink(
          label: "As known now", href: PageAddress.report(report.name, choices: query(other)))
      ]
    }
    let end = choices.asOf ?? choices.to.map { Timestamp(endOf: $0, in: choices.timeZone) }
    guard let end, end < now else { return [] }
    other.knownAt = end
    return [
      PageLink(
        label: "As known then", href: PageAddress.report(report.name, choices: query(other)))
    ]
  }
}

extension APIContext {
  /// The report that the path names.
  ///
  /// - Throws: ``Problem``.
  fileprivate func report() throws -> Report {
    guard let report = Report(exactly: try parameter(TextField(name: "name", maximumLength: 64)))
    else { throw Problem(.unknownReport, "No report with this name.") }
    return report
  }
}

/// The template `reports`: all reports by group.
struct ReportListPage: Sendable {
  var page: PageFrame
  var groups: [ReportGroup]
}

struct ReportGroup: Sendable {
  var heading: String
  var reports: [ReportEntry]
}

struct ReportEntry: Sendable {
  var label: String
  var href: String
  var summary: String
}

/// The template `report`: any report.
struct ReportPage: Sendable {
  var page: PageFrame
  /// As in `GET /v1/reports/{name}`.
  var name: String
  var definition: [String]
  /// Remarks on the choices.
  var notes: [String]
  var form: ReportForm
  /// Set while the report is being prepared: the page reloads automatically.
  var working: WorkingState?
  var tiles: [Tile]
  var charts: [ChartPicture]
  /// Nil while it is being prepared.
  var table: DataTable?
  var paging: Paging?
  var downloads: [PageLink]
}

/// The choices of a report.
struct ReportForm: Sendable {
  var action: String
  var fields: [ReportField]
  var hidden: [HiddenField]
}

/// One choice of a report; one of `isSelect`, `isCheckbox` and `isInput` is set.
struct ReportField: Sendable {
  /// Letters, digits and hyphens.
  var id: String
  var name: String
  var label: String
  var isSelect = false
  var isCheckbox = false
  var isInput = false
  /// `date`, `number` or `text`.
  var type = "text"
  var value = ""
  var isChecked = false
  var options: [ReportOption] = []
  /// Why the value is refused.
  var fault: String?
}

struct ReportOption: Sendable {
  var value: String
  var label: String
  var isSelected = false
}

/// The progress of a long report.
struct WorkingState: Sendable {
  /// For example `Counting 1,000,000 subscriptions`.
  var text: String
  /// 0 to 100; nil: not known.
  var percent: Int?
  /// This page, to reload it manually.
  var href: String
}

/// The template `drill-down`: the items of a number.
struct DrillDownPage: Sendable {
  var page: PageFrame
  /// As the report shows it.
  var number: String
  var sentence: String
  /// The row and the choices.
  var properties: [Property]
  var table: DataTable
  var paging: Paging?
  var downloads: [PageLink]
}
