/// The phase of a transaction, and BEGIN and its settings, which are sent with the next statements.
struct TransactionState {
  private enum Phase { case open, committing, finished }

  private var phase = Phase.open
  private var pending: [SQL]
  private(set) var wasSent = false
  private var commitWasSent = false
  private var isCommitted = false
  private(set) var failure: PostgresError?
  /// Whether the server's progress is unknown, so that only a rollback is possible.
  private var isBroken = false

  init(isolation: IsolationLevel, readOnly: Bool, settings: [SQL]) {
    var begin = "BEGIN ISOLATION LEVEL \(isolation.rawValue)"
    if readOnly { begin += " READ ONLY" }
    pending = [SQL(unescaped: begin)] + settings
  }

  var isOpen: Bool { phase == .open }

  mutating func takePending(committing: Bool) throws(PostgresError) -> [SQL] {
    guard phase == .open else { throw Session.endedNormally }
    guard !isBroken else {
      throw failure
        ?? PostgresError(.closed, "the transaction has failed and can only be rolled back")
    }
    defer { pending.removeAll() }
    wasSent = true
    if committing {
      phase = .committing
      commitWasSent = true
    }
    return pending
  }

  mutating func finish(committed: Bool) {
    phase = .finished
    isCommitted = committed
  }

  /// Records a failure; after a server's error the transaction is aborted but still open there.
  mutating func fail(_ error: any Error) {
    failure = error as? PostgresError
    if phase == .committing {
      phase = .open
      if failure?.wasNotSent == true { commitWasSent = false }
    }
    if failure?.code != .server { isBroken = true }
    if failure?.isServerUnavailable == true { isBroken = true }
  }

  /// Ends the transaction on this side; returns whether the server needs a ROLLBACK.
  mutating func mustRollBack() -> Bool {
    defer { phase = .finished }
    return phase != .finished && wasSent
  }

  /// Whether the transaction should run again: the cause was external, and nothing was committed.
  func shouldRunAgain(after error: any Error) -> Bool {
    guard let cause = error as? PostgresError ?? failure else { return false }
    guard !isCommitted else { return false }
    let wasLost = cause.code == .connectionLost || cause.sqlState == .adminShutdown
    return cause.isRetryableTransaction || (wasLost && !commitWasSent)
  }
}
