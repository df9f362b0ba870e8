import Synchronization

/// The rows of a query, piece by piece as their reader takes them, all as of one moment.
///
/// It has a connection to itself, which goes back to the others after the last piece, and with
/// ``close()``. Where nobody did either, the connection is closed with the last reference: a reader
/// who was never heard of again is no reason to keep it.
package final class Cursor: Sendable {
  private enum State {
    /// A piece has come that nobody has taken yet.
    case ahead(Rows)
    case open
    case closed
  }

  private let transaction: Transaction
  private let rowsAtOnce: Int
  private let deadline: Duration?
  private let state: Mutex<State>

  /// Opens it and has the first piece come.
  init(
    _ transaction: Transaction, _ query: SQL, _ settings: [SQL], rowsAtOnce: Int,
    idleTimeout: Duration, deadline: Duration?
  ) async throws {
    self.transaction = transaction
    self.rowsAtOnce = rowsAtOnce
    self.deadline = deadline
    let milliseconds = max(1, Int(idleTimeout / .milliseconds(1)))
    let opening: [SQL] =
      settings + [
        SQL(unescaped: "SET LOCAL idle_in_transaction_session_timeout = \(milliseconds)"),
        // All of the rows are wanted, and not only the first few of them soon.
        "SET LOCAL cursor_tuple_fraction = 1",
        "DECLARE pieces NO SCROLL CURSOR FOR \(query)",
      ]
    let first = try await transaction.batch(
      opening + [Self.fetch(rowsAtOnce)], deadline: deadline)[opening.count]
    state = Mutex(.ahead(first))
    if first.count < rowsAtOnce { await transaction.rollBack() }
  }

  deinit {
    PostgresLoop.submit { [transaction] in transaction.pool.driver.end(transaction.session) }
  }

  /// The next rows, one at least; nil: there are no more.
  ///
  /// One reader asks for them, one piece after the other.
  ///
  /// - Throws: ``PostgresError``; the cursor is closed then.
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
    // Not only when the reader has sent these on, which can take him long.
    if rows.count < rowsAtOnce { await close() }
    return rows.isEmpty ? nil : rows
  }

  /// Gives the connection back, whatever has not been read.
  package func close() async {
    state.withLock { $0 = .closed }
    await transaction.rollBack()
  }

  private static func fetch(_ rows: Int) -> SQL {
    SQL(unescaped: "FETCH FORWARD \(rows) FROM pieces")
  }
}
