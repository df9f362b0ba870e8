internal import CLibpq
internal import DequeModule

extension Backend {
  /// The function of the server's source that has reported an error (PG_DIAG_SOURCE_FUNCTION).
  private static let functionField = Int32(UInt8(ascii: "R"))

  /// Takes what has arrived, and answers whoever it was for.
  func read() {
    let isConnected = handle.consumeInput()
    processResults()
    // libpq takes no more than one record a call, and OpenSSL holds it where the socket doesn't
    // show it.
    if isConnected, handle.usesTLS, !isClosed {
      for _ in 0..<2 where handle.consumeInput() { processResults() }
    }
    while !isClosed, let notification = handle.nextNotification() {
      owner?.backend(self, received: notification)
    }
    if !isClosed, !isConnected || !handle.isUsable { closeAsLost() }
  }

  /// Reads what OpenSSL may still hold while the socket has nothing to show.
  ///
  /// libpq makes room for at least 8 KB a call, and a record has at most 16 KB, so the two calls
  /// more that each reading makes nearly always have everything; this, at each sweep, makes it
  /// always.
  func lookBehindTLS() {
    guard !isClosed, handle.usesTLS else { return }
    if let exclusive { exclusive.wake() } else { read() }
  }

  private func processResults() {
    while !isClosed, let step = steps.first, !handle.isBusy {
      let result = handle.nextResult()
      switch step {
      case .sync(let request):
        guard let result else {
          // Comes after an error at the sync point itself, and nowhere else.
          guard request.failure != nil, handle.isUsable else { return closeAsLost() }
          continue
        }
        guard result.status == PGRES_PIPELINE_SYNC else {
          takeAtSync(result, request)
          continue
        }
        steps.removeFirst()
        headSince = Reactor.shared.now
        finish(request)
      case .prepare, .execute:
        if let result { take(result, step) } else { steps.removeFirst() }
      }
    }
    cancelHeadIfUnwanted()
  }

  private func take(_ result: ResultHandle, _ step: Step) {
    switch (step, result.status) {
    case (.prepare, PGRES_COMMAND_OK):
      break
    case (.execute(let request, let index, _), PGRES_TUPLES_OK),
      (.execute(let request, let index, _), PGRES_COMMAND_OK),
      (.execute(let request, let index, _), PGRES_EMPTY_QUERY):
      request.add(result, of: index)
    case (.prepare(let request, let name), PGRES_FATAL_ERROR):
      statements.forget(name: name)
      take(error: result, request, index: nil)
    case (.prepare(_, let name), PGRES_PIPELINE_ABORTED):
      statements.forget(name: name)
    case (.execute(let request, let index, let name), PGRES_FATAL_ERROR):
      take(error: result, request, index: index)
      if let name, request.failure?.isStalePlan == true { statements.forget(name: name) }
    case (.execute(let request, _, let name), PGRES_PIPELINE_ABORTED):
      // After one stale plan the request's others are suspect, and there is only one repetition.
      if let name, request.failure?.isStalePlan == true { statements.forget(name: name) }
    default:
      unexpected(step.request)
    }
  }

  /// All statements have been answered, and yet an error: the commit has failed that the sync point
  /// stands for, as by a deferred constraint, or the server is going away.
  private func takeAtSync(_ result: ResultHandle, _ request: Request) {
    guard let error = result.serverError else { return unexpected(request) }
    guard error.isFatal else { return request.fail(error, at: request.statements.count - 1) }
    var reason = PostgresError(.connectionLost, error.message)
    reason.sqlState = error.sqlState
    reason.severity = error.severity
    close(reason)
  }

  private func take(error result: ResultHandle, _ request: Request, index: Int?) {
    guard var error = result.serverError else { return closeAsLost() }
    error.isRefusedPlan = result.field(Self.functionField) == "RevalidateCachedQuery"
    request.fail(error, at: index ?? nextIndex(of: request))
  }

  /// A statement being prepared is the one that is executed next.
  private func nextIndex(of request: Request) -> Int {
    for case .execute(let other, let index, _) in steps.prefix(2) where other === request {
      return index
    }
    return 0
  }

  /// Such as COPY sent as an ordinary statement: libpq cannot go on from there.
  private func unexpected(_ request: Request) {
    guard handle.isUsable else { return closeAsLost() }
    request.fail(
      PostgresError(
        .invalidRequest,
        "this statement cannot be sent in a pipeline; COPY has a method of its own"),
      at: nextIndex(of: request))
    close(PostgresError(.connectionLost, "another statement has made the connection unusable"))
  }

  private func finish(_ request: Request) {
    guard !request.isHousekeeping else { return }
    if handle.takeUnreplicatedCommit() {
      request.fail(.unreplicatedCommit, at: request.statements.count - 1)
    }
    if let failure = request.failure, let owner, mayRepeat(request, after: failure) {
      request.prepareToRepeat()
      return owner.backend(self, wantsRepeat: request)
    }
    request.finish()
    if request.failure?.sqlState == .readOnlyTransaction {
      // The server may no longer be the primary: the next connection finds the one that is.
      return close(PostgresError(.connectionLost, "the server takes no writes"))
    }
    owner?.backend(self, finished: request)
  }

  /// Whether to send a request once more: its transaction was its own and has been rolled back, and
  /// it was not to blame.
  private func mayRepeat(_ request: Request, after failure: PostgresError) -> Bool {
    let isVictim = request.cancelledAt == nil && isStray(failure)
    if isVictim { request.blameCancellation() }
    guard request.session == nil, !request.isRepeated, !request.isAnswered else { return false }
    return isVictim || failure.isStalePlan
  }
}
