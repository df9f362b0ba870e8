/// What can be chosen of a report.
package struct ReportChoices: Hashable, Sendable {
  /// Of what is counted by the day, this many days, today included.
  package var days = 30
  /// Reports are about production, unless told otherwise.
  package var includesSandbox = false
  /// Each thing that is counted, instead of the numbers.
  package var listsItems = false
  /// The most rows that are given, the latest first.
  package var limit = 1000

  /// More days than anybody keeps what arrived.
  package static let dayRange = 1...3660
  /// What fits into one answer.
  package static let limitRange = 1...10_000

  package init() {}
}
