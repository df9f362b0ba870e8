import ArgumentParser
import LedgerStorage
import Logging
import Postgres
import Reports

/// `tenure migrate`: the database's schema.
struct MigrateCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "migrate",
    abstract: "Creates the database's schema and reports or brings them up to date.",
    discussion: """
      Uses TENURE_MIGRATION_DATABASE_URL, the schema's owner, or else DATABASE_URL. Running it \
      again changes nothing. Programs go on meanwhile as far as the new schema serves them: it \
      waits for tables that are in use, and never keeps others waiting for longer than a moment. \
      What is distributed once stays so: the tables of a later version are distributed without \
      saying it again.
      """)

  @OptionGroup var options: SettingOptions

  @Flag(help: "Change nothing; exit with 1 unless the schema serves this program.")
  var check = false

  @Flag(help: "Distribute the tables over the nodes of a Citus.")
  var distributed = false

  func run() async throws {
    let settings = try await options.settings()
    let logger = Logger.bootstrapTenure(
      level: settings.logLevel, format: settings.logFormat)
    let database = try await Database.openForMigration(
      settings, creating: !check, logger: logger)
    do {
      try await database.use { pool in try await run(on: pool, logger: logger) }
    } catch let error as PostgresError where error.sqlState == .insufficientPrivilege {
      throw SettingError(
        name: settings.migrationDatabaseURL == nil
          ? "TENURE_MIGRATION_DATABASE_URL is not set" : "TENURE_MIGRATION_DATABASE_URL",
        fault: "\(error.message): name the role that owns the schema there")
    }
  }

  private func run(on pool: ConnectionPool, logger: Logger) async throws {
    let migrator = SchemaMigrator(
      database: pool, reports: ReportSQL(Report.sql), logger: logger)
    let distributor = SchemaDistributor(database: pool, logger: logger)
    if check {
      let standing = try await migrator.check()
      try await tell(standing, distributor)
      if case .current = standing, try await !migrator.hasCurrentReports() {
        print(ReportSQL.outdated)
      }
    } else {
      try await migrate(migrator)
      let isBegun = try await distributor.isBegun()
      if distributed || isBegun { try await distribute(distributor) }
    }
  }

  private func tell(
    _ standing: SchemaStanding, _ distributor: SchemaDistributor
  ) async throws {
    let current = SchemaMigrator.currentVersion
    let tables = try await distributor.check()
    if distributed && tables == 0 { throw DistributionError.notBegun }
    switch standing {
    case .current:
      print(
        "The schema is up to date: version \(current)"
          + (tables > 0 ? ", its \(tables) tables distributed." : "."))
    case .ahead(let version): print(SchemaStanding.sentence(on: version))
    }
  }

  private func migrate(_ migrator: SchemaMigrator) async throws {
    let current = SchemaMigrator.currentVersion
    let hadCurrentReports =
      try await migrator.version() == nil ? false : migrator.hasCurrentReports()
    switch try await migrator.migrate() {
    case nil: print("The schema is created: version \(current).")
    case let version? where version > current: print(SchemaStanding.sentence(on: version))
    case current?:
      print("The schema was up to date: version \(current).")
      if !hadCurrentReports { print("The reports are brought up to date.") }
    case let before?: print("The schema is brought from version \(before) to \(current).")
    }
    // A later version has its own way to do it.
    guard case .current = try await migrator.check() else { return }
    for role in try await migrator.grantPrivileges() {
      print(
        "There is no role \(role), and this one may not make it: have it made, without a login, by "
          + "one who may, and run this again.")
    }
  }

  private func distribute(_ distributor: SchemaDistributor) async throws {
    let outcome = try await distributor.distribute()
    print(
      outcome.tables.isEmpty
        ? "Every table was distributed." : "Tables distributed: \(outcome.tables.count).")
    for (name, message) in outcome.unanswerable.sorted(by: { $0.key < $1.key }) {
      print("This Citus can't be asked for \(name): \(message)")
    }
  }
}
