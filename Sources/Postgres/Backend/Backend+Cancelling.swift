internal import DequeModule

extension Backend {
  /// How long the server may take to give up a statement before its connection is given up instead.
  static let cancellationGrace = Duration.seconds(2)

  /// A cancellation can arrive after its statement has ended and hit the next one, for as long as
  /// it may be on its way.
  private static let cancellationEcho = Duration.seconds(5)

  var wasCancellingRecently: Bool {
    guard let lastCancellation else { return isCancelling }
    return isCancelling || Reactor.shared.now - lastCancellation < Self.cancellationEcho
  }

  /// Cancels what the server is running if nobody wants it any more.
  ///
  /// Only the head of the pipeline is being run. What stands behind it is looked at again when it
  /// gets there; most of it will be answered before one cancellation has made its way.
  func cancelHeadIfUnwanted() {
    if steps.first?.request.cancelledAt != nil { sendCancellation() }
  }

  /// Asks the server to give up what it is running; one cancellation at a time is on its way.
  func sendCancellation() {
    guard !isClosed, !isCancelling, let cancellation = handle.makeCancellation() else { return }
    isCancelling = true
    lastCancellation = Reactor.shared.now
    // Weak, for on a frozen server this is never called, and the connection has to be closed all
    // the same.
    cancellation.send { [weak self] in
      self?.isCancelling = false
      self?.lastCancellation = Reactor.shared.now
      self?.exclusive?.wake()
    }
  }

  /// Whether a failure is the work of a cancellation that was meant for somebody else.
  func isStray(_ failure: PostgresError) -> Bool {
    failure.sqlState == .queryCanceled && wasCancellingRecently && !failure.isStatementTimeout
  }

  /// Answers those whose deadline has passed, and gives up a server that doesn't react.
  func enforceDeadlines(now: ContinuousClock.Instant) {
    for case .sync(let request) in steps where now >= request.deadline && !request.isAnswered {
      request.cancel(now: now)
      request.complete(
        .failure(
          PostgresError(
            .timedOut, "the server did not answer within \(request.timeout)",
            statement: request.statements.first?.text)))
    }
    if let cancelledAt = steps.first?.request.cancelledAt,
      now > max(cancelledAt, headSince) + Self.cancellationGrace
    {
      return close(PostgresError(.connectionLost, "the server did not react to a cancellation"))
    }
    cancelHeadIfUnwanted()
    exclusive?.enforceDeadline(now: now)
    lookBehindTLS()
  }
}
