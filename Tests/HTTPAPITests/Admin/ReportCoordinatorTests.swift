import AppStore
import HTTPTypes
import Reports
import Subscriptions
import Synchronization
import Testing

@testable import AdminSite
@testable import HTTPAPI

/// A request for a report waits a little, and later finds the result.
struct ReportCoordinatorTests {
  /// A coordinator whose every answer is of another moment.
  private func coordinator(_ api: TestAPI) -> ReportCoordinator {
    let count = Mutex<Int64>(0)
    return ReportCoordinator(reports: api.api.reports) {
      count.withLock { count in
        count += 1
        return Timestamp(milliseconds: 1_767_225_600_000 + count)
      }
    }
  }

  private func asOf(_ outcome: ReportCoordinator.Outcome) -> Timestamp? {
    if case .answered(.table(let table)) = outcome { table.asOf } else { nil }
  }

  private func isWorking(_ outcome: ReportCoordinator.Outcome) -> Bool {
    if case .working = outcome { true } else { false }
  }

  private func question(_ days: Int) -> ReportQuestion {
    var choices = ReportChoices()
    choices.days = days
    return .table(.intake, choices)
  }

  @Test func `what takes too long is being worked at, and is asked once`() async throws {
    try await TestAPI.run { api in
      let coordinator = coordinator(api)
      // No answer yet.
      for _ in 0..<2 {
        #expect(isWorking(await coordinator.outcome(question(1), within: .milliseconds(1))))
      }
      await withThrowingTaskGroup(of: Void.self) { group in
        group.addTask { try await coordinator.run() }
        let first = await coordinator.outcome(question(1), within: .seconds(60))
        #expect(asOf(first) == Timestamp(milliseconds: 1_767_225_600_001))
        // The answer is kept for those who ask again.
        #expect(asOf(await coordinator.outcome(question(1))) == asOf(first))
        // One that was waited for is not: the next has newer numbers.
        for count in Int64(2)...3 {
          let other = await coordinator.outcome(question(2), within: .seconds(60))
          #expect(asOf(other) == Timestamp(milliseconds: 1_767_225_600_000 + count))
        }
        group.cancelAll()
      }
    }
  }

  @Test func `a failure is reported, and the question asked again`() async throws {
    try await TestAPI.run { api in
      let coordinator = coordinator(api)
      var choices = ReportChoices()
      choices.timeZone = "Mars/Phobos"
      let wrong = ReportQuestion.table(.active, choices)
      await withThrowingTaskGroup(of: Void.self) { group in
        group.addTask { try await coordinator.run() }
        for _ in 0..<2 {
          guard case .failed(let error) = await coordinator.outcome(wrong, within: .seconds(60))
          else {
            Issue.record("It was answered.")
            continue
          }
          #expect((error as? ReportFault)?.parameter == .timeZone)
        }
        group.cancelAll()
      }
    }
  }

  @Test func `only so many reports wait to be made`() async throws {
    try await TestAPI.run { api in
      let coordinator = coordinator(api)
      for number in 1...ReportCoordinator.mostWaiting {
        #expect(isWorking(await coordinator.outcome(question(number), within: .zero)))
      }
      let tooMany = await coordinator.outcome(
        question(ReportCoordinator.mostWaiting + 1), within: .zero)
      guard case .failed(let error) = tooMany else {
        Issue.record("It waits.")
        return
      }
      #expect((error as? Problem)?.status == .serviceUnavailable)
      // Those who asked before go on waiting.
      #expect(isWorking(await coordinator.outcome(question(1), within: .zero)))
    }
  }

  @Test func `the overview asks for what takes longest when all else is answered`() async throws {
    try await TestAPI.run { api in
      let coordinator = coordinator(api)
      // No answer comes.
      let answers = await OverviewAnswers.ask(coordinator)
      #expect(answers.working == Set(OverviewQuestion.allCases))
      // So many were asked; and no more than these can wait.
      let asked = OverviewQuestion.allCases.count - 1
      for number in 1...(ReportCoordinator.mostWaiting - asked) {
        #expect(isWorking(await coordinator.outcome(question(100 + number), within: .zero)))
      }
      await withThrowingTaskGroup(of: Void.self) { group in
        group.addTask { try await coordinator.run() }
        var tries = 0
        var answers = OverviewAnswers()
        while answers.tables.count < OverviewQuestion.allCases.count, tries < 30 {
          answers = await OverviewAnswers.ask(coordinator)
          tries += 1
        }
        #expect(Set(answers.tables.keys) == Set(OverviewQuestion.allCases))
        group.cancelAll()
      }
    }
  }
}
