import ArgumentParser
import Development

@main
struct Tenure: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "tenure",
    abstract: "A subscription ledger and entitlement engine for the App Store.",
    discussion: """
      Settings are read from options, then the environment, then the --config file (NAME=value \
      lines). Set NAME_FILE to read the setting NAME from a file, as secrets should be.
      """,
    subcommands: [
      ServeCommand.self, WorkCommand.self, PollCommand.self, JobsCommand.self,
      WebhooksCommand.self, AccountCommand.self, ChargeCommand.self, MigrateCommand.self,
      AuditCommand.self, RebuildCommand.self, VerifyProofCommand.self,
      ReportCommand.self, ImportCommand.self, ExportCommand.self, CompareCommand.self,
      AppStoreCommand.self, DoctorCommand.self, MetricsCommand.self,
    ],
    groupedSubcommands: [developmentCommands])
}
