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
      again changes nothing.
      """)

  @OptionGroup var options: SettingOptions

  @Flag(help: "Change nothing; exit with 1 unless the schema is up to date.")
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
      try await migrator.check()
      print("The schema is up to date: version \(current).")
      return
    }
    switch try await migrator.migrate() {
    case nil: print("The schema is created: version \(current).")
    case current?: print("The schema was up to date: version \(current).")
    case let before?: print("The schema is brought from version \(before) to \(current).")
    }
  }
}
