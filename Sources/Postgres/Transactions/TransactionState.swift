/// What a transaction has still to say to the server, and how far it has come; without any I/O.
///
/// BEGIN with the transaction's settings, SAVEPOINT and what ends a savepoint are not sent by
/// themselves: they go in front of the next statements.
struct TransactionState {
  private enum Phase { case open, committing, finished }

  private var phase = Phase.open
  private var pending: [SQL]
  /// The number of requests that have taken the pending statements with them.
  private var sent = 0
  private var savepoints = 0
  private var commitWasSent = false
  private var isCommitted = false
  /// The last failure that has made the transaction useless.
  private(set) var failure: PostgresError?
  /// Set when it is not known what the server has seen; only rolling back makes sense then.
  private var isBroken = false

  struct Savepoint {
    fileprivate let name: String
    fileprivate let sentBefore: Int
    fileprivate let pendingBefore: Int
  }

  init(isolation: IsolationLevel, readOnly: Bool, settings: [SQL] = []) {
    var begin = "BEGIN ISOLATION LEVEL \(isolation.rawValue)"
    if readOnly { begin += " READ ONLY" }
    pending = [SQL(unescaped: begin)] + settings
  }

  var isOpen: Bool { phase == .open }
  var wasSent: Bool { sent > 0 }

  /// Takes what goes in front of the next statements.
  mutating func takePending(committing: Bool) throws(PostgresError) -> [SQL] {
    guard phase == .open else { throw Session.endedNormally }
    guard !isBroken else {
      throw failure
        ?? PostgresError(.closed, "the transaction has failed and can only be rolled back")
    }
    defer { pending.removeAll() }
    sent += 1
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

  /// Notes a failure.
  ///
  /// After the server's own answer the transaction still stands there, though
  /// aborted.
  mutating func fail(_ error: any Error) {
    failure = error as? PostgresError
    if phase == .committing {
      phase = .open
      if failure?.wasNotSent == true { commitWasSent = false }
    }
    if failure?.code != .server { isBroken = true }
    if failure?.isServerUnavailable == true { isBroken = true }
  }

  /// Ends the transaction from our side, and says whether the server has to hear of it.
  mutating func mustRollBack() -> Bool {
    defer { phase = .finished }
    return phase != .finished && wasSent
  }

  mutating func beginSavepoint() -> Savepoint {
    savepoints += 1
    let savepoint = Savepoint(
      name: "s\(savepoints)", sentBefore: sent, pendingBefore: pending.count)
    pending.append(SQL(unescaped: "SAVEPOINT \(savepoint.name)"))
    return savepoint
  }

  mutating func endSavepoint(_ savepoint: Savepoint, rollingBack: Bool) {
    savepoints -= 1
    guard sent > savepoint.sentBefore else {
      // Nothing was sent since: not even the savepoint.
      pending.removeSubrange(savepoint.pendingBefore...)
      return
    }
    if rollingBack {
      pending = [SQL(unescaped: "ROLLBACK TO SAVEPOINT \(savepoint.name)")]
      if !isBroken { failure = nil }
    }
    pending.append(SQL(unescaped: "RELEASE SAVEPOINT \(savepoint.name)"))
  }

  /// Whether the whole transaction may be run again: it failed through no fault of its own and has
  /// changed nothing.
  func shouldRunAgain(after error: any Error) -> Bool {
    guard let cause = error as? PostgresError ?? failure else { return false }
    guard !isCommitted else { return false }
    let wasLost = cause.code == .connectionLost || cause.sqlState == .adminShutdown
    return cause.isRetryableTransaction || (wasLost && !commitWasSent)
  }
}
