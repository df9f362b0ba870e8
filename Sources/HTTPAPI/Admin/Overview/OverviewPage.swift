import Hummingbird
import Reports
import Subscriptions

/// Today against the past weeks.
struct OverviewPageController: Sendable {
  let pages: PageMaker
  let desk: ReportDesk

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let answers = await OverviewAnswers.ask(desk)
    var frame = try await pages.frame("Overview", at: PageAddress.overview, context)
    if !answers.working.isEmpty { frame.refreshSeconds = ReportPageController.refreshSeconds }
    let charts = answers.tables[.active].map { ReportCharts(table: $0).pictures } ?? []
    let page = OverviewPage(
      page: frame, attention: answers.attention, groups: answers.groups,
      activeChart: charts.first ?? ChartPicture(linesOf: Self.nothing("Active subscriptions")),
      movementChart: charts.dropFirst().first
        ?? ChartPicture(linesOf: Self.nothing("Subscriber movement")),
      acts: answers.acts, actsHref: PageAddress.report(Report.audit.name))
    return pages.response(page, .overview)
  }

  /// A chart that is still being counted.
  private static func nothing(_ title: String) -> ChartData {
    ChartData(
      id: "chart-\(title.utf8.count)", title: title, buckets: [], series: [])
  }
}

extension OverviewAnswers {
  /// The latest acts of administrators.
  var acts: [ActRow] {
    guard let table = tables[.acts] else { return [] }
    return table.rows.indices.compactMap { index in
      guard case .time(let at)? = table.value("at", inRow: index),
        let administrator = table.value("administrator", inRow: index)?.text,
        let action = table.value("action", inRow: index)?.text,
        let subject = table.value("subject", inRow: index)?.text
      else { return nil }
      let reason = table.value("reason", inRow: index)?.text
      // The account that it was done to; of what concerns none there is no page.
      let account = table.value("account_id", inRow: index)?.text
      return ActRow(
        at: Moment(at), administrator: administrator,
        action: action.replacing("_", with: " "), subject: account ?? subject,
        href: account.map { PageAddress.account($0) },
        reason: reason.flatMap { $0.isEmpty ? nil : $0 })
    }
  }
}

/// The template `overview`: today against the past weeks.
struct OverviewPage: Sendable {
  var page: PageFrame
  /// What waits for somebody; empty: nothing does.
  var attention: [AttentionItem]
  var groups: [TileGroup]
  /// Active subscriptions over the past weeks.
  var activeChart: ChartPicture
  /// What came and went over the past weeks.
  var movementChart: ChartPicture
  /// The latest acts of administrators.
  var acts: [ActRow]
  var actsHref: String
}

/// Something that waits for somebody.
struct AttentionItem: Sendable {
  /// For example `3 charges are owned by nobody`.
  var text: String
  /// For example `the oldest for 6 d 3 h`.
  var note: String?
  var href: String
  /// One of ``Tone``.
  var tone: String
}

/// Numbers that belong together.
struct TileGroup: Sendable {
  var heading: String
  var tiles: [Tile]
}

/// A number of today, with how it got there.
struct Tile: Sendable {
  var label: String
  var value: String
  /// For example `USD` or `%`.
  var unit: String?
  /// For example `+1.2 % on last week`.
  var change: String?
  /// One of ``Tone``: whether the change is a good one.
  var changeTone: String?
  var note: String?
  /// The report behind it.
  var href: String
  var sparkline: Sparkline?
}

/// What an administrator did.
struct ActRow: Sendable {
  var at: Moment
  var administrator: String
  /// In words.
  var action: String
  var subject: String
  var href: String?
  var reason: String?
}

/// What the overview asks of the reports: all at once.
enum OverviewQuestion: String, CaseIterable, Hashable, Sendable {
  case active
  case trials
  case mrr
  case churn
  case renewalsDue
  case billingIssues
  case refunds
  case intake
  case intakeFailures
  case unclaimed
  case acts
  case renewalsDueBefore

  /// What is asked of the reports for it.
  var question: ReportQuestion {
    switch self {
    case .refunds: .weeks(.refunds)
    case .intakeFailures: .weeks(.intake)
    case .renewalsDueBefore: .weeks(.renewalsDue)
    case .active, .trials, .mrr, .churn, .renewalsDue, .billingIssues, .intake, .unclaimed, .acts:
      .table(report, choices)
    }
  }

  /// Which report it is about.
  var report: Report {
    switch self {
    case .active: .active
    case .trials: .trials
    case .mrr: .mrr
    case .churn: .churn
    case .renewalsDue, .renewalsDueBefore: .renewalsDue
    case .billingIssues: .billingIssues
    case .refunds: .revenue
    case .intake, .intakeFailures: .intake
    case .unclaimed: .unclaimed
    case .acts: .audit
    }
  }

  /// The past twelve weeks, the next or the last seven days, the latest acts.
  var choices: ReportChoices {
    var choices = ReportChoices()
    switch self {
    case .active, .trials, .mrr, .churn, .billingIssues: choices.bucket = .week
    case .refunds: choices.bucket = .day
    case .renewalsDue, .renewalsDueBefore, .intake, .intakeFailures: choices.days = 7
    case .acts:
      choices.listsItems = true
      choices.limit = 8
    case .unclaimed: break
    }
    return choices
  }

  /// Where the tile leads to: the same choices.
  var href: String {
    PageAddress.report(
      report.name,
      choices: report.parameters.compactMap { parameter in
        choices.text(of: parameter).map { (parameter.rawValue, $0) }
      })
  }
}

/// What the overview was answered in time.
struct OverviewAnswers: Sendable {
  /// Those that were answered.
  var tables: [OverviewQuestion: ReportTable] = [:]
  /// Those that take longer.
  var working: Set<OverviewQuestion> = []
  /// Those that nobody could answer.
  var failed: Set<OverviewQuestion> = []

  /// Asks all of them, and waits no longer for all than for one.
  ///
  /// The one that takes longest on a large ledger is asked when all others are answered: it would
  /// take the place of those that somebody waits for.
  static func ask(_ desk: ReportDesk) async -> OverviewAnswers {
    let start = ContinuousClock.now
    var answers = OverviewAnswers()
    await withTaskGroup(of: (OverviewQuestion, ReportDesk.Outcome).self) { group in
      for question in OverviewQuestion.allCases where question != .renewalsDueBefore {
        group.addTask { (question, await desk.outcome(question.question)) }
      }
      for await (question, outcome) in group { answers.take(outcome, of: question) }
    }
    let last = OverviewQuestion.renewalsDueBefore
    if answers.working.isEmpty {
      let left = ReportDesk.patience - (.now - start)
      answers.take(await desk.outcome(last.question, within: left), of: last)
    } else {
      answers.working.insert(last)
    }
    return answers
  }

  private mutating func take(_ outcome: ReportDesk.Outcome, of question: OverviewQuestion) {
    switch outcome {
    case .answered(.table(let table)): tables[question] = table
    case .working: working.insert(question)
    case .failed, .answered: failed.insert(question)
    }
  }
}
