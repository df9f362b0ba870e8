import Postgres
package import Subscriptions

extension AdministrationStore {
  /// Opens a session and deletes expired ones.
  package func openSession(
    _ id: [UInt8], of administrator: String, until end: Timestamp, at now: Timestamp
  ) async throws {
    _ = try await database.execute(
      """
      WITH ended AS (DELETE FROM tenure.admin_session WHERE ends_at <= \(now))
      INSERT INTO tenure.admin_session (session_id, administrator, ends_at)
      VALUES (\(id), \(administrator), \(end))
      """)
  }

  /// Whether a session is open; the cookie holds its expiry.
  package func isOpen(session id: [UInt8]) async throws -> Bool {
    try await database.query(
      "SELECT EXISTS (SELECT FROM tenure.admin_session WHERE session_id = \(id))"
    ).decodeOnly(Bool.self)
  }

  package func closeSession(_ id: [UInt8]) async throws {
    _ = try await database.execute(
      "DELETE FROM tenure.admin_session WHERE session_id = \(id)")
  }
}
