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
    do {
      let choices = try chosen.choices(for: name)
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

  @Option(
    help: "One row per product, storefront, offer_type or period_type. (default: one for all)")
  var by: ReportChoices.Segmentation?

  @Option(help: "refunds: count by the date of the refund or of the charge. (default: refund)")
  var dateOf: ReportChoices.DateOf?

  @Option(help: "Convert amounts to this currency, with the rates of `tenure rates`.")
  var reportingCurrency: String?

  @Option(
    help: "As recorded at this time, such as 2026-01-31T00:00:00Z. (default: now)",
    transform: ArgumentText.moment)
  var knownAt: Timestamp?

  @Option(help: "Point in time to report on. (default: now)", transform: ArgumentText.moment)
  var asOf: Timestamp?

  @Option(help: "intake: number of days, without --from; renewals-due: days ahead. (default: 30)")
  var days: Int?

  @Option(help: "retention, lifetime-value, with --items: month since the first one, from 0.")
  var period: Int?

  @Flag(help: "intake: include the sandbox.")
  var includeSandbox = false

  @Flag(help: "List the counted items, latest first, instead of the numbers.")
  var items = false

  @Option(help: "With --items: only items counted in this column.")
  var column: String?

  @Option(help: "Maximum number of rows. (default: 1000; CSV: all)")
  var limit: Int?

  /// - Throws: ``ReportFault``, or `ValidationError` for a limit out of range.
  func choices(for report: Report) throws -> ReportChoices {
    let range = ReportChoices.limitRange
    if let limit, !range.contains(limit) {
      throw ValidationError(
        "--limit is \(limit), but must be from \(range.lowerBound) to \(range.upperBound).")
    }
    var choices = ReportChoices()
    let given: [(ReportParameter, String?)] = [
      (.from, from?.text), (.to, to?.text), (.bucket, bucket?.rawValue), (.timeZone, timeZone),
      (.product, product), (.environment, environment?.rawValue),
      (.includeFamilyShared, includeFamilyShared ? "true" : nil),
      (.includeTrials, includeTrials ? "true" : nil),
      (.includeGrants, includeGrants ? "true" : nil), (.by, by?.rawValue),
      (.dateOf, dateOf?.rawValue), (.reportingCurrency, reportingCurrency),
      (.knownAt, knownAt.map { "\($0)" }),
      (.asOf, asOf.map { "\($0)" }), (.days, days.map { "\($0)" }),
      (.period, period.map { "\($0)" }), (.includeSandbox, includeSandbox ? "true" : nil),
      (.column, column),
    ]
    for case let (parameter, text?) in given { try choices.set(parameter, of: report, to: text) }
    choices.listsItems = items
    choices.limit = limit
    return choices
  }
}

extension ReportChoices.Bucket: ExpressibleByArgument {}
extension ReportChoices.Segmentation: ExpressibleByArgument {}
extension ReportChoices.DateOf: ExpressibleByArgument {}

extension CalendarDate: ExpressibleByArgument {
  package init?(argument: String) { self.init(iso8601: argument) }
}
