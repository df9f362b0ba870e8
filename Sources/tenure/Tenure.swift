import ArgumentParser
import Bootstrap
import Development
import Observability
import Subscriptions

struct Tenure: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "tenure",
    abstract: "A subscription ledger and entitlement engine for the App Store.",
    discussion: """
      Settings are read from options, then the environment, then the --config file (NAME=value \
      lines). Set NAME_FILE to read the setting NAME from a file, as secrets should be.
      """,
    version: TenureVersion.current,
    subcommands: [
      ServeCommand.self, WorkCommand.self, PollCommand.self, JobsCommand.self,
      WebhooksCommand.self, AccountCommand.self, ChargeCommand.self, MigrateCommand.self,
      AuditCommand.self, RebuildCommand.self, VerifyProofCommand.self, WhatIfCommand.self,
      ReportCommand.self, RatesCommand.self, ImportCommand.self, ExportCommand.self,
      CompareCommand.self, AppStoreCommand.self, DoctorCommand.self, MetricsCommand.self,
    ],
    groupedSubcommands: [developmentCommands])
}

@main
enum Program {
  /// Suggests the nearest command for a misspelled one, which the parser does not.
  static func main() async {
    let groups = Tenure.configuration.groupedSubcommands.flatMap { $0.subcommands }
    let names = (Tenure.configuration.subcommands + groups).compactMap {
      $0.configuration.commandName
    }
    var arguments = CommandLine.arguments.dropFirst()
    if arguments.first == "help" { arguments.removeFirst() }
    if let command = arguments.first, !command.hasPrefix("-"), command != "help",
      !names.contains(command)
    {
      let advice = command.nearest(in: names).map { ": did you mean \($0)?" } ?? "."
      Tenure.exit(withError: ValidationError("There is no command \(command)\(advice)"))
    }
    await Tenure.main()
  }
}
