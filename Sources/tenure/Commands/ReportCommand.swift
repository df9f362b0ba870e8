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

      \(Report.all.map { "  \($0.name): \($0.summary)" }.joined(separator: "\n"))

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

extension Report: ExpressibleByArgument {
  package init?(argument: String) { self.init(exactly: argument) }

  package static var allValueStrings: [String] { all.map(\.name) }
}
extension ReportFormat: ExpressibleByArgument {}

/// What can be chosen of a report on the command line.
struct ReportOptions: ParsableArguments {
  @Option(help: "The first day, as in 2026-01-31.")
  var from: Day?

  @Option(help: "The last day; today unless given.")
  var to: Day?

  @Option(help: "What a row counts: a day, week (from Monday) or month.")
  var bucket: ReportChoices.Bucket?

  @Option(help: "Whose days these are, as in Europe/Berlin.")
  var timeZone: String?

  @Option(help: "Only this product.")
  var product: String?

  @Option(help: "The environment, production or sandbox.")
  var environment: Environment?

  @Flag(help: "Also what is shared in a family.")
  var includeFamilyShared = false

  @Flag(help: "Also trials.")
  var includeTrials = false

  @Flag(help: "Also what administrators granted.")
  var includeGrants = false

  @Flag(inversion: .prefixedNo, help: "A row for each product, or for all together.")
  var byProduct: Bool?

  @Option(help: "Sum up in this currency, by the rates in the table exchange_rate.")
  var reportingCurrency: String?

  @Option(help: "As the ledger knew it then, as in 2026-01-31T00:00:00Z; as it is known now.")
  var knownAt: Moment?

  @Option(help: "The moment that the report is about; now unless given.")
  var asOf: Moment?

  @Option(help: "Of intake without --from, how many days; of renewals-due, how many ahead (30).")
  var days: Int?

  @Option(help: "Of retention with --items, the month after the first one, from 0.")
  var period: Int?

  @Flag(help: "Of intake, also count what is of the sandbox.")
  var includeSandbox = false

  @Flag(help: "Print each thing that is counted, the latest first, instead of the numbers.")
  var items = false

  @Option(help: "With --items, only what this column of the report counts.")
  var column: String?

  @Option(help: "The most rows to print; 1000 unless given, as CSV all of them.")
  var limit: Int?

  /// What was given, as the report's choices.
  ///
  /// - Throws: A `ValidationError` for what that report does not have, and for a number too large.
  func choices(for report: Report) throws -> ReportChoices {
    for parameter in given where !report.parameters.contains(parameter) {
      throw ValidationError(
        "--\(Self.name(parameter)) is not accepted by \(report.name).")
    }
    for (name, value, range) in [
      ("days", days, ReportChoices.dayRange), ("limit", limit, ReportChoices.limitRange),
      ("period", period, ReportChoices.periodRange),
    ] as [(String, Int?, ClosedRange<Int>)] {
      if let value, !range.contains(value) {
        throw ValidationError(
          "--\(name) is \(value): write a number from \(range.lowerBound) to \(range.upperBound).")
      }
    }
    var choices = ReportChoices()
    choices.from = from?.date
    choices.to = to?.date
    choices.bucket = bucket
    choices.timeZone = timeZone ?? choices.timeZone
    choices.product = product
    choices.environment = environment ?? choices.environment
    choices.includesFamilyShared = includeFamilyShared
    choices.includesTrials = includeTrials
    choices.includesGrants = includeGrants
    choices.splitsByProduct = byProduct
    choices.reportingCurrency = reportingCurrency
    choices.knownAt = knownAt?.timestamp
    choices.asOf = asOf?.timestamp
    choices.days = days ?? choices.days
    choices.period = period
    choices.includesSandbox = includeSandbox
    choices.listsItems = items
    choices.column = column
    choices.limit = limit
    return choices
  }

  private var given: [ReportParameter] {
    ReportParameter.allCases.filter { parameter in
      switch parameter {
      case .from: from != nil
      case .to: to != nil
      case .bucket: bucket != nil
      case .timeZone: timeZone != nil
      case .product: product != nil
      case .environment: environment != nil
      case .includeFamilyShared: includeFamilyShared
      case .includeTrials: includeTrials
      case .includeGrants: includeGrants
      case .byProduct: byProduct != nil
      case .reportingCurrency: reportingCurrency != nil
      case .knownAt: knownAt != nil
      case .asOf: asOf != nil
      case .days: days != nil
      case .period: period != nil
      case .includeSandbox: includeSandbox
      case .column: column != nil
      }
    }
  }

  private static func name(_ parameter: ReportParameter) -> String {
    parameter.rawValue.replacing("_", with: "-")
  }
}

extension ReportChoices.Bucket: ExpressibleByArgument {}

/// A day, as the command line writes it.
struct Day: ExpressibleByArgument {
  let date: CalendarDate

  init?(argument: String) {
    guard let date = CalendarDate(iso8601: argument) else { return nil }
    self.date = date
  }
}
