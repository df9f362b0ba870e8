import Reports
import Subscriptions

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
      report.rawValue,
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
