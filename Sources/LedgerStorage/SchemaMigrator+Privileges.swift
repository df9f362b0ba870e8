import Postgres

/// What the roles of the schema may do.
extension SchemaMigrator {
  /// Gives the group roles what is theirs, where one lacks it or there is none.
  ///
  /// A schema is made without a role that its owner may not create; whoever may makes it later.
  ///
  /// - Returns: The names of the roles that are still missing.
  /// - Throws: What the database says.
  package func grantPrivileges() async throws -> [String] {
    let before = try await roles()
    guard before.contains(where: { $0.isEquipped != true }) else { return [] }
    _ = try await database.query("SELECT tenure.grant_privileges()")
    return try await roles().filter { $0.isEquipped == nil }.map(\.name)
  }

  /// The group roles, and whether they have what is theirs; nil: there is no such role.
  private func roles() async throws -> [(name: String, isEquipped: Bool?)] {
    try await database.query(
      """
      SELECT n.name, CASE WHEN r.oid IS NOT NULL THEN has_schema_privilege(r.oid, 'tenure', 'USAGE')
        END
      FROM unnest(ARRAY['tenure_program', 'tenure_reader']) AS n (name)
      LEFT JOIN pg_roles AS r ON r.rolname = n.name
      ORDER BY n.name
      """
    ).decode(String.self, Bool?.self).map { (name: $0, isEquipped: $1) }
  }

  /// Whether the role of this connection could change or delete entries of the ledger.
  ///
  /// With one role for everything it can grant itself the right again; a superuser is bound by
  /// nothing.
  ///
  /// - Throws: What the database says.
  package func roleCanRewriteLedger() async throws -> Bool {
    try await database.query(
      """
      SELECT has_table_privilege('tenure.ledger_entry', 'UPDATE, DELETE, TRUNCATE')
        OR pg_has_role((SELECT relowner FROM pg_class WHERE oid = 'tenure.ledger_entry'::regclass),
          'USAGE')
      """
    ).decodeOnly(Bool.self)
  }

  /// Whether the role of this connection may change the schema, where there is one.
  ///
  /// - Throws: What the database says.
  package func roleOwnsSchema() async throws -> Bool {
    try await database.query(
      """
      SELECT coalesce(bool_and(pg_has_role(nspowner, 'USAGE')), true)
      FROM pg_namespace WHERE nspname = 'tenure'
      """
    ).decodeOnly(Bool.self)
  }

  /// The tables that the role of this connection can't read or add to as the programs do.
  ///
  /// - Returns: Their names, without the schema's, in order.
  /// - Throws: What the database says.
  package func tablesOutOfReach() async throws -> [String] {
    try await database.query(
      """
      SELECT relname::text FROM pg_class
      WHERE relnamespace = 'tenure'::regnamespace AND relkind IN ('r', 'p')
        AND NOT (has_schema_privilege(relnamespace, 'USAGE') AND has_table_privilege(oid, 'SELECT')
          -- These are filled by the owner alone.
          AND (relname IN ('exchange_rate', 'schema_version', 'schema_part')
            OR has_table_privilege(oid, 'INSERT')))
      ORDER BY relname
      """
    ).decode(String.self)
  }
}
