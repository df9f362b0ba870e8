import ArgumentParser
import Bootstrap

/// The one executable, with its commands.
@main
struct Tenure: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "tenure",
    abstract: "A subscription ledger and entitlement engine for the App Store.",
    discussion: """
      Settings come from the environment, from the file given by --config (NAME=value lines, the \
      same names), and from flags; flags win over the environment, and it wins over the file. \
      Secrets can be read from files: NAME_FILE.
      """,
    subcommands: [
      ServeCommand.self, WorkCommand.self, PollCommand.self, JobsCommand.self,
      WebhooksCommand.self, AccountCommand.self, ChargeCommand.self, MigrateCommand.self,
      AuditCommand.self, RebuildCommand.self,
      ReportCommand.self, ImportCommand.self, ExportCommand.self, CompareCommand.self,
      AppStoreCommand.self, DemoCommand.self, RehearseCommand.self, SimulateAppStoreCommand.self,
      DoctorCommand.self, MetricsCommand.self, BenchCommand.self, FuzzCommand.self,
    ])
}
