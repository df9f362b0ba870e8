import ArgumentParser
import Bootstrap
import Development
import Foundation
import Observability

@main
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
      ReportCommand.self, ImportCommand.self, ExportCommand.self, CompareCommand.self,
      AppStoreCommand.self, DoctorCommand.self, MetricsCommand.self,
    ],
    groupedSubcommands: [developmentCommands])

  /// Suggests the nearest command for a misspelled one, which the parser does not.
  static func main() async {
    let names =
      (configuration.subcommands + configuration.groupedSubcommands.flatMap(\.subcommands))
      .compactMap(\.configuration.commandName)
    let arguments = CommandLine.arguments.dropFirst()
    let command = arguments.first == "help" ? arguments.dropFirst().first : arguments.first
    if let command, !command.hasPrefix("-"), command != "help", !names.contains(command) {
      let suggestion = command.nearest(in: names).map { ": did you mean \($0)?" } ?? "."
      exit(withError: ValidationError("There is no command \(command)\(suggestion)"))
    }
    await main(nil)
  }
}
