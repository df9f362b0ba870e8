import ArgumentParser
import Bootstrap
import LedgerStorage
import Logging
import Postgres
import Reports

struct MigrateCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "migrate", abstract: "Creates or upgrades the schema and the reports.",
    discussion: """
      Connects as the schema's owner, with TENURE_MIGRATION_DATABASE_URL or else DATABASE_URL. \
      Repeating it is a no-op. Programs that are compatible with the new schema may keep running: \
      locks are requested with short timeouts. A schema that was distributed once stays so: later \
      versions distribute their tables without the flag.
      """)

  @OptionGroup var options: SettingOptions

  @Flag(help: "Change nothing. Exit status 1 unless the schema is compatible with this program.")
  var check = false

  @Flag(help: "Distribute the tables over the nodes of a Citus cluster.")
  var distributed = false

  func run() async throws {
    let settings = try await options.settings()
    let logger = settings.bootstrapLogger()
    let database = try await Database.openForMigration(settings, creating: !check, logger: logger)
    do {
      try await database.use { pool in try await run(on: pool, logger: logger) }
    } catch let error as PostgresError where error.sqlState == .insufficientPrivilege {
      throw SettingError(
        settings.migrationDatabaseURL == nil
          ? "TENURE_MIGRATION_DATABASE_URL is not set" : "TENURE_MIGRATION_DATABASE_URL",
        "\(error.message): must name the role that owns the schema")
    }
  }

  private func run(on pool: ConnectionPool, logger: Logger) async throws {
    let migrator = SchemaMigrator(database: pool, reports: ReportSQL(Report.sql), logger: logger)
    let distributor = SchemaDistributor(database: pool, logger: logger)
    if check {
      let status = try await migrator.check()
      try await report(status, distributor)
      if case .current = status, try await !migrator.hasCurrentReports() {
        print(ReportSQL.outdated)
      }
    } else {
      try await distributor.requireRoles()
      try await migrate(migrator)
      let isBegun = try await distributor.isBegun()
      if distributed || isBegun { try await distribute(distributor) }
    }
  }

  private func report(_ status: SchemaStatus, _ distributor: SchemaDistributor) async throws {
    let current = SchemaMigrator.currentVersion
    let tables = try await distributor.check()
    if distributed && tables == 0 { throw DistributionError.notBegun }
    switch status {
    case .current:
      print(
        "The schema is up to date: version \(current)"
          + (tables > 0 ? ", \(tables) tables distributed." : "."))
    case .ahead(let version): print(SchemaStatus.sentence(on: version))
    }
  }

  private func migrate(_ migrator: SchemaMigrator) async throws {
    let current = SchemaMigrator.currentVersion
    let hadCurrentReports =
      try await migrator.version() == nil ? false : migrator.hasCurrentReports()
    switch try await migrator.migrate() {
    case nil: print("Created the schema: version \(current).")
    case let version? where version > current: print(SchemaStatus.sentence(on: version))
    case current?:
      print("The schema was already up to date: version \(current).")
      if !hadCurrentReports { print("Updated the reports.") }
    case let before?: print("Upgraded the schema from version \(before) to \(current).")
    }
    // A later version grants its privileges itself.
    guard case .current = try await migrator.check() else { return }
    for role in try await migrator.grantPrivileges() {
      print(
        "The role \(role) is missing, and this role can't create it: create it as a role with "
          + "CREATEROLE, then repeat this command.")
    }
  }

  private func distribute(_ distributor: SchemaDistributor) async throws {
    let outcome = try await distributor.distribute()
    print(
      outcome.tables.isEmpty
        ? "All tables were distributed." : "Tables distributed: \(outcome.tables.count).")
    for (name, message) in outcome.unanswerable.sorted(by: { $0.key < $1.key }) {
      print("This version of Citus does not support \(name): \(message)")
    }
  }
}
