import Synchronization

/// The rows of a query in chunks, all from one snapshot, on a connection of its own: returned after
/// the last chunk and on ``close()``, closed when the last reference is dropped.
package final class Cursor: Sendable {
  private enum State {
    /// A chunk that was fetched and not yet read.
    case ahead(Rows)
    case open
    case closed
  }

  private let transaction: Transaction
  private let rowsAtOnce: Int
  private let deadline: Duration?
  private let state: Mutex<State>

  init(
    _ transaction: Transaction, _ query: SQL, _ settings: [SQL], rowsAtOnce: Int,
    idleTimeout: Duration, deadline: Duration?
  ) async throws {
    (self.transaction, self.rowsAtOnce, self.deadline) = (transaction, rowsAtOnce, deadline)
    let milliseconds = max(1, Int(idleTimeout / .milliseconds(1)))
    let opening: [SQL] =
      settings + [
        SQL(unescaped: "SET LOCAL idle_in_transaction_session_timeout = \(milliseconds)"),
        // Plan for reading all rows, not for the first few.
        "SET LOCAL cursor_tuple_fraction = 1", "DECLARE pieces NO SCROLL CURSOR FOR \(query)",
      ]
    let first = try await transaction.batch(
      opening + [Self.fetch(rowsAtOnce)], deadline: deadline)[opening.count]
    state = Mutex(.ahead(first))
    if first.count < rowsAtOnce { await transaction.rollBack() }
  }

  deinit {
    PostgresLoop.submit { [transaction] in transaction.pool.driver.end(transaction.session) }
  }

  /// The next chunk, with at least one row; nil at the end, and an error closes the cursor.
  package func next() async throws -> Rows? {
    let before = state.withLock { state in
      defer { if case .ahead = state { state = .open } }
      return state
    }
    let rows: Rows
    switch before {
    case .closed: return nil
    case .ahead(let first): rows = first
    case .open:
      do {
        rows = try await transaction.batch([Self.fetch(rowsAtOnce)], deadline: deadline)[0]
      } catch {
        await close()
        throw error
      }
    }
    // Closed before the reader has processed these rows, which may take long.
    if rows.count < rowsAtOnce { await close() }
    return rows.isEmpty ? nil : rows
  }

  package func close() async {
    state.withLock { $0 = .closed }
    await transaction.rollBack()
  }

  private static func fetch(_ rows: Int) -> SQL {
    SQL(unescaped: "FETCH FORWARD \(rows) FROM pieces")
  }
}
