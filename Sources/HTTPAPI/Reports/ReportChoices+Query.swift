import Reports
import Subscriptions

extension ReportChoices {
  /// Reads what a request chooses of a report.
  ///
  /// - Throws: A ``Problem`` that names the parameter: for a value that it does not have, and for
  ///   what is nothing to choose of this report, since an answer that left it out would be another
  ///   one.
  init(of report: Report, from query: Query?) throws {
    self.init()
    guard let query else { return }
    for parameter in ReportParameter.allCases
    where query[parameter.rawValue] != nil && !report.parameters.contains(parameter) {
      throw Problem.invalid(parameter.rawValue, "is nothing to choose of this report")
    }
    from = try query.day("from")
    to = try query.day("to")
    bucket = try query["bucket"].map { text in
      guard let bucket = Bucket(exactly: text.rawValue) else {
        throw Problem.invalid("bucket", "must be day, week or month")
      }
      return bucket
    }
    timeZone = query["time_zone"]?.rawValue ?? timeZone
    product = query["product"]?.rawValue
    environment = try query.environment() ?? environment
    includesFamilyShared = try query.flag("include_family_shared") ?? includesFamilyShared
    includesTrials = try query.flag("include_trials") ?? includesTrials
    includesGrants = try query.flag("include_grants") ?? includesGrants
    splitsByProduct = try query.flag("by_product")
    reportingCurrency = query["reporting_currency"]?.rawValue
    knownAt = try query.moment("known_at")
    asOf = try query.moment("as_of")
    days = try query.integer("days", in: Self.dayRange) ?? days
    period = try query.integer("period", in: Self.periodRange)
    includesSandbox = try query.flag("include_sandbox") ?? includesSandbox
    listsItems = try query.flag("items") ?? listsItems
    column = query["column"]?.rawValue
    limit = try query.integer("limit", in: Self.limitRange)
  }
}

extension Query {
  fileprivate func day(_ name: String) throws -> CalendarDate? {
    try self[name].map { text in
      guard let day = CalendarDate(iso8601: text.rawValue) else {
        throw Problem.invalid(name, "must be a day of ISO 8601, as in 2026-11-21")
      }
      return day
    }
  }
}
