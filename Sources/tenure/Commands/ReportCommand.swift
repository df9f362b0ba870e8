import ArgumentParser
import Logging
import Reports
import Subscriptions

/// `tenure report`: what operators look at.
struct ReportCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "report",
    abstract: "Prints a report.",
    discussion: """
      The reports:

      \(Report.allCases.map { "  \($0.rawValue): \($0.summary)" }.joined(separator: "\n"))

      Each number is a column of the function (or view) report_NAME in the database; its \
      definition, which --definition prints, is there, and what it counts are the rows of \
      report_NAME_item: --items, with the same choices, and --column to see one column's. Days are \
      those of the time zone, the first and the last one included. Amounts in CSV and JSON are in \
      thousandths of the currency's unit.
      """)

  @Argument(help: "The report's name.")
  var name: Report

  @Option(help: "How to print it: table, csv or json.")
  var format = ReportFormat.table

  @Flag(help: "Print what the report counts, in words, instead of the report.")
  var definition = false

  @OptionGroup(title: "What is counted") var chosen: ReportOptions

  @OptionGroup var options: SettingOptions

  func validate() throws {
    do {
      try chosen.choices(for: name).check(for: name)
    } catch let fault as ReportFault {
      throw fault.asValidationError
    }
  }

  func run() async throws {
    let choices = try chosen.choices(for: name)
    let settings = try await options.settings()
    let logger = Logger.bootstrapTenure(
      level: settings.logLevel, format: settings.logFormat)
    do {
      try await withDatabase(settings, logger: logger) { database in
        let reports = ReportReader(database: database)
        if definition {
          print(try await reports.definitions()[name].map { $0 + "\n" } ?? "", terminator: "")
        } else if format == .csv, choices.limit == nil {
          let file = try await reports.file(of: name, choices, at: .now)
          print(file.head, terminator: "")
          while let lines = try await file.next() { print(lines, terminator: "") }
        } else {
          print(try await reports.table(of: name, choices, at: .now).text(format), terminator: "")
        }
      }
    } catch let fault as ReportFault {
      throw fault.asValidationError
    }
  }
}

extension ReportFault {
  /// The same about the option.
  fileprivate var asValidationError: ValidationError {
    ValidationError("--\(parameter.rawValue.replacing("_", with: "-")) \(text).")
  }
}

extension Report: ExpressibleByArgument {}
extension ReportFormat: ExpressibleByArgument {}
