import Foundation
import Postgres
package import Subscriptions
import Synchronization

/// An account's holdings and grants: with the catalogue, everything that a read needs.
package struct AccountHoldings: Sendable {
  package var holdings: [Holding] = []
  package var grants: [Grant] = []
}

/// Reads the holdings of many accounts for many callers, with as few statements as possible.
///
/// Calls made while statements are in flight are queued; the arrival of an answer sends the next
/// statement, which reads all of them at a quarter of the cost of single reads. A call that finds
/// none in flight sends one at once.
final class HoldingBatcher: Sendable {
  typealias Completion = @Sendable (Result<HoldingRows, any Error>) -> Void

  /// Statements in flight at most: the second one covers the round trip of the first.
  private static let maximumStatements = 2
  /// Callers are launching apps: fail fast, so that their retry may reach another server.
  private static let deadline: Duration = .seconds(10)
  /// Accounts per statement at most; larger statements are not faster.
  static let maximumBatch = 200

  private struct Question: Sendable {
    let accountIDs: [String]
    let completion: Completion
  }

  private struct State: Sendable {
    var waiting: [Question] = []
    var statements = 0

    /// Removes the calls for the next statement, longest waiting first.
    mutating func nextBatch() -> [Question] {
      var accounts = 0
      let end = waiting.firstIndex { question in
        accounts += question.accountIDs.count
        return accounts > maximumBatch
      }
      // A request larger than a batch gets its own statement.
      let batch = waiting.prefix(max(1, end ?? waiting.count))
      waiting.removeFirst(batch.count)
      return Array(batch)
    }
  }

  private let database: ConnectionPool
  private let state = Mutex(State())
  /// Reads a standby's applied log position, in front of the rows; nil for the primary.
  private let position: SQL?
  private let deadline: Duration
  /// Accounts that it has are not read, and its changes are asked for instead; nil: none.
  private let cache: EntitlementCache?

  /// - Parameter position: Reads a standby's log position, which the rows carry then.
  init(
    database: ConnectionPool, position: SQL? = nil, deadline: Duration = deadline,
    cache: EntitlementCache? = nil
  ) {
    self.database = database
    self.position = position
    self.deadline = deadline
    self.cache = cache
  }

  /// Reads the holdings of some accounts, batched with concurrent calls.
  ///
  /// - Parameter completion: Called once, on the thread that serves PostgreSQL: it must not block.
  func read(_ accountIDs: [String], completion: @escaping Completion) {
    let batch = state.withLock { state -> [Question] in
      state.waiting.append(Question(accountIDs: accountIDs, completion: completion))
      guard state.statements < Self.maximumStatements else { return [] }
      state.statements += 1
      return state.nextBatch()
    }
    if !batch.isEmpty { send(batch) }
  }

  private func send(_ batch: [Question], mayUseCache: Bool = true) {
    let accountIDs = batch.count == 1 ? batch[0].accountIDs : batch.flatMap(\.accountIDs)
    let inquiry = mayUseCache ? cache?.inquiry(for: accountIDs) : nil
    let asked = inquiry?.missing ?? accountIDs
    // Changes last: rows of an account that is not among them are right as of their snapshot.
    let statements = [position, asked.isEmpty ? nil : Self.statement(asked), inquiry?.changes]
      .compactMap(\.self)
    database.batch(statements, deadline: deadline) { [self] outcome in
      if inquiry != nil, case .failure(let error) = outcome, Self.isRefusal(error) {
        cache?.refuse(error)
        return send(batch, mayUseCache: false)
      }
      let answers = outcome.flatMap { results in
        Result {
          var results = results[...]
          let standby = position == nil ? nil : results.popFirst()
          var rows = try HoldingRows(asked.isEmpty ? nil : results.popFirst())
          if let standby { rows.position = try LogPosition.positions(from: standby).first ?? nil }
          if asked.count < accountIDs.count { rows.asked = Set(asked.map(AccountID.init(_:))) }
          return rows
        }
      }
      guard let cache, let inquiry, case .success(let results) = outcome else {
        return answer(batch, answers)
      }
      cache.settle(results[results.count - 1], inquiry) { [self] ticket in
        answer(
          batch,
          answers.map { rows in
            var rows = rows
            rows.ticket = ticket
            return rows
          })
      }
    }
  }

  private func answer(_ batch: [Question], _ rows: Result<HoldingRows, any Error>) {
    let (next, refused) = state.withLock { state -> ([Question], [Question]) in
      var refused: [Question] = []
      if case .failure(let error) = rows, position != nil || Self.isOutage(error) {
        // Fail queued calls, too: a standby's fall back, and a primary would time out again.
        swap(&refused, &state.waiting)
      }
      let next = state.nextBatch()
      if next.isEmpty { state.statements -= 1 }
      return (next, refused)
    }
    // The next statement is in flight while the callers decode these rows.
    if !next.isEmpty { send(next) }
    for question in batch { question.completion(rows) }
    for question in refused { question.completion(rows) }
  }

  /// Whether the server did not answer, as opposed to rejecting the statement.
  private static func isOutage(_ error: any Error) -> Bool {
    switch (error as? PostgresError)?.code {
    case .connectionFailed, .poolTimeout, .timedOut: true
    case .connectionLost, .server, .decoding, .closed, .invalidRequest, nil: false
    }
  }

  /// Whether the server will reject the statement again.
  private static func isRefusal(_ error: any Error) -> Bool {
    guard let error = error as? PostgresError, error.code == .server else { return false }
    return !error.isTransient && error.sqlState != .queryCanceled
  }

  /// Reads one account, batched, or several with their own statement; cancelling affects no others.
  func read(_ accountIDs: [String]) async throws -> HoldingRows {
    guard accountIDs.count == 1 else {
      return try HoldingRows(await database.query(Self.statement(accountIDs), deadline: deadline))
    }
    // Without this check, a cancelled task could still receive an answer.
    try Task.checkCancellation()
    let (answers, answer) = AsyncThrowingStream.makeStream(of: HoldingRows.self)
    read(accountIDs) {
      answer.yield(with: $0)
      answer.finish()
    }
    for try await rows in answers { return rows }
    throw CancellationError()
  }

  /// Selects holdings and grants, as ``HoldingRows``, in one snapshot.
  ///
  /// A decision replaces a provisional grant by a holding, and a read must not miss both.
  ///
  /// - Parameter submission: One whose provisional grants are left out.
  static func statement(_ accountIDs: [String], withoutGrantsOf submission: UUID? = nil) -> SQL {
    var condition: SQL = "account_id \(anyOf: accountIDs)"
    if let submission { condition.append(" AND submission_id IS DISTINCT FROM \(submission)") }
    return """
      \(select(accountIDs))
      UNION ALL
      \(selectGrants(where: condition))
      """
  }

  static func select(_ accountIDs: [String]) -> SQL {
    """
    SELECT account_id, environment, original_transaction_id, transaction_id, product_id, starts_at,
      ends_at, linked_to, product_type, period_type, revoked_at, superseded_at, moved_at,
      auto_renews, phase, grace_ends_at, is_sharing_ended, NULL::uuid AS grant_id,
      NULL::text AS entitlement, NULL::text AS source
    FROM tenure.holding WHERE account_id \(anyOf: accountIDs)
    """
  }

  static func select(_ accountIDs: [String], of lines: [OriginalTransactionKey]) -> SQL {
    """
    \(select(accountIDs))
      AND original_transaction_id = ANY(\(lines.map(\.originalTransactionID)))
    """
  }

  /// Selects grants, with the columns of ``statement(_:withoutGrantsOf:)``.
  static func selectGrants(revokedAt: SQL = "revoked_at", where condition: SQL) -> SQL {
    """
    SELECT account_id, environment, original_transaction_id, NULL::text, NULL::text, starts_at,
      ends_at, NULL::text, NULL::text, NULL::text, \(revokedAt), NULL::timestamptz,
      NULL::timestamptz, NULL::boolean, NULL::text, NULL::timestamptz, NULL::boolean, grant_id,
      entitlement, source
    FROM tenure.account_grant WHERE \(condition)
    """
  }
}

/// Rows read for many accounts at once; each caller decodes its own, which spreads the work and
/// limits a decoding error to its account.
struct HoldingRows: Sendable {
  private let rows: Rows?
  /// The accounts that were read, others being in the cache; nil: all.
  var asked: Set<AccountID>?
  /// The right to answers of the cache; nil: none.
  var ticket: EntitlementCache.Ticket?
  /// The last row of each account, and for each row the account's row before it.
  private var last: [AccountID: Int] = [:]
  private var previous: [Int?] = []
  /// The log position that a standby had applied before the read; nil from the primary.
  var position: LogPosition?

  init(_ rows: Rows?) throws {
    self.rows = rows
    guard let rows else { return }
    let count = rows.count
    guard count > 0 else { return }
    last.reserveCapacity(count)
    previous.reserveCapacity(count)
    for row in 0..<count {
      var cursor = RowCursor(rows: rows, row: row)
      previous.append(last.updateValue(row, forKey: AccountID(try cursor.next(String.self))))
    }
  }

  func holdings(of accountID: String) throws -> AccountHoldings {
    var found = AccountHoldings()
    guard let rows else { return found }
    var next = last.isEmpty ? nil : last[AccountID(accountID)]
    while let row = next {
      if let grant = try rows.decodeGrant(row) {
        found.grants.append(grant)
      } else {
        found.holdings.append(try rows.decodeHolding(row).holding)
      }
      next = previous[row]
    }
    return found
  }
}

extension Rows {
  /// Decodes a row of `holding` column by column (see `RowCursor`): it runs on every read.
  func decodeHolding(_ row: Int) throws -> (accountID: String, holding: Holding) {
    var cursor = RowCursor(rows: self, row: row)
    let accountID = try cursor.next(String.self)
    let charge = try TransactionKey(
      cursor.next(Environment.self), cursor.next(OriginalTransactionID.self),
      cursor.next(TransactionID.self), cursor.next(ProductID.self))
    var holding = try Holding(
      charge: charge, productID: charge.productID, startsAt: cursor.next(Timestamp.self),
      endsAt: cursor.next(Timestamp?.self))
    holding.linkedTo = try cursor.next(OriginalTransactionID?.self)
    holding.productType = try cursor.next(ProductType?.self)
    holding.periodType = try cursor.next(PeriodType.self)
    holding.revokedAt = try cursor.next(Timestamp?.self)
    holding.supersededAt = try cursor.next(Timestamp?.self)
    holding.movedAt = try cursor.next(Timestamp?.self)
    let autoRenews = try cursor.next(Bool?.self)
    let phase = try cursor.next(String?.self)
    holding.graceEndsAt = try cursor.next(Timestamp?.self)
    holding.isSharingEnded = try cursor.next(Bool.self)
    if let autoRenews, let phase {
      holding.renewal = Holding.Renewal(
        autoRenews: autoRenews,
        phase: try RenewalStatus.Phase(
          name: phase, graceEndsAt: phase == "grace_period" ? holding.graceEndsAt : nil))
    }
    return (accountID, holding)
  }

  func decodeHoldings() throws -> [(accountID: String, holding: Holding)] {
    try (0..<count).map(decodeHolding)
  }

  /// Decodes a row of `account_grant`; nil for a row of `holding`.
  func decodeGrant(_ row: Int) throws -> Grant? {
    var own = RowCursor(rows: self, row: row, column: 17)
    guard let id = try own.next(UUID?.self) else { return nil }
    let entitlement = try own.next(String.self)
    let source = try own.next(Entitlement.Source.self)
    var shared = RowCursor(rows: self, row: row, column: 1)
    let environment = try shared.next(Environment?.self)
    let original = try shared.next(OriginalTransactionID?.self)
    shared.column = 5
    var grant = Grant(
      id: id, entitlement: entitlement, startsAt: try shared.next(Timestamp.self),
      endsAt: try shared.next(Timestamp?.self), source: source)
    shared.column = 10
    grant.revokedAt = try shared.next(Timestamp?.self)
    if let environment, let original { grant.line = OriginalTransactionKey(environment, original) }
    return grant
  }

  func decodeGrants() throws -> [Grant] { try (0..<count).compactMap(decodeGrant) }
}
