import Foundation
import LedgerStorage
import Logging
import Postgres
import PrivatePostgres
import Reports
import Secrets

/// The database that a program works on: the configured one, or a private one of its own.
struct Database: Sendable {
  let pool: ConnectionPool
  let server: PrivatePostgres?

  /// The database's name in a private server.
  private static let privateName = "tenure"

  /// Opens the database as the programs' role.
  ///
  /// A private one is started, created and brought up to date; a configured one is only checked.
  ///
  /// - Throws: What is wrong with the database, in words.
  static func open(_ settings: Settings, logger: Logger) async throws -> Database {
    guard let url = settings.databaseURL else {
      let database = try await startPrivate(settings, logger: logger)
      _ = try await SchemaMigrator(
        database: database.pool, reports: ReportSQL(Report.sql), logger: logger
      ).migrate()
      return database
    }
    let pool = try await openPool(url, settings, logger: logger)
    let migrator = SchemaMigrator(
      database: pool, reports: ReportSQL(Report.sql), logger: logger)
    if case .ahead(let version) = try await migrator.check() {
      logger.warning("\(SchemaStanding.sentence(on: version))")
    } else if try await !migrator.hasCurrentReports() {
      logger.warning("\(ReportSQL.outdated)")
    }
    if try await migrator.roleCanRewriteLedger() {
      logger.warning(
        """
        The database role could change the ledger's entries: give the programs a role of their \
        own, a member of tenure_program, and the owner's URL to TENURE_MIGRATION_DATABASE_URL
        """)
    }
    return Database(pool: pool, server: nil)
  }

  /// Opens the database as the schema's owner, whatever state it is in.
  ///
  /// - Parameters:
  ///   - settings: Checked.
  ///   - creating: Whether to make a private one where there is none.
  ///   - logger: The program's.
  /// - Returns: The database.
  /// - Throws: ``SettingError`` if there is none and none is to be made.
  static func openForMigration(
    _ settings: Settings, creating: Bool, logger: Logger
  ) async throws -> Database {
    guard let url = settings.migrationDatabaseURL ?? settings.databaseURL else {
      guard creating || PrivatePostgres.exists(in: privateDirectory(settings)) else {
        throw SettingError(
          name: "DATABASE_URL",
          fault: "it is not set, and there is no database in \(settings.dataDirectory) yet: "
            + "`tenure migrate` makes one")
      }
      return try await startPrivate(settings, logger: logger)
    }
    return Database(pool: try await openPool(url, settings, logger: logger), server: nil)
  }

  /// Works on the database and closes it, however that ends; stops the server if it is ours.
  func use<Value>(_ body: (ConnectionPool) async throws -> Value) async throws -> Value {
    do {
      let value = try await body(pool)
      await close()
      return value
    } catch {
      await close()
      throw error
    }
  }

  private func close() async {
    await pool.close()
    await server?.stop()
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
      try await SchemaMigrator.createDatabase(privateName, on: maintenance)
    } catch {
      await maintenance.close()
      await server.stop()
      throw error
    }
    await maintenance.close()
    let uri = Secret(await server.uri(database: privateName))
    return Database(pool: pool(uri, settings, logger: logger), server: server)
  }

  /// Opens a configured database, unless what stands before it does not fit the settings.
  private static func openPool(
    _ url: Secret<String>, _ settings: Settings, logger: Logger
  ) async throws -> ConnectionPool {
    let pool = pool(url, settings, logger: logger)
    guard settings.usesPreparedStatements else { return pool }
    guard try await !DatabaseExamination.sharesSessions(pool) else {
      await pool.close()
      throw SettingError(
        name: "TENURE_DATABASE_PREPARED_STATEMENTS",
        fault: "they are on, and a PgBouncer that pools transactions stands before the database: "
          + "set it to off")
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

/// Works on the database that the settings name, as the programs' role.
///
/// - Parameters:
///   - settings: Checked.
///   - logger: The program's.
///   - body: The work; the database is closed however it ends.
/// - Returns: What the work came to.
/// - Throws: What is wrong with the database, in words, or what the work throws.
func withDatabase<Value>(
  _ settings: Settings, logger: Logger, _ body: (ConnectionPool) async throws -> Value
) async throws -> Value {
  try await Database.open(settings, logger: logger).use(body)
}
