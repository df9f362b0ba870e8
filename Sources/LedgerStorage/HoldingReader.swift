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
/// waiting on purpose would not pay. The caller that finds no statement out sends one for itself
/// and for whoever came meanwhile, and hands over to one of those who came later.
final class HoldingReader: Sendable {
  /// How many statements are out at the most: the second covers the other's way back.
  private static let maximumLeaders = 2
  /// The most accounts in one statement: PostgreSQL gains nothing beyond.
  private static let maximumBatch = 200

  private enum Signal: Sendable {
    case result(HoldingRows)
    case lead
    case failure(any Error)
  }

  private struct Waiter: Sendable {
    var accountID: String
    var continuation: CheckedContinuation<Signal, Never>
  }

  private struct State: Sendable {
    var waiters: [Waiter] = []
    var leaders = 0
  }

  private let database: ConnectionPool
  private let state = Mutex(State())

  init(database: ConnectionPool) {
    self.database = database
  }

  func holdings(of accountID: String) async throws -> AccountHoldings {
    let leads = state.withLock { state in
      guard state.leaders < Self.maximumLeaders else { return false }
      state.leaders += 1
      return true
    }
    if leads { return try await lead(for: accountID) }
    let signal = await withCheckedContinuation { continuation in
      let waiter = Waiter(accountID: accountID, continuation: continuation)
      let leads = state.withLock { state in
        guard state.leaders >= Self.maximumLeaders else {
          state.leaders += 1
          return true
        }
        state.waiters.append(waiter)
        return false
      }
      if leads { continuation.resume(returning: .lead) }
    }
    switch signal {
    case .result(let rows): return try rows.holdings(of: accountID)
    case .lead: return try await lead(for: accountID)
    case .failure(let error): throw error
    }
  }

  /// Reads for one caller and for those who wait, then lets the next one lead.
  private func lead(for accountID: String) async throws -> AccountHoldings {
    let followers = state.withLock { state in
      let followers = Array(state.waiters.prefix(Self.maximumBatch - 1))
      state.waiters.removeFirst(followers.count)
      return followers
    }
    let rows: HoldingRows
    do {
      rows = try await read([accountID] + followers.map(\.accountID))
    } catch {
      // A caller that gave up takes nobody with it: each of the others reads for itself.
      let isCancelled = Task.isCancelled
      if isCancelled { state.withLock { $0.leaders += followers.count } }
      for follower in followers {
        follower.continuation.resume(returning: isCancelled ? .lead : .failure(error))
      }
      handOver()
      throw error
    }
    // The next statement is on its way while everybody decodes rows of this one.
    handOver()
    for follower in followers { follower.continuation.resume(returning: .result(rows)) }
    return try rows.holdings(of: accountID)
  }

  /// Lets one of those who wait lead, unless more do already than should.
  private func handOver() {
    let next = state.withLock { state -> Waiter? in
      guard !state.waiters.isEmpty, state.leaders <= Self.maximumLeaders else {
        state.leaders -= 1
        return nil
      }
      return state.waiters.removeFirst()
    }
    next?.continuation.resume(returning: .lead)
  }

  /// Reads the holdings and grants of accounts in one round trip.
  func read(_ accountIDs: [String]) async throws -> HoldingRows {
    let results = try await database.batch(Self.statements(accountIDs))
    return try HoldingRows(holdings: results[0], grants: results[1])
  }

  /// The statements that read holdings and grants; `HoldingRows` understands their results.
  static func statements(_ accountIDs: [String]) -> [SQL] {
    [
      select(accountIDs),
      """
      SELECT account_id, grant_id, entitlement, starts_at, ends_at, source
      FROM tenure.account_grant WHERE account_id = ANY(\(accountIDs))
      """,
    ]
  }

  /// Reads all rows of `holding` of some accounts; `Rows.decodeHolding(_:)` understands them.
  static func select(_ accountIDs: [String]) -> SQL {
    """
    SELECT account_id, environment, original_transaction_id, transaction_id, product_id,
      family_id, product_type, period_type, starts_at, ends_at, revoked_at, superseded_at,
      auto_renews, phase, grace_ends_at
    FROM tenure.holding WHERE account_id = ANY(\(accountIDs))
    """
  }
}
