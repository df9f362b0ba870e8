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
