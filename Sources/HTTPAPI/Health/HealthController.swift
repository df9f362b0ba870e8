import Hummingbird
import JSONText
import LedgerStorage

/// Tells those who watch the process how it is.
struct HealthController: Sendable {
  /// How long the database may take to say that it is there: watchers ask every few seconds.
  private static let deadline: Duration = .seconds(2)

  let schema: SchemaMigrator

  /// The process lives; whatever else is amiss, restarting it would not help.
  @Sendable
  func healthz(_ request: Request, context: APIContext) async throws -> Response {
    Response(Health(status: "alive"))
  }

  /// The database answers, and its schema is the one that this program works with.
  @Sendable
  func readyz(_ request: Request, context: APIContext) async throws -> Response {
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask { try await schema.check() }
      group.addTask {
        try await Task.sleep(for: Self.deadline)
        throw Problem.unavailable("The database has not answered within \(Self.deadline).")
      }
      defer { group.cancelAll() }
      try await group.next()
    }
    return Response(Health(status: "ready"))
  }
}

private struct Health: JSONWritable {
  let status: String

  func write(to json: inout JSONWriter) {
    json.object { $0.member("status", status) }
  }
}
