/// The exclusive use of one connection, from the first request that needs it until it is given
/// back.
///
/// It is taken with the first request and not before: a transaction whose body computes first holds
/// nothing while it does, and asking for a connection is no hop of its own.
@PostgresLoop
final class Session {
  enum State {
    case unused
    /// Waiting for a connection; what it asks for meanwhile is kept in order.
    case waiting([Request])
    case leased(Backend)
    /// Given back, or its connection was lost.
    case ended(PostgresError)
  }

  var state = State.unused

  nonisolated init() {}

  /// The server process behind it, as its connection was told; nil while it has none.
  var processID: Int32? {
    if case .leased(let backend) = state { backend.handle.processID } else { nil }
  }

  nonisolated static let endedNormally = PostgresError(
    .closed, "the transaction or connection was used after its end")
}
