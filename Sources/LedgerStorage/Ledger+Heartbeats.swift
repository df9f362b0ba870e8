import Postgres
package import Subscriptions

extension Ledger {
  /// Notes that a server is alive, and has histories compared now where none was for a while.
  ///
  /// Both in one database transaction: Apple's notification histories are compared with the inbox.
  /// Several servers may run: whichever was alive last counts.
  ///
  /// - Parameters:
  ///   - now: When.
  ///   - pause: How long none may be alive before anything is missed.
  ///   - histories: The apps whose histories Apple can be asked for.
  /// - Returns: When a server was alive last before, nil: never; and whether that is too long ago.
  /// - Throws: What the database says.
  package func beat(
    at now: Timestamp, longestPause pause: Duration,
    histories: [(bundleID: String, environment: Environment)]
  ) async throws -> (last: Timestamp?, isLate: Bool) {
    let (last, isLate) = try await database.withTransaction { transaction in
      let last = try await transaction.batch([
        "SELECT max(alive_at) FROM tenure.program_heartbeat WHERE program = 'serve'",
        """
        INSERT INTO tenure.program_heartbeat AS known (program, alive_at) VALUES ('serve', \(now))
        ON CONFLICT (program) DO UPDATE SET alive_at = greatest(known.alive_at, excluded.alive_at)
        """,
      ])[0].decodeOnly(Timestamp?.self)
      let isLate = last.map { now - $0 > pause } ?? true
      try await transaction.commit(
        with: isLate
          ? histories.map {
            Self.scheduleComparison(bundleID: $0.bundleID, environment: $0.environment, at: now)
          } : [])
      return (last, isLate)
    }
    if isLate { bell.ring(.jobs) }
    return (last, isLate)
  }
}
