import ArgumentParser
import LedgerStorage
import Logging

/// `tenure migrate`: the database's schema.
struct MigrateCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "migrate",
    abstract: "Creates the database's schema or brings it up to date.",
    discussion: """
      Uses TENURE_MIGRATION_DATABASE_URL, the schema's owner, or else DATABASE_URL. Running it \
      again changes nothing. Programs go on meanwhile as far as the new schema serves them: it \
      waits for tables that are in use, and never keeps others waiting for longer than a moment.
      """)

  @OptionGroup var options: SettingOptions

  @Flag(help: "Change nothing; exit with 1 unless the schema serves this program.")
  var check = false

  func run() async throws {
    let settings = try await options.settings()
    let logger = Logger.bootstrapTenure(
      level: settings.logLevel, format: settings.logFormat)
    let database = try await Database.openForMigration(
      settings, creating: !check, logger: logger)
    try await database.use { try await migrate(SchemaMigrator(database: $0, logger: logger)) }
  }

  private func migrate(_ migrator: SchemaMigrator) async throws {
    let current = SchemaMigrator.currentVersion
    if check {
      switch try await migrator.check() {
      case .current: print("The schema is up to date: version \(current).")
      case .ahead(let version): print(SchemaStanding.sentence(on: version))
      }
      return
    }
    switch try await migrator.migrate() {
    case nil: print("The schema is created: version \(current).")
    case let version? where version > current: print(SchemaStanding.sentence(on: version))
    case current?: print("The schema was up to date: version \(current).")
    case let before?: print("The schema is brought from version \(before) to \(current).")
    }
  }
}
