import Foundation
import LedgerStorage
package import Logging
package import Postgres
package import PrivatePostgres
import Reports
import Secrets

/// A program's database: the configured one, or a private server.
package struct Database: Sendable {
  package let pool: ConnectionPool
  package let server: PrivatePostgres?

  package init(pool: ConnectionPool, server: PrivatePostgres?) {
    (self.pool, self.server) = (pool, server)
  }

  private static let privateName = "tenure"

  /// Opens the database as the programs' role; starts and migrates a private one, else only checks.
  package static func open(_ settings: Settings, logger: Logger) async throws -> Database {
    guard let url = settings.databaseURL else {
      let database = try await startPrivate(settings, logger: logger)
      _ = try await SchemaMigrator(
        database: database.pool, reports: ReportSQL(Report.sql), logger: logger
      ).migrate()
      return database
    }
    let pool = try await openPool(url, settings, logger: logger)
    let migrator = SchemaMigrator(database: pool, reports: ReportSQL(Report.sql), logger: logger)
    if case .ahead(let version) = try await migrator.check() {
      logger.warning("\(SchemaStatus.sentence(on: version))")
    } else if try await !migrator.hasCurrentReports() {
      logger.warning("\(ReportSQL.outdated)")
    }
    if try await migrator.roleCanRewriteLedger() {
      logger.warning(
        """
        The database role can change ledger entries: use a role IN ROLE tenure_program in \
        DATABASE_URL, and the owner in TENURE_MIGRATION_DATABASE_URL
        """)
    }
    return Database(pool: pool, server: nil)
  }

  /// Opens the database as the schema's owner, without checking the schema.
  ///
  /// - Throws: ``SettingError`` if the private database is missing and not to be created.
  package static func openForMigration(
    _ settings: Settings, creating: Bool, logger: Logger
  ) async throws -> Database {
    guard let url = settings.migrationDatabaseURL ?? settings.databaseURL else {
      guard creating || PrivatePostgres.exists(in: privateDirectory(settings)) else {
        throw SettingError(
          "DATABASE_URL",
          "required: there is no private database in \(settings.dataDirectory) yet "
            + "(`tenure migrate` creates one)")
      }
      return try await startPrivate(settings, logger: logger)
    }
    return Database(pool: try await openPool(url, settings, logger: logger), server: nil)
  }

  package func use<Value>(_ body: (ConnectionPool) async throws -> Value) async throws -> Value {
    try await ending(
      pool,
      with: {
        await pool.close()
        await server?.stop()
      }, after: body)
  }

  private static func privateDirectory(_ settings: Settings) -> URL {
    URL(filePath: settings.dataDirectory).appending(path: "postgres")
  }

  private static func startPrivate(_ settings: Settings, logger: Logger) async throws -> Database {
    let directory = privateDirectory(settings)
    let server = try await PrivatePostgres.start(in: directory, logger: logger)
    let maintenance = ConnectionPool(
      configuration: .init(uri: Secret(await server.uri())), logger: logger)
    do {
      try await ending(maintenance, with: { await maintenance.close() }) { maintenance in
        try await SchemaMigrator.createDatabase(privateName, on: maintenance)
      }
    } catch {
      await server.stop()
      throw error
    }
    let uri = Secret(await server.uri(database: privateName))
    return Database(pool: pool(uri, settings, logger: logger), server: server)
  }

  /// Opens a configured database, unless a PgBouncer before it contradicts the settings.
  private static func openPool(
    _ url: Secret<String>, _ settings: Settings, logger: Logger
  ) async throws -> ConnectionPool {
    let pool = pool(url, settings, logger: logger)
    guard settings.usesPreparedStatements else { return pool }
    guard try await !DatabaseCheck.sharesSessions(pool) else {
      await pool.close()
      throw SettingError(
        "TENURE_DATABASE_PREPARED_STATEMENTS",
        "must be off: DATABASE_URL is a PgBouncer in transaction mode")
    }
    return pool
  }

  private static func pool(
    _ uri: Secret<String>, _ settings: Settings, logger: Logger
  ) -> ConnectionPool {
    var configuration = ConnectionPool.Configuration(uri: uri)
    configuration.usesPreparedStatements = settings.usesPreparedStatements
    configuration.listenURI = settings.listenDatabaseURL
    return ConnectionPool(configuration: configuration, logger: logger)
  }
}
