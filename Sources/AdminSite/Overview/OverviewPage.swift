import HTTPAPI
import Hummingbird
import LedgerStorage
import Reports
import Subscriptions

struct OverviewPageController: Controller {
  let api: API
  let checkup: Checkup

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    guard context.caller?.role == .admin else {
      return .redirect(to: AdminURL.customers, type: .normal)
    }
    async let faults = checkup.recentFaults()
    async let isHistoryKnown = ledger.maintenance.hasComparedNotifications()
    var answers = await OverviewAnswers.ask(api.reportCoordinator)
    answers.isHistoryUnknown = try await !isHistoryKnown
    var context = context
    context.admin.faults = await faults
    var frame = try await pages.frame("Overview", at: AdminURL.overview, context)
    if !answers.working.isEmpty { frame.refreshSeconds = ReportPageController.refreshSeconds }
    let customers = try await CustomerListController(api: api).latest(5)
    let ended = try await ledger.entitlementCharges(of: customers)
    let weeks = ReportRequest(
      .active, query: "bucket=week", at: answers.tables[.active]?.asOf ?? pages.now())
    var charts =
      answers.tables[.active].map { ReportCharts(table: $0, request: weeks).pictures } ?? []
    // One note stands below all charts.
    for index in charts.indices { charts[index].note = nil }
    return PageRenderer.response(
      (
        page: frame,
        attention: answers.attention(
          with: frame.waiting, faults: context.admin.faults, at: pages.now()),
        groups: answers.groups, weekNote: answers.weekNote,
        activeChart: charts.first ?? Self.empty("Active subscriptions", answers),
        movementChart: charts.dropFirst().first ?? Self.empty("Subscriber movement", answers),
        customers: customers.map { customer in
          (
            at: Moment(customer.account.createdAt), id: customer.account.id,
            href: AdminURL.account(customer.account.id), name: customer.name,
            tags: customer.shownTags(ended)
          )
        }, customersHref: AdminURL.customers,
        recentActions: answers.recentActions,
        noActions: answers.noActions,
        actionsHref: AdminURL.report(Report.audit.name)
      ), "overview")
  }

  /// A chart without data; nil while it is not known whether there is any.
  private static func empty(_ title: String, _ answers: OverviewAnswers) -> Chart? {
    answers.working.contains(.active)
      ? nil
      : Chart(
        linesOf: ChartData(id: "chart-\(title.utf8.count)", title: title, buckets: [], series: []))
  }
}

extension OverviewAnswers {
  /// Stands in place of the recent actions.
  var noActions: String {
    if working.contains(.recentActions) { return "Not known yet: this page reloads." }
    return failed.contains(.recentActions)
      ? "Not available: the query failed." : "No manual changes."
  }

  var recentActions: [some Sendable] {
    (tables[.recentActions]?.records ?? []).map { row in
      let reason = row["reason"]?.text
      return (
        at: row["at"]?.time.map(Moment.init), pieces: row.actionInWords,
        reason: reason.flatMap { $0.isEmpty ? nil : $0 }
      )
    }
  }
}

/// A current number and its recent history.
struct Tile: Sendable {
  var label: String
  var value: String
  /// For example `+3 vs last week`.
  var change: String?
  /// One of ``Tone``.
  var changeTone: String?
  var note: String?
  /// The page behind the note, if it is another one.
  var noteHref: String?
  /// The report behind the number.
  var href: String
  var sparkline: Sparkline?
}

/// A query of the overview.
struct OverviewQuestion: Hashable, Sendable {
  let report: Report
  let choices: ReportChoices
  /// The weeks to compare, or nil for a table.
  let weeks: PastWeeks?

  init(
    _ report: Report, weeks: PastWeeks? = nil, _ choose: (inout ReportChoices) -> Void = { _ in }
  ) {
    var choices = ReportChoices()
    choose(&choices)
    (self.report, self.choices, self.weeks) = (report, choices, weeks)
  }

  // The last twelve weeks or months, the next or last seven days, or the latest actions.
  static let active = OverviewQuestion(.active) { $0.bucket = .week }
  static let trials = OverviewQuestion(.trials) { $0.bucket = .week }
  static let mrr = OverviewQuestion(.mrr) { $0.bucket = .week }
  static let churn = OverviewQuestion(.churn) { $0.bucket = .week }
  static let billingIssues = OverviewQuestion(.billingIssues) { $0.bucket = .week }
  static let revenue = OverviewQuestion(.revenue)
  static let renewalsDue = OverviewQuestion(.renewalsDue) { $0.days = 7 }
  static let renewalsDueBefore = OverviewQuestion(.renewalsDue, weeks: .renewalsDue) { $0.days = 7 }
  static let intake = OverviewQuestion(.intake) { $0.days = 7 }
  static let intakeFailures = OverviewQuestion(.intake, weeks: .intake) { $0.days = 7 }
  static let recentActions = OverviewQuestion(.audit) { ($0.listsItems, $0.limit) = (true, 8) }

  static let allCases = [
    active, trials, mrr, churn, renewalsDue, billingIssues, revenue, intake, intakeFailures,
    recentActions, renewalsDueBefore,
  ]

  var question: ReportQuestion { weeks.map { .weeks($0) } ?? .table(report, choices) }

  /// The report's page with the same choices.
  var href: String {
    AdminURL.report(report.name, choices: choices.query(of: report))
  }
}

/// The results of the overview's queries.
struct OverviewAnswers: Sendable {
  var tables: [OverviewQuestion: ReportTable] = [:]
  /// Queries still running.
  var working: Set<OverviewQuestion> = []
  var failed: Set<OverviewQuestion> = []
  /// Whether Apple's history, which has the missed notifications, was never compared.
  var isHistoryUnknown = false

  /// Runs all queries concurrently, waiting for all no longer than for one.
  ///
  /// The slowest one runs last, so that it does not delay the others.
  static func ask(_ coordinator: ReportCoordinator) async -> OverviewAnswers {
    let start = ContinuousClock.now
    var answers = OverviewAnswers()
    await withTaskGroup(of: (OverviewQuestion, ReportCoordinator.Outcome).self) { group in
      for question in OverviewQuestion.allCases where question != .renewalsDueBefore {
        group.addTask { (question, await coordinator.outcome(question.question)) }
      }
      for await (question, outcome) in group { answers.take(outcome, of: question) }
    }
    let last = OverviewQuestion.renewalsDueBefore
    if answers.working.isEmpty {
      let left = ReportCoordinator.patience - (.now - start)
      answers.take(await coordinator.outcome(last.question, within: left), of: last)
    } else {
      answers.working.insert(last)
    }
    return answers
  }

  private mutating func take(_ outcome: ReportCoordinator.Outcome, of question: OverviewQuestion) {
    switch outcome {
    case .answered(.table(let table)): tables[question] = table
    case .working: working.insert(question)
    case .failed, .answered: failed.insert(question)
    }
  }
}
