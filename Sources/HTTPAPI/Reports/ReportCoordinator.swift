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

  private struct Entry {
    let task: Task<ReportAnswer, any Error>
    var endedAt: ContinuousClock.Instant?
    /// Whether a client was asked to retry.
    var isPromised = false
  }

  private let reports: ReportReader
  private let now: @Sendable () -> Timestamp
  private let entries = Mutex<[ReportQuestion: Entry]>([:])
  /// One for each report that may begin.
  private let (permits, permit) = AsyncStream.makeStream(of: Void.self)

  package init(reports: ReportReader, now: @escaping @Sendable () -> Timestamp) {
    self.reports = reports
    self.now = now
  }

  package func outcome(_ question: ReportQuestion, within patience: Duration = patience) async
    -> Outcome
  {
    guard let entry = entry(of: question) else {
      return .failed(Problem.unavailable("Too many reports are running."))
    }
    // A client that does not wait is not told of a report that ends at this very moment.
    var mustWait = entry.endedAt == nil
    if mustWait, patience > .zero {
      mustWait = await entry.task.result(within: patience) == nil
    }
    if mustWait {
      let isKept = entries.withLock { entries in
        // Another client may have taken the result in the meantime.
        guard entries[question]?.task == entry.task else { return false }
        entries[question]?.isPromised = true
        return true
      }
      if isKept { return .working }
    }
    let result = await entry.task.result
    return entries.withLock { entries in
      let isCurrent = entries[question]?.task == entry.task
      switch result {
      case .success(let answer):
        if isCurrent, entries[question]?.isPromised == false { entries[question] = nil }
        return .answered(answer)
      case .failure(let error):
        // A retry after a failure runs the report again.
        if isCurrent { entries[question] = nil }
        return .failed(error)
      }
    }
  }

  /// The running or kept report, or a new one; nil if too many are waiting.
  private func entry(of question: ReportQuestion) -> Entry? {
    entries.withLock { entries in
      Self.tidy(&entries, at: .now)
      if let entry = entries[question] { return entry }
      let waiting = entries.values.count { $0.endedAt == nil }
      guard waiting < Self.mostWaiting else { return nil }
      // Not a child task of the request, which may end before it.
      let entry = Entry(task: Task { try await self.answer(question) })
      entries[question] = entry
      return entry
    }
  }

  /// Drops results that are too old, and the oldest beyond the limit.
  private static func tidy(
    _ entries: inout [ReportQuestion: Entry], at now: ContinuousClock.Instant
  ) {
    let ended = entries.compactMap { question, entry in entry.endedAt.map { (question, $0) } }
      .sorted { $0.1 > $1.1 }
    for (index, (question, endedAt)) in ended.enumerated()
    where index >= mostKept || now - endedAt >= memory {
      entries[question] = nil
    }
  }

  private func answer(_ question: ReportQuestion) async throws -> ReportAnswer {
    defer { entries.withLock { $0[question]?.endedAt = .now } }
    for await _ in permits {
      defer { permit.yield() }
      return try await question.answer(from: reports, at: now())
    }
    throw CancellationError()
  }

  /// Permits a few reports at a time, until the server shuts down.
  package func run() async throws {
    for _ in 0..<Self.mostAtOnce { permit.yield() }
    try? await gracefulShutdown()
    permit.finish()
    let tasks = entries.withLock { $0.values.map(\.task) }
    for task in tasks { task.cancel() }
    for task in tasks { _ = await task.result }
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
