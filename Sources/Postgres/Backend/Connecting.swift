import Secrets

/// Makes connections without blocking the loop or the cooperative pool.
///
/// On a thread of its own for each attempt, with libpq's blocking call. Its non-blocking pair
/// PQconnectStart and PQconnectPoll would cost more than it saves: it looks up names blocking all
/// the same (manual, "Database Connection Control Functions"), and it leaves `connect_timeout` to
/// the caller, who has no means to make libpq go on to the next host. So a frozen first host of
/// several could not be passed by. Attempts are as few as connections.
enum Connecting {
  /// Connects, then calls back on the loop.
  static func start(
    _ configuration: ConnectionPool.Configuration, uri: Secret<String>,
    then finished: @escaping @Sendable @PostgresLoop (Result<Backend, PostgresError>) -> Void
  ) {
    let isStarted = Threads.start(named: "postgres-open") {
      let outcome: Result<Backend, PostgresError>
      do throws(PostgresError) {
        let handle = try ConnectionHandle.connect(configuration.parameters(uri: uri))
        outcome = .success(Backend(handle, configuration))
      } catch {
        outcome = .failure(error)
      }
      PostgresLoop.submit { finished(outcome) }
    }
    if !isStarted {
      let failure = PostgresError(.connectionFailed, "the process cannot start another thread")
      PostgresLoop.submit { finished(.failure(failure)) }
    }
  }
}
