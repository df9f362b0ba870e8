internal import DequeModule

extension Backend {
  /// Puts a request into the pipeline; it leaves with the end of the loop's turn.
  func send(_ request: Request) {
    guard !isClosed else {
      return request.connectionClosed(PostgresError(.connectionLost, "the connection is closed"))
    }
    if steps.isEmpty { headSince = Reactor.shared.now }
    for index in request.statements.indices {
      guard send(request, index) else { return closeAfterFailedSend(request) }
    }
    guard handle.sync() else { return closeAfterFailedSend(request) }
    steps.append(.sync(request))
    flushSoon()
    if request.session == nil { deallocateEvicted() }
  }

  private func send(_ request: Request, _ index: Int) -> Bool {
    let sql = request.statements[index]
    guard usesPreparedStatements else {
      steps.append(.execute(request, index: index, name: nil))
      return handle.executeUnnamed(sql)
    }
    let name: String
    switch statements.lookUp(sql) {
    case .prepared(let known):
      name = known
    case .mustPrepare(let new):
      name = new
      guard handle.prepare(sql, name: name) else { return false }
      steps.append(.prepare(request, name: name))
    }
    steps.append(.execute(request, index: index, name: name))
    return handle.execute(sql, name: name)
  }

  /// libpq refuses to send only when the connection or its memory has failed.
  private func closeAfterFailedSend(_ request: Request) {
    steps.append(.sync(request))
    closeAsLost()
  }

  /// Frees the plans of statements that gave way to others, in a group of their own so that nothing
  /// depends on it.
  ///
  /// Not during a transaction, where it could fail with the others.
  func deallocateEvicted() {
    for name in statements.takeEvicted() {
      let request = Request(
        [SQL(unescaped: "DEALLOCATE \(name)")], isHousekeeping: true, timeout: .seconds(30))
      guard handle.executeUnnamed(request.statements[0]), handle.sync() else {
        return closeAsLost()
      }
      steps.append(.execute(request, index: 0, name: nil))
      steps.append(.sync(request))
      flushSoon()
    }
  }
}
