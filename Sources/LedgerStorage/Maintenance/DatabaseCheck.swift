package import Postgres
package import Subscriptions

/// What there is to know of a database before anything goes wrong with it.
package struct DatabaseExamination: Sendable {
  /// As in 170002.
  package let versionNumber: Int
  /// As in "17.2".
  package let version: String
  package let role: String
  package let isSuperuser: Bool
  /// Whether it is a standby, which takes no writes.
  package let isStandby: Bool
  /// Whether a PgBouncer stands between: the process that answers is not the one that was
  /// announced.
  package let isPooled: Bool
  /// By the database's clock, at the moment of its answer.
  package let time: Timestamp
  /// The settings without which a crash can lose what was confirmed, as they are.
  package let durability: [(setting: String, value: String)]
  package let hasAutovacuum: Bool
  /// Whether statements are compiled that the planner thinks dear.
  package let compilesStatements: Bool

  /// Examines a database whatever it holds.
  ///
  /// - Throws: What the database says.
  package init(_ database: ConnectionPool) async throws {
    let (rows, announced) = try await database.withConnection { connection in
      let rows = try await connection.query(
        """
        SELECT current_setting('server_version_num')::integer, current_setting('server_version'),
          current_user::text, rolsuper, pg_is_in_recovery(), pg_backend_pid(), clock_timestamp(),
          current_setting('synchronous_commit'), current_setting('fsync'),
          current_setting('full_page_writes'), current_setting('autovacuum'),
          pg_jit_available()
        FROM pg_roles WHERE rolname = current_user
        """)
      return (rows, await connection.announcedProcessID())
    }
    let row = try rows.decodeOnly(
      Int32.self, String.self, String.self, Bool.self, Bool.self, Int32.self, Timestamp.self,
      String.self, String.self, String.self, String.self, Bool.self)
    versionNumber = Int(row.0)
    version = row.1
    role = row.2
    isSuperuser = row.3
    isStandby = row.4
    isPooled = announced.map { $0 != row.5 } ?? false
    time = row.6
    durability = [("synchronous_commit", row.7), ("fsync", row.8), ("full_page_writes", row.9)]
    hasAutovacuum = row.10 == "on"
    compilesStatements = row.11
  }
}

extension DatabaseExamination {
  /// Whether something between gives one of the server's sessions to several connections in turn,
  /// as a PgBouncer that pools transactions does.
  ///
  /// Told by two connections that are served by one process. Where many others use the same pooler,
  /// it can be overlooked.
  ///
  /// - Parameter database: With at least three connections.
  /// - Returns: Whether that was seen.
  /// - Throws: What the database says.
  package static func sharesSessions(_ database: ConnectionPool) async throws -> Bool {
    try await database.withConnection { first in
      let process = try await serverProcess(of: first)
      guard await first.announcedProcessID() != process else { return false }
      return try await database.withConnection { try await serverProcess(of: $0) } == process
    }
  }

  private static func serverProcess(of connection: Connection) async throws -> Int32 {
    try await connection.query("SELECT pg_backend_pid()").decodeOnly(Int32.self)
  }
}

/// What there is to know of Apple's notifications.
package struct NotificationExamination: Hashable, Sendable {
  /// When the last one arrived; nil: none ever did.
  package let lastArrival: Timestamp?
  /// When Apple's history was compared last; nil: never.
  package let lastComparison: Timestamp?
  /// How many of the last seven days had not arrived and were found in Apple's history.
  package let missed: Int
}

extension Ledger {
  /// Looks for gaps in the notifications of the last seven days.
  ///
  /// - Throws: What the database says.
  package func examineNotifications(at now: Timestamp) async throws -> NotificationExamination {
    let results = try await database.batch(
      [
        "SELECT max(received_at) FROM tenure.notification",
        "SELECT max(compared_at) FROM tenure.notification_comparison",
        """
        SELECT count(*) FROM tenure.notification
        WHERE arrival = 'history' AND received_at > \(now + .days(-7))
        """,
      ], deadline: LedgerReading.deadline)
    return NotificationExamination(
      lastArrival: try results[0].decodeOnly(Timestamp?.self),
      lastComparison: try results[1].decodeOnly(Timestamp?.self),
      missed: try results[2].decodeOnly(Int.self))
  }

  /// The tables of which a good part is dead rows that no vacuum has removed.
  ///
  /// - Throws: What the database says.
  package func bloatedTables() async throws -> [String] {
    try await database.query(
      """
      SELECT relname::text FROM pg_stat_user_tables
      WHERE schemaname = 'tenure' AND n_dead_tup > 100000 AND n_dead_tup > n_live_tup / 2
      ORDER BY n_dead_tup DESC
      LIMIT 10
      """
    ).decode(String.self)
  }
}
