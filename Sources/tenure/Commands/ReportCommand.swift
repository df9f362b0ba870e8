import ArgumentParser
import Logging
import Reports

/// `tenure report`: what operators look at.
struct ReportCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "report",
    abstract: "Prints a report.",
    discussion: """
      The reports:

      \(Report.allCases.map { "  \($0.rawValue): \($0.summary)" }.joined(separator: "\n"))

      Each number is a column of the view report_NAME in the database, where its definition is, \
      and what it counts are the rows of report_NAME_item.
      """)

  @Argument(help: "The report's name.")
  var name: Report

  @Option(help: "How to print it: table, csv or json.")
  var format = ReportFormat.table

  @Option(help: "Of what is counted by the day, how many days, today included.")
  var days = ReportChoices().days

  @Flag(help: "Also count what is of the sandbox.")
  var includeSandbox = false

  @Flag(help: "Print each thing that is counted, the latest first, instead of the numbers.")
  var items = false

  @Option(help: "The most rows to print.")
  var limit = ReportChoices().limit

  @OptionGroup var options: SettingOptions

  func validate() throws {
    for (name, value, range) in [
      ("--days", days, ReportChoices.dayRange), ("--limit", limit, ReportChoices.limitRange),
    ] where !range.contains(value) {
      throw ValidationError(
        "\(name) is \(value): write a number from \(range.lowerBound) to \(range.upperBound).")
    }
  }

  func run() async throws {
    let settings = try await options.settings()
    let logger = Logger.bootstrapTenure(level: settings.logLevel)
    var choices = ReportChoices()
    choices.days = days
    choices.includesSandbox = includeSandbox
    choices.listsItems = items
    choices.limit = limit
    let table = try await withDatabase(settings, logger: logger) { [choices] database in
      try await ReportReader(database: database).table(of: name, choices, at: .now)
    }
    print(table.text(format), terminator: "")
  }
}

extension Report: ExpressibleByArgument {}
extension ReportFormat: ExpressibleByArgument {}
