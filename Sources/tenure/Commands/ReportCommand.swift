import ArgumentParser
import Bootstrap
import Reports
import Subscriptions

struct ReportCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "report", abstract: "Prints a report.",
    discussion: """
      The reports:

      \(Report.all.map { "  \($0.name): \($0.summary)" }.joined(separator: "\n"))

      Each number is a column of the database function or view report_NAME; --definition prints \
      its definition. The counted rows come from report_NAME_item: --items lists them, --column \
      restricts them to one column. Days are days of the time zone, both ends included. Amounts in \
      CSV and JSON are in thousandths of the currency's unit.
      """)

  @Argument(help: "The report's name.")
  var name: Report

  @Option(help: "Output format: table, csv or json.")
  var format = ReportFormat.table

  @Flag(help: "Print the report's definition instead of the report.")
  var definition = false

  @OptionGroup(title: "Report options") var chosen: ReportOptions

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
    do {
      try await options.useDatabase { database, _, _ in
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
  /// The fault of the command-line option of the same name.
  fileprivate var asValidationError: ValidationError {
    ValidationError("\(parameter.option) \(text).")
  }
}

extension ReportParameter {
  fileprivate var option: String { "--" + rawValue.replacing("_", with: "-") }
}

extension Report: ExpressibleByArgument {
  package init?(argument: String) { self.init(exactly: argument) }

  package static var allValueStrings: [String] { all.map(\.name) }
}
extension ReportFormat: ExpressibleByArgument {}

/// The options of reports; each report accepts some of them.
struct ReportOptions: ParsableArguments {
  @Option(help: "First day, such as 2026-01-31.")
  var from: CalendarDate?

  @Option(help: "Last day. (default: today)")
  var to: CalendarDate?

  @Option(help: "Period of a row: day, week (from Monday) or month.")
  var bucket: ReportChoices.Bucket?

  @Option(help: "Time zone of the days, such as Europe/Berlin.")
  var timeZone: String?

  @Option(help: "Only this product.")
  var product: String?

  @Option(help: "production or sandbox.")
  var environment: Environment?

  @Flag(help: "Include family-shared purchases.")
  var includeFamilyShared = false

  @Flag(help: "Include trials.")
  var includeTrials = false

  @Flag(help: "Include grants by administrators.")
  var includeGrants = false

  @Flag(inversion: .prefixedNo, help: "One row per product, or all products combined.")
  var byProduct: Bool?

  @Option(help: "Convert amounts to this currency, with the rates in the table exchange_rate.")
  var reportingCurrency: String?

  @Option(help: "As recorded at this time, such as 2026-01-31T00:00:00Z. (default: now)")
  var knownAt: Moment?

  @Option(help: "Point in time to report on. (default: now)")
  var asOf: Moment?

  @Option(help: "intake: number of days, without --from; renewals-due: days ahead. (default: 30)")
  var days: Int?

  @Option(help: "retention with --items: month since the first one, from 0.")
  var period: Int?

  @Flag(help: "intake: include the sandbox.")
  var includeSandbox = false

  @Flag(help: "List the counted items, latest first, instead of the numbers.")
  var items = false

  @Option(help: "With --items: only items counted in this column.")
  var column: String?

  @Option(help: "Maximum number of rows. (default: 1000; CSV: all)")
  var limit: Int?

  /// - Throws: `ValidationError` for an option of other reports, or a number out of range.
  func choices(for report: Report) throws -> ReportChoices {
    for (name, value, range) in [
      ("days", days, ReportChoices.dayRange), ("limit", limit, ReportChoices.limitRange),
      ("period", period, ReportChoices.periodRange),
    ] as [(String, Int?, ClosedRange<Int>)] {
      if let value, !range.contains(value) {
        throw ValidationError(
          "--\(name) is \(value), but must be from \(range.lowerBound) to \(range.upperBound).")
      }
    }
    var given: [ReportParameter] = []
    var choices = ReportChoices()
    func choose<Value>(
      _ parameter: ReportParameter, _ choice: WritableKeyPath<ReportChoices, Value>, _ value: Value?
    ) {
      guard let value else { return }
      given.append(parameter)
      choices[keyPath: choice] = value
    }
    func choose<Value>(
      _ parameter: ReportParameter, _ choice: WritableKeyPath<ReportChoices, Value?>,
      _ value: Value?
    ) {
      choose(parameter, choice, value.map(Optional.some))
    }
    choose(.from, \.from, from)
    choose(.to, \.to, to)
    choose(.bucket, \.bucket, bucket)
    choose(.timeZone, \.timeZone, timeZone)
    choose(.product, \.product, product)
    choose(.environment, \.environment, environment)
    choose(.includeFamilyShared, \.includesFamilyShared, includeFamilyShared ? true : nil)
    choose(.includeTrials, \.includesTrials, includeTrials ? true : nil)
    choose(.includeGrants, \.includesGrants, includeGrants ? true : nil)
    choose(.byProduct, \.splitsByProduct, byProduct)
    choose(.reportingCurrency, \.reportingCurrency, reportingCurrency)
    choose(.knownAt, \.knownAt, knownAt?.timestamp)
    choose(.asOf, \.asOf, asOf?.timestamp)
    choose(.days, \.days, days)
    choose(.period, \.period, period)
    choose(.includeSandbox, \.includesSandbox, includeSandbox ? true : nil)
    choose(.column, \.column, column)
    choices.listsItems = items
    choices.limit = limit
    if let refused = given.first(where: { !report.parameters.contains($0) }) {
      throw ValidationError("\(refused.option) is not accepted by \(report.name).")
    }
    return choices
  }
}

extension ReportChoices.Bucket: ExpressibleByArgument {}

extension CalendarDate: ExpressibleByArgument {
  /// A date such as 2026-01-31.
  package init?(argument: String) { self.init(iso8601: argument) }
}
