import Postgres
import Subscriptions

/// What operators look at: each report answers one question about the books, by one definition.
///
/// The definition is the comment of a function or view `report_…` in `schema.sql`; each case has a
/// file of its own that says what can be chosen and which columns there are.
package enum Report: String, CaseIterable, Sendable {
  case subscriptions
  case active
  case trials
  case mrr
  case churn
  case renewalsDue = "renewals-due"
  case billingIssues = "billing-issues"
  case retention
  case revenue
  case refunds
  case reactivations
  case ownership
  case unclaimed
  case orders
  case intake
  case audit

  var shape: ReportShape {
    switch self {
    case .subscriptions: SubscriptionsReport.shape
    case .active: ActiveReport.shape
    case .trials: TrialsReport.shape
    case .mrr: RevenueRateReport.shape
    case .churn: ChurnReport.shape
    case .renewalsDue: RenewalsDueReport.shape
    case .billingIssues: BillingIssuesReport.shape
    case .retention: RetentionReport.shape
    case .revenue: RevenueReport.shape
    case .refunds: RefundsReport.shape
    case .reactivations: ReactivationsReport.shape
    case .ownership: OwnershipReport.shape
    case .unclaimed: UnclaimedReport.shape
    case .orders: OrdersReport.shape
    case .intake: IntakeReport.shape
    case .audit: AuditReport.shape
    }
  }
}

/// What a report is made of: a function `report_…` for the numbers and one `report_…_item` for what
/// they count, what can be chosen, and which columns they have.
struct ReportShape: Sendable {
  /// One sentence for a list of reports.
  var summary: String
  /// In the order in which they are asked for.
  var parameters: [ReportParameter]
  var columns: [ReportColumn]
  var order: String
  var itemColumns: [ReportColumn]
  var itemOrder: String
  /// What the function of the numbers has beside, and that of the items has not, and the reverse.
  var parametersOfNumbers: Set<ReportParameter> = []
  var parametersOfItems: Set<ReportParameter> = []
  /// The column of the items that tells what they count in.
  var cellColumn = "measure"
  /// What is found there for a column of the numbers.
  var cells: [String: [String]] = [:]

  /// What all reports of movements by the day have in common.
  static let dated: [ReportParameter] = [
    .from, .to, .bucket, .timeZone, .product, .environment, .includeFamilyShared,
  ]

  /// Cells whose things bear the column's own name.
  static func cells(_ names: String...) -> [String: [String]] {
    Dictionary(uniqueKeysWithValues: names.map { ($0, [$0]) })
  }
}

extension Report {
  /// The name of its function or view in the database.
  package var relation: String { "report_" + rawValue.replacing("-", with: "_") }

  /// What can be chosen of it.
  package var parameters: [ReportParameter] {
    shape.parameters + (shape.cells.isEmpty ? [] : [.column])
  }

  /// One sentence for a list of reports.
  package var summary: String { shape.summary }

  /// What its columns are, in order.
  func columns(_ choices: ReportChoices) -> [ReportColumn] {
    choices.listsItems ? shape.itemColumns : shape.columns
  }

  /// The question; its answer has the columns of ``columns(_:)``, by their names.
  ///
  /// - Parameters:
  ///   - choices: What is chosen, checked.
  ///   - rows: The most rows, whatever is chosen; nil: all.
  ///   - now: The moment that it is about, unless another one is chosen.
  /// - Returns: One statement.
  func query(_ choices: ReportChoices, rows: Int?, at now: Timestamp) -> SQL {
    if self == .intake { return IntakeReport.query(choices, rows: rows, at: now) }
    let shape = self.shape
    let names = columns(choices).map(\.selected).joined(separator: ", ")
    var condition: SQL = ""
    if choices.listsItems, let column = choices.column, let values = shape.cells[column] {
      condition = "WHERE \(unescaped: shape.cellColumn) = ANY (\(values))"
    }
    return """
      SELECT \(unescaped: names)
      FROM \(source(choices, at: now)) AS r
      \(condition)
      ORDER BY \(unescaped: choices.listsItems ? shape.itemOrder : shape.order)
      LIMIT \(rows)
      """
  }

  /// What lists the things that the report counts.
  func items(_ choices: ReportChoices, at now: Timestamp) -> SQL {
    self == .intake ? "tenure.report_intake_item" : source(choices, at: now)
  }

  private func source(_ choices: ReportChoices, at now: Timestamp) -> SQL {
    let name = relation + (choices.listsItems ? "_item" : "")
    return "tenure.\(unescaped: name)(\(arguments(choices, at: now)))"
  }

  private func arguments(_ choices: ReportChoices, at now: Timestamp) -> SQL {
    let others = choices.listsItems ? shape.parametersOfNumbers : shape.parametersOfItems
    var arguments: SQL = ""
    var isFirst = true
    for parameter in shape.parameters where !others.contains(parameter) {
      guard let name = parameter.argument, let value = choices.value(of: parameter, at: now) else {
        continue
      }
      let separator = isFirst ? "" : ", "
      arguments.append("\(unescaped: separator + name) => \(value)")
      isFirst = false
    }
    return arguments
  }
}

extension ReportChoices {
  /// A choice as an argument; nil: it is left to the function's default.
  fileprivate func value(of parameter: ReportParameter, at now: Timestamp) -> SQL? {
    switch parameter {
    case .from: from.map { "\($0.text)::date" }
    case .to: to.map { "\($0.text)::date" }
    case .bucket: bucket.map { "\($0.rawValue)" }
    case .timeZone: "\(timeZone)"
    case .product: product.map { "\($0)" }
    case .environment: "\(environment.rawValue)"
    case .includeFamilyShared: "\(includesFamilyShared)"
    case .includeTrials: "\(includesTrials)"
    case .includeGrants: "\(includesGrants)"
    case .byProduct: splitsByProduct.map { "\($0)" }
    case .reportingCurrency: reportingCurrency.map { "\($0)" }
    case .knownAt: knownAt.map { "\(PostgresTimestamp($0))" }
    case .asOf: "\(PostgresTimestamp(asOf ?? now))"
    case .days: "\(days)::integer"
    case .period: period.map { "\($0)::integer" }
    case .includeSandbox, .column: nil
    }
  }
}

extension ReportColumn {
  /// The column as it is asked for: dates and exact fractions travel as text.
  var selected: String {
    switch kind {
    case .text, .date, .fraction, .rate: "r.\(name)::text AS \(name)"
    case .number, .duration, .money: "r.\(name)::bigint AS \(name)"
    case .time, .flag: "r.\(name)"
    }
  }
}

/// Something that can be chosen of a report, by its name in HTTP and, with hyphens, in commands.
package enum ReportParameter: String, CaseIterable, Sendable {
  case from
  case to
  case bucket
  case timeZone = "time_zone"
  case product
  case environment
  case includeFamilyShared = "include_family_shared"
  case includeTrials = "include_trials"
  case includeGrants = "include_grants"
  case byProduct = "by_product"
  case reportingCurrency = "reporting_currency"
  case knownAt = "known_at"
  case asOf = "as_of"
  case days
  case period
  case includeSandbox = "include_sandbox"
  case column

  /// The parameter of the functions `report_…` in the database; nil for what none of them has.
  var argument: String? {
    switch self {
    case .from: "from_date"
    case .to: "to_date"
    case .includeSandbox, .column: nil
    case .bucket, .timeZone, .product, .environment, .includeFamilyShared, .includeTrials,
      .includeGrants, .byProduct, .reportingCurrency, .knownAt, .asOf, .days, .period:
      rawValue
    }
  }
}

/// What is wrong with a choice, as the end of a sentence that begins with its name.
package struct ReportFault: Error, Hashable {
  package let parameter: ReportParameter
  package let text: String

  init(_ parameter: ReportParameter, _ text: String) {
    self.parameter = parameter
    self.text = text
  }
}
