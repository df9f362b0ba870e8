import Postgres

extension Ledger {
  /// Whether an error means that the database can't be reached or can't answer now: ask again
  /// later.
  package static func isUnavailable(_ error: any Error) -> Bool {
    guard let error = error as? PostgresError else { return false }
    return error.isTransient || error.code == .closed
  }
}
