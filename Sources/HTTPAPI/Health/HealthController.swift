import Hummingbird
import JSONText
import LedgerStorage
import Synchronization

/// Health checks for load balancers and orchestrators.
struct HealthController: Sendable {
  /// How long the database may take: balancers ask every few seconds.
  private static let deadline: Duration = .seconds(2)

  private let readiness: Readiness

  init(schema: SchemaMigrator) {
    readiness = Readiness { try await schema.check() }
  }

  init(checking: @escaping @Sendable () async throws -> Void) {
    readiness = Readiness(checking: checking)
  }

  /// Whether the process is alive, which is all that a restart could fix.
  @Sendable
  func healthz(_ request: Request, context: APIContext) async throws -> Response {
    Response(Health(status: "alive"))
  }

  /// Whether the database answers and has the schema that this program works with.
  @Sendable
  func readyz(_ request: Request, context: APIContext) async throws -> Response {
    guard let outcome = await readiness.outcome(within: Self.deadline) else {
      throw Problem.unavailable("The database has not answered within \(Self.deadline).")
    }
    try outcome.get()
    return Response(Health(status: "ready"))
  }
}

/// One check at a time, shared by all requests that arrive while it runs.
///
/// A database that stands still ends no statement, and neither does cancelling it. So a check is
/// not a child of the request that started it: the request leaves at its deadline, and later ones
/// join the same check instead of starting another.
private final class Readiness: Sendable {
  typealias Outcome = Result<Void, any Error>

  private let check: @Sendable () async throws -> Void
  private let running = Mutex<Task<Outcome, Never>?>(nil)

  init(checking check: @escaping @Sendable () async throws -> Void) {
    self.check = check
  }

  /// The outcome of the running check, or of a new one; nil if it takes longer than `deadline`.
  func outcome(within deadline: Duration) async -> Outcome? {
    let check = current()
    let (outcomes, first) = AsyncStream<Outcome>.makeStream(bufferingPolicy: .bufferingOldest(1))
    let answer = Task {
      first.yield(await check.value)
      first.finish()
    }
    let timer = Task {
      try? await Task.sleep(for: deadline)
      first.finish()
    }
    defer {
      answer.cancel()
      timer.cancel()
    }
    return await outcomes.first { _ in true }
  }

  private func current() -> Task<Outcome, Never> {
    running.withLock { running in
      if let running { return running }
      let task = Task {
        let outcome: Outcome
        do {
          outcome = .success(try await check())
        } catch {
          outcome = .failure(error)
        }
        self.running.withLock { $0 = nil }
        return outcome
      }
      running = task
      return task
    }
  }
}

private struct Health: JSONWritable {
  let status: String

  func write(to json: inout JSONWriter) {
    json.object { $0.member("status", status) }
  }
}
