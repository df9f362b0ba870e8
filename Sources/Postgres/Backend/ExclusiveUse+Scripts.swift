internal import CLibpq

extension ExclusiveUse {
  /// Begins on the connection that a session has.
  static func begin(_ session: Session, timeout: Duration) async throws -> ExclusiveUse {
    switch session.state {
    case .leased(let backend):
      let use = try ExclusiveUse(of: backend, timeout: timeout)
      await use.settle()
      return use
    case .ended(let reason): throw reason
    case .unused, .waiting: throw Session.endedNormally
    }
  }

  /// Runs a script to its end; results with rows are dropped.
  func runScript(_ text: String) async throws {
    try await withTaskCancellationHandler {
      try send(text)
      while try await nextResult() != nil {}
    } onCancel: {
      PostgresLoop.submit { self.cancel() }
    }
  }

  /// Begins COPY FROM STDIN.
  func beginCopy(_ text: String) async throws {
    try send(text)
    guard let result = try await nextResult(), result.status == PGRES_COPY_IN else {
      throw PostgresError(
        .invalidRequest, "this statement is not COPY … FROM STDIN", statement: text)
    }
  }

  /// Ends COPY, keeping what was sent; with a reason it is discarded.
  ///
  /// - Returns: the number of rows.
  func endCopy(aborting reason: String? = nil) async throws -> Int {
    guard putCopyEnd(aborting: reason) else { throw failure }
    var rows = 0
    while let result = try await nextResult() { rows = result.affectedRows }
    return rows
  }
}
