package import Reports
import ServiceLifecycle
package import Subscriptions
import Synchronization

/// Runs reports for the administrator's pages and the API.
///
/// A request that would wait too long is asked to retry; the report continues, and its result is
/// kept for the retry. Results that no client was asked to retry for are not kept.
package final class ReportCoordinator: Service {
  /// A page is answered within two seconds, including what surrounds the report.
  package static let patience: Duration = .milliseconds(1700)
  /// A kept result may be out of date by this much.
  package static let memory: Duration = .seconds(60)
  /// A few megabytes, more than people look at in a minute.
  package static let mostKept = 64
  package static let mostAtOnce = ReportReader.mostAtOnce
  package static let mostWaiting = 64

  package enum Outcome: Sendable {
    case answered(ReportAnswer)
    case failed(any Error)
    /// Still running.
    case working
  }

  private typealias Result = Swift.Result<ReportAnswer, any Error>

  private enum Entry {
    /// - Parameter isPromised: Whether a client was asked to retry.
    case asked(waiting: [AsyncStream<Result>.Continuation], isPromised: Bool)
    case done(Result, at: ContinuousClock.Instant)
  }

  private struct State {
    var entries: [ReportQuestion: Entry] = [:]

    /// The kept result; nil: it will be kept once there is one.
    mutating func promise(_ question: ReportQuestion) -> Result? {
      switch entries[question] {
      case .done(let result, _)?:
        // A retry after a failure runs the report again.
        if case .failure = result { entries[question] = nil }
        return result
      case .asked(let waiting, _)?:
        entries[question] = .asked(waiting: waiting, isPromised: true)
        return nil
      case nil: return nil
      }
    }

    /// Drops results that are too old, and the oldest beyond the limit.
    mutating func tidy(at now: ContinuousClock.Instant) {
      let done = entries.compactMap { question, entry in
        if case .done(_, let at) = entry { (question: question, at: at) } else { nil }
      }.sorted { $0.at > $1.at }
      for (index, entry) in done.enumerated()
      where index >= ReportCoordinator.mostKept || now - entry.at >= ReportCoordinator.memory {
        entries[entry.question] = nil
      }
    }
  }

  private let reports: ReportReader
  private let now: @Sendable () -> Timestamp
  private let state = Mutex(State())
  private let (questions, asked) = AsyncStream.makeStream(of: ReportQuestion.self)

  package init(reports: ReportReader, now: @escaping @Sendable () -> Timestamp) {
    self.reports = reports
    self.now = now
  }

  // MARK: Asking

  package func outcome(_ question: ReportQuestion, within patience: Duration = patience) async
    -> Outcome
  {
    if !ask(question) { return .failed(Problem.unavailable("Too many reports are running.")) }
    switch await result(of: question, within: patience) {
    case .success(let answer)?: return .answered(answer)
    case .failure(let error)?: return .failed(error)
    case nil: return .working
    }
  }

  /// The result; nil: it is not ready, and will be kept.
  private func result(of question: ReportQuestion, within patience: Duration) async -> Result? {
    let (results, waiter) = AsyncStream.makeStream(of: Result.self)
    let isWaiting = state.withLock { state in
      guard patience > .zero, case .asked(let waiting, let isPromised)? = state.entries[question]
      else { return false }
      state.entries[question] = .asked(waiting: waiting + [waiter], isPromised: isPromised)
      return true
    }
    if isWaiting {
      let timer = Task {
        try? await Task.sleep(for: patience)
        waiter.finish()
      }
      defer { timer.cancel() }
      for await result in results { return result }
    }
    // It may have arrived just now.
    return state.withLock { $0.promise(question) }
  }

  /// Starts the report unless it is running or its result is kept; false if too many are waiting.
  private func ask(_ question: ReportQuestion) -> Bool {
    let isNew: Bool? = state.withLock { state in
      state.tidy(at: .now)
      if state.entries[question] != nil { return false }
      let waiting = state.entries.values.count { if case .asked = $0 { true } else { false } }
      guard waiting < Self.mostWaiting else { return nil }
      state.entries[question] = .asked(waiting: [], isPromised: false)
      return true
    }
    guard let isNew else { return false }
    if isNew { asked.yield(question) }
    return true
  }

  // MARK: Answering

  /// Runs reports, a few at a time, until the server shuts down.
  package func run() async throws {
    await cancelWhenGracefulShutdown {
      await withTaskGroup(of: Void.self) { group in
        for _ in 0..<Self.mostAtOnce {
          group.addTask {
            for await question in self.questions { await self.answer(question) }
          }
        }
      }
    }
  }

  private func answer(_ question: ReportQuestion) async {
    let result: Result
    do {
      result = .success(try await question.answer(from: reports, at: now()))
    } catch {
      result = .failure(error)
    }
    state.withLock { state in
      guard case .asked(let waiting, let isPromised)? = state.entries[question] else { return }
      let isTaken = waiting.map { waiter in
        if case .enqueued = waiter.yield(result) { true } else { false }
      }
      // Without a waiting request, the one that asked is about to look, or has gone.
      let isKept = isPromised || waiting.isEmpty || isTaken.contains(false)
      state.entries[question] = isKept ? .done(result, at: .now) : nil
    }
  }
}

package enum ReportQuestion: Hashable, Sendable {
  case table(Report, ReportChoices)
  case items(ReportCell, from: Int, limit: Int)
  case weeks(PastWeeks)

  package func answer(from reports: ReportReader, at now: Timestamp) async throws -> ReportAnswer {
    switch self {
    case .table(let report, let choices):
      .table(try await reports.table(of: report, choices, at: now))
    case .items(let cell, let offset, let limit):
      .items(try await reports.items(of: cell, from: offset, limit: limit, at: now))
    case .weeks(let weeks): .table(try await reports.pastWeeks(of: weeks, at: now))
    }
  }
}

package enum ReportAnswer: Sendable {
  case table(ReportTable)
  case items(ReportCellItems)
}
