package import Postgres
package import Subscriptions

/// The properties of a database that `tenure doctor` checks.
package struct DatabaseCheck: Sendable {
  /// For example 170002.
  package let versionNumber: Int
  /// For example "17.2".
  package let version: String
  package let role: String
  package let isSuperuser: Bool
  package let isStandby: Bool
  /// Whether a pooler such as PgBouncer answers: the server process is not the announced one.
  package let isPooled: Bool
  /// The database's clock when it answered.
  package let time: Timestamp
  /// Settings that must be on, or a crash can lose confirmed commits.
  package let durability: [(setting: String, value: String)]
  package let hasAutovacuum: Bool
  /// Whether JIT compilation is available and on.
  package let compilesStatements: Bool

  /// Examines any database, with or without a Tenure schema.
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

extension DatabaseCheck {
  /// Whether a pooler such as PgBouncer serves several connections with one server session.
  ///
  /// Two connections have the same server process, which can be missed if many use the pooler.
  /// Needs a pool of at least three connections.
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

/// The last arrival and comparison of notifications, and how many of seven days were missed.
package typealias NotificationExamination = (
  lastArrival: Timestamp?, lastComparison: Timestamp?, missed: Int
)

extension Maintenance {
  package func examineNotifications(at now: Timestamp) async throws -> NotificationExamination {
    let results = try await database.batch(
      [
        "SELECT max(received_at) FROM tenure.notification",
        "SELECT max(compared_at) FROM tenure.notification_history_check",
        """
        SELECT count(*) FROM tenure.notification
        WHERE arrival = 'history' AND received_at > \(now + .days(-7))
        """,
      ], deadline: LedgerReading.deadline)
    return (
      try results[0].decodeOnly(Timestamp?.self), try results[1].decodeOnly(Timestamp?.self),
      try results[2].decodeOnly(Int.self)
    )
  }

  /// Whether Apple's notification history was ever compared.
  package func hasComparedNotifications() async throws -> Bool {
    try await database.query("SELECT EXISTS (SELECT FROM tenure.notification_history_check)")
      .decodeOnly(Bool.self)
  }

  /// The tables with many dead rows that no vacuum has removed.
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
