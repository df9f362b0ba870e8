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
  case unclaimed
  case acts

  /// Which report answers it.
  var report: Report {
    switch self {
    case .active: .active
    case .trials: .trials
    case .mrr: .mrr
    case .churn: .churn
    case .renewalsDue: .renewalsDue
    case .billingIssues: .billingIssues
    case .refunds: .revenue
    case .intake: .intake
    case .unclaimed: .unclaimed
    case .acts: .audit
    }
  }

  /// The past twelve weeks, the next seven days, the latest acts.
  var choices: ReportChoices {
    var choices = ReportChoices()
    switch self {
    case .active, .trials, .mrr, .churn, .billingIssues, .refunds: choices.bucket = .week
    case .renewalsDue, .intake: choices.days = 7
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
  static func ask(_ desk: ReportDesk) async -> OverviewAnswers {
    await withTaskGroup(of: (OverviewQuestion, ReportDesk.Outcome).self) { group in
      for question in OverviewQuestion.allCases {
        group.addTask {
          (question, await desk.outcome(.table(question.report, question.choices)))
        }
      }
      var answers = OverviewAnswers()
      for await (question, outcome) in group {
        switch outcome {
        case .answered(.table(let table)): answers.tables[question] = table
        case .working: answers.working.insert(question)
        case .failed, .answered: answers.failed.insert(question)
        }
      }
      return answers
    }
  }
}
