package import Subscriptions
import Synchronization

/// What can be chosen of a report.
package struct ReportChoices: Hashable, Sendable {
  /// For how long one row counts.
  package enum Bucket: String, CaseIterable, Sendable {
    case day
    /// From Monday to Sunday.
    case week
    case month
  }

  /// The first and the last day that are counted; nil: as the report's definition says.
  package var from: CalendarDate?
  package var to: CalendarDate?
  package var bucket: Bucket?
  /// Whose days are counted, by its name in the IANA database.
  package var timeZone = Self.utc
  /// Only this product.
  package var product: String?
  package var environment = Environment.production
  package var includesFamilyShared = false
  package var includesTrials = false
  package var includesGrants = false
  /// A row for each product; nil: as the report's definition says.
  package var splitsByProduct: Bool?
  /// ISO 4217; nil: nothing is summed across currencies.
  package var reportingCurrency: String?
  /// As the ledger knew it then; nil: as it is known now.
  package var knownAt: Timestamp?
  /// The moment that the report is about; nil: now.
  package var asOf: Timestamp?
  /// Of the intake report, how many days up to the last one, unless the first is chosen; of
  /// renewals, how many ahead.
  package var days = 30
  /// Of retention, the items of which month after the first.
  package var period: Int?
  /// The intake report is about production, unless told otherwise.
  package var includesSandbox = false
  /// Each thing that is counted, instead of the numbers.
  package var listsItems = false
  /// Only the things that one column counts; nil: those of all.
  package var column: String?
  /// The most rows that are given; nil: ``usualLimit`` of a table, all of a file.
  package var limit: Int?

  package static let utc = "UTC"
  /// More days than anybody keeps what arrived.
  package static let dayRange = 1...3660
  /// More months than there have been subscriptions.
  package static let periodRange = 0...600
  /// What is looked at at once.
  package static let usualLimit = 1000
  /// What fits into one answer.
  package static let limitRange = 1...10_000
  /// More than any answer has, and than a chart can show.
  static let longestRange = 36_600

  package init() {}

  /// Checks what no type can say.
  ///
  /// Whether there is such a time zone, the database knows.
  ///
  /// - Throws: ``ReportFault``.
  package func check(for report: Report) throws {
    if let from, let to {
      guard from.daysSince1970 <= to.daysSince1970 else {
        throw ReportFault(.from, "is after the last day, \(to.text)")
      }
      guard to.daysSince1970 - from.daysSince1970 <= Self.longestRange else {
        throw Self.tooLongRange
      }
    }
    if let product, product.isEmpty || product.count > 255 {
      throw ReportFault(.product, "must have 1 to 255 characters")
    }
    if let reportingCurrency,
      reportingCurrency.utf8.count != 3
        || !reportingCurrency.utf8.allSatisfy((UInt8(ascii: "A")...UInt8(ascii: "Z")).contains)
    {
      throw ReportFault(.reportingCurrency, "must be a code of ISO 4217, as in EUR")
    }
    if let column {
      let columns = report.shape.cells.keys.sorted()
      guard listsItems else { throw ReportFault(.column, "is for lists of items alone") }
      guard columns.contains(column) else {
        throw ReportFault(
          .column,
          columns.isEmpty
            ? "is nothing to choose of this report" : "must be one of \(columns.formattedList)")
      }
    }
  }
}

extension ReportChoices {
  /// Checks that the days are not too many where the last one is that of the moment.
  ///
  /// - Parameter now: The moment, unless another one is chosen.
  /// - Throws: ``ReportFault``.
  func checkRange(at now: Timestamp) throws {
    guard let from else { return }
    let moment = min(asOf ?? now, knownAt ?? asOf ?? now).dayAndTime.date.daysSince1970
    let last = min(to?.daysSince1970 ?? moment, moment)
    guard last - from.daysSince1970 <= Self.longestRange else { throw Self.tooLongRange }
  }

  private static let tooLongRange = ReportFault(
    .from, "is more than \(longestRange) days before the last day")
}

extension [String] {
  fileprivate var formattedList: String { joined(separator: ", ") }
}

extension CalendarDate {
  /// Reads a day as ISO 8601 writes it, as in `2026-11-21`; nil for anything else.
  package init?(iso8601 text: String) {
    guard text.utf8.count == 10, let moment = Timestamp(rfc3339: text + "T00:00:00Z") else {
      return nil
    }
    self = moment.dayAndTime.date
  }

  /// As ISO 8601 writes it.
  var text: String { String("\(Timestamp(self))".prefix(10)) }
}

/// The names of time zones that the database was seen to know.
///
/// Asking it takes longer than many a report does: its list of them is a walk through all files of
/// the IANA database, each time. A name that is known stays so for as long as the program runs.
final class KnownTimeZones: Sendable {
  private let names = Mutex<Set<String>>([])

  /// Whether the database was seen to know a name.
  func contains(_ name: String) -> Bool { names.withLock { $0.contains(name) } }

  /// Remembers a name that the database knows.
  func insert(_ name: String) { names.withLock { _ = $0.insert(name) } }
}
