import Reports
import ServiceLifecycle
import Subscriptions
import Synchronization

/// Asks reports for the administrator's pages, and for whoever else does not want to wait.
///
/// Who would wait too long is told so, the report goes on, and its answer is kept for those who ask
/// again.
final class ReportDesk: Service {
  /// Nobody looks at an empty page for longer than two seconds, what is around the answer included.
  static let patience: Duration = .milliseconds(1700)
  /// So long a number may be out of date, and whoever asked for one has the time to fetch it.
  static let memory: Duration = .seconds(60)
  /// A few megabytes: more than the pages that people look at in a minute.
  static let mostKept = 64
  /// So many connections there are for reports.
  static let mostAtOnce = ReportReader.mostAtOnce
  /// Beyond this there is no use in asking for more.
  static let mostWaiting = 64

  /// How far a question is.
  enum Outcome: Sendable {
    case answered(ReportAnswer)
    case failed(any Error)
    /// It is still being counted.
    case working
  }

  private enum Entry {
    case asked([Int: CheckedContinuation<Void, Never>])
    case done(Result<ReportAnswer, any Error>, at: ContinuousClock.Instant)
  }

  private struct State {
    var entries: [ReportQuestion: Entry] = [:]
    var nextID = 0

    /// Forgets what is too old, and the oldest where there is too much.
    mutating func tidy(at now: ContinuousClock.Instant) {
      let done = entries.compactMap { question, entry in
        if case .done(_, let at) = entry { (question: question, at: at) } else { nil }
      }.sorted { $0.at > $1.at }
      for (index, entry) in done.enumerated()
      where index >= ReportDesk.mostKept || now - entry.at >= ReportDesk.memory {
        entries[entry.question] = nil
      }
    }
  }

  private let reports: ReportReader
  private let now: @Sendable () -> Timestamp
  private let state = Mutex(State())
  private let (questions, asked) = AsyncStream.makeStream(of: ReportQuestion.self)

  init(reports: ReportReader, now: @escaping @Sendable () -> Timestamp) {
    self.reports = reports
    self.now = now
  }

  /// What each report counts, in full.
  ///
  /// - Throws: What the database says.
  func definitions() async throws -> [Report: String] { try await reports.definitions() }

  // MARK: Asking

  /// Asks, and waits for a while.
  func outcome(_ question: ReportQuestion, within patience: Duration = patience) async -> Outcome {
    if !ask(question) { return .failed(Problem.unavailable("Too many reports are being made.")) }
    if patience > .zero {
      await withTaskGroup(of: Void.self) { group in
        group.addTask { await self.wait(for: question) }
        group.addTask { try? await Task.sleep(for: patience) }
        await group.next()
        group.cancelAll()
      }
    }
    return state.withLock { state in
      guard case .done(let result, _)? = state.entries[question] else { return .working }
      switch result {
      case .success(let answer): return .answered(answer)
      case .failure(let error):
        // Whoever asks again tries again.
        state.entries[question] = nil
        return .failed(error)
      }
    }
  }

  /// Whether a question is asked by now, or was answered a moment ago.
  private func ask(_ question: ReportQuestion) -> Bool {
    let isNew: Bool? = state.withLock { state in
      state.tidy(at: .now)
      if state.entries[question] != nil { return false }
      let waiting = state.entries.values.count { if case .asked = $0 { true } else { false } }
      guard waiting < Self.mostWaiting else { return nil }
      state.entries[question] = .asked([:])
      return true
    }
    guard let isNew else { return false }
    if isNew { asked.yield(question) }
    return true
  }

  private func wait(for question: ReportQuestion) async {
    let id = state.withLock { state in
      state.nextID += 1
      return state.nextID
    }
    await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        let mustWait = state.withLock { state in
          guard case .asked(var waiting)? = state.entries[question], !Task.isCancelled else {
            return false
          }
          waiting[id] = continuation
          state.entries[question] = .asked(waiting)
          return true
        }
        if !mustWait { continuation.resume() }
      }
    } onCancel: {
      let continuation = state.withLock { state -> CheckedContinuation<Void, Never>? in
        guard case .asked(var waiting)? = state.entries[question] else { return nil }
        let continuation = waiting.removeValue(forKey: id)
        state.entries[question] = .asked(waiting)
        return continuation
      }
      continuation?.resume()
    }
  }

  // MARK: Answering

  /// Answers what is asked, a few questions at a time, until the server ends.
  func run() async throws {
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
    let result: Result<ReportAnswer, any Error>
    do {
      result = .success(try await question.answer(from: reports, at: now()))
    } catch {
      result = .failure(error)
    }
    let waiting = state.withLock { state in
      defer { state.entries[question] = .done(result, at: .now) }
      guard case .asked(let waiting)? = state.entries[question] else {
        return [CheckedContinuation<Void, Never>]()
      }
      return Array(waiting.values)
    }
    for continuation in waiting { continuation.resume() }
  }
}
