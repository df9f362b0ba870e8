import Foundation
import Postgres
package import Subscriptions
import Synchronization

/// What an account holds and was granted: all that a read needs beside the catalogue.
package struct AccountHoldings: Sendable {
  package var holdings: [Holding] = []
  package var grants: [Grant] = []

  package init() {}
}

/// Reads the holdings of many accounts for many callers, with as few statements as possible.
///
/// While one statement is out, callers gather; the next statement asks for all of them at once with
/// `= ANY`. PostgreSQL answers a batch at a quarter of the cost of its selects one by one, and
/// waiting on purpose would not pay. Who finds no statement out sends one at once; the answer's
/// arrival sends the next, so that no caller's task has to run for another's sake.
final class HoldingReader: Sendable {
  typealias Completion = @Sendable (Result<HoldingRows, any Error>) -> Void

  /// How many statements are out at the most: the second covers the other's way back.
  private static let maximumStatements = 2
  /// Whoever waits for a read is an app that has just been launched: better a quick no than a late
  /// answer, and the next try may find another server.
  private static let deadline: Duration = .seconds(10)
  /// The most accounts in one statement: PostgreSQL gains nothing beyond.
  static let maximumBatch = 200

  /// The accounts that one caller asks for.
  private struct Question: Sendable {
    let accountIDs: [String]
    let completion: Completion
  }

  private struct State: Sendable {
    var waiting: [Question] = []
    var statements = 0

    /// Takes those who have waited longest for one statement; no one if no one waits.
    mutating func nextBatch() -> [Question] {
      var accounts = 0
      let end = waiting.firstIndex { question in
        accounts += question.accountIDs.count
        return accounts > maximumBatch
      }
      // Who asks for more than a batch has a statement to himself.
      let batch = waiting.prefix(max(1, end ?? waiting.count))
      waiting.removeFirst(batch.count)
      return Array(batch)
    }
  }

  private let database: ConnectionPool
  private let state = Mutex(State())
  /// What is asked before the rows, of a standby: how much of the primary's log it has applied.
  private let position: SQL?
  private let deadline: Duration

  /// Reads at the primary.
  init(database: ConnectionPool) {
    self.database = database
    position = nil
    deadline = Self.deadline
  }

  /// Reads at a standby, whose rows tell how current they are at least.
  init(standby: ConnectionPool, position: SQL, deadline: Duration) {
    database = standby
    self.position = position
    self.deadline = deadline
  }

  /// Reads what some accounts hold, together with what others ask for at the same time.
  ///
  /// - Parameters:
  ///   - accountIDs: The accounts.
  ///   - completion: Called once, on the thread that serves PostgreSQL: it must hand over what
  ///     takes time.
  func read(_ accountIDs: [String], completion: @escaping Completion) {
    let batch = state.withLock { state -> [Question] in
      state.waiting.append(Question(accountIDs: accountIDs, completion: completion))
      guard state.statements < Self.maximumStatements else { return [] }
      state.statements += 1
      return state.nextBatch()
    }
    if !batch.isEmpty { send(batch) }
  }

  private func send(_ batch: [Question]) {
    let accountIDs = batch.count == 1 ? batch[0].accountIDs : batch.flatMap(\.accountIDs)
    let statements = [position, Self.statement(accountIDs)].compactMap(\.self)
    database.batch(statements, deadline: deadline) { [self] outcome in
      let (next, refused) = state.withLock { state -> ([Question], [Question]) in
        var refused: [Question] = []
        if case .failure(let error) = outcome, position != nil || Self.isOutage(error) {
          // One wait per caller: a standby that may be gone has the primary, and a server that
          // answered nothing to this statement would let the next one wait as long.
          swap(&refused, &state.waiting)
        }
        let next = state.nextBatch()
        if next.isEmpty { state.statements -= 1 }
        return (next, refused)
      }
      // The next statement is on its way while everybody decodes rows of this one.
      if !next.isEmpty { send(next) }
      let rows = outcome.flatMap { results in
        Result {
          var rows = try HoldingRows(results[results.count - 1])
          if position != nil {
            rows.position = try LogPosition.positions(from: results[0]).first ?? nil
          }
          return rows
        }
      }
      for question in batch { question.completion(rows) }
      for question in refused { question.completion(rows) }
    }
  }

  /// Whether the server has not answered, as opposed to having refused the statement.
  private static func isOutage(_ error: any Error) -> Bool {
    switch (error as? PostgresError)?.code {
    case .connectionFailed, .poolTimeout, .timedOut: true
    case .connectionLost, .server, .decoding, .closed, .invalidRequest, nil: false
    }
  }

  /// The same for a task that waits; one that is cancelled waits no longer, and takes nobody with
  /// it.
  func holdings(of accountID: String) async throws -> AccountHoldings {
    // Whoever was cancelled before asks nothing: the answer could be there before he looks.
    try Task.checkCancellation()
    let answer = Answer()
    read([accountID]) { answer.resume(with: $0) }
    return try await answer.rows.holdings(of: accountID)
  }

  /// Reads the holdings and grants of accounts in one round trip.
  func read(_ accountIDs: [String]) async throws -> HoldingRows {
    try HoldingRows(await database.query(Self.statement(accountIDs), deadline: deadline))
  }

  /// The statement that reads holdings and grants; `HoldingRows` understands the result.
  ///
  /// It is one statement, for one snapshot: the decision on a submission replaces a provisional
  /// grant by a holding, and a read must not miss both.
  ///
  /// - Parameters:
  ///   - accountIDs: The accounts.
  ///   - submission: The submission whose provisional grants are left out.
  /// - Returns: The statement.
  static func statement(_ accountIDs: [String], withoutGrantsOf submission: UUID? = nil) -> SQL {
    var condition: SQL = "account_id = ANY(\(accountIDs))"
    if let submission { condition.append(" AND submission_id IS DISTINCT FROM \(submission)") }
    return """
      SELECT \(columns), NULL::uuid AS grant_id, NULL::text AS entitlement, NULL::text AS source
      FROM tenure.holding WHERE account_id = ANY(\(accountIDs))
      UNION ALL
      \(selectGrants(where: condition))
      """
  }

  /// Reads all rows of `holding` of some accounts; `Rows.decodeHolding(_:)` understands them.
  static func select(_ accountIDs: [String]) -> SQL {
    "SELECT \(columns) FROM tenure.holding WHERE account_id = ANY(\(accountIDs))"
  }

  /// Reads grants, in the columns of ``statement(_:withoutGrantsOf:)``.
  static func selectGrants(revokedAt: SQL = "revoked_at", where condition: SQL) -> SQL {
    """
    SELECT account_id, environment, original_transaction_id, NULL::text, NULL::text, NULL::text,
      NULL::text, NULL::text, starts_at, ends_at, \(revokedAt), NULL::timestamptz, NULL::boolean,
      NULL::text, NULL::timestamptz, grant_id, entitlement, source
    FROM tenure.account_grant WHERE \(condition)
    """
  }

  private static let columns: SQL = """
    account_id, environment, original_transaction_id, transaction_id, product_id, family_id,
      product_type, period_type, starts_at, ends_at, revoked_at, superseded_at, auto_renews, phase,
      grace_ends_at
    """
}

/// What one task waits for: the first answer counts, be it the database's or that the task was
/// cancelled.
private final class Answer: Sendable {
  private enum State: Sendable {
    case open
    case awaited(CheckedContinuation<HoldingRows, any Error>)
    case given(Result<HoldingRows, any Error>)
  }

  private let state = Mutex(State.open)

  func resume(with result: Result<HoldingRows, any Error>) {
    let continuation = state.withLock { state -> CheckedContinuation<HoldingRows, any Error>? in
      switch state {
      case .open:
        state = .given(result)
        return nil
      case .awaited(let continuation):
        state = .given(result)
        return continuation
      case .given:
        return nil
      }
    }
    continuation?.resume(with: result)
  }

  /// To be read once.
  var rows: HoldingRows {
    get async throws {
      try await withTaskCancellationHandler {
        try await withCheckedThrowingContinuation { continuation in
          let given = state.withLock { state -> Result<HoldingRows, any Error>? in
            if case .given(let result) = state { return result }
            state = .awaited(continuation)
            return nil
          }
          if let given { continuation.resume(with: given) }
        }
      } onCancel: {
        resume(with: .failure(CancellationError()))
      }
    }
  }
}
