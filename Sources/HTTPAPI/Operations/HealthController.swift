import HTTPTypes
import Hummingbird
import JSONText
import LedgerStorage
import NIOCore
import Synchronization

/// Health checks for load balancers and orchestrators.
struct HealthController: Sendable {
  /// How long a check waits for the database: balancers ask every few seconds.
  private static let deadline: Duration = .seconds(2)

  private let readiness: Readiness

  init(schema: SchemaMigrator) {
    readiness = Readiness { try await schema.check() }
  }

  init(checking: @escaping @Sendable () async throws -> Void) {
    readiness = Readiness(checking: checking)
  }

  /// Reports that the process is alive.
  ///
  /// The database is not checked: a restart of this process would not fix it.
  @Sendable
  func healthz(_ request: Request, context: APIContext) async throws -> Response {
    Response(Health(status: "alive"))
  }

  /// Reports whether the database answers and has the schema that this program needs.
  @Sendable
  func readyz(_ request: Request, context: APIContext) async throws -> Response {
    guard let outcome = await readiness.outcome(within: Self.deadline) else {
      throw Problem.unavailable("The database has not answered within \(Self.deadline).")
    }
    try outcome.get()
    return Response(Health(status: "ready"))
  }
}

/// A check that runs once at a time, for all requests that arrive meanwhile.
///
/// While the database hangs, a statement neither ends nor can be cancelled. So the check is not a
/// child task of the request that started it: each request is answered at its deadline, and later
/// requests wait for the same check instead of starting another.
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

/// The description of this interface that tools read: `Resources/openapi.yaml`, built in.
enum OpenAPIDocument {
  static let text = String(decoding: PackageResources.openapi_yaml, as: UTF8.self)
  /// Shared by all answers: a copy for each would be what readers that never read fill memory with.
  private static let body = ByteBuffer(string: text)

  @Sendable
  static func serve(_ request: Request, context: APIContext) async throws -> Response {
    Response(
      status: .ok, headers: [.contentType: "application/yaml"],
      body: ResponseBody(byteBuffer: body))
  }
}
