import Postgres
package import Subscriptions
import Synchronization

/// A report as CSV, piece by piece as it is sent: all of its rows, as they were at one moment.
package struct ReportFile: Sendable {
  /// Some ten to some hundred kilobytes: all that is in memory of it.
  static let rowsAtOnce = 1000
  /// Who takes nothing for so long will not come back for the rest.
  static let patience: Duration = .seconds(60)

  let columns: [ReportColumn]
  let cursor: Cursor
  let place: FilePlaces.Place

  /// The line of names, with which it begins.
  package var head: String { columns.csv }

  /// The next lines; nil: it is complete.
  ///
  /// - Throws: What the database says.
  package func next() async throws -> String? {
    try await cursor.next()?.map { row in try columns.map(row.value).csv }.joined()
  }

  /// Gives the connection back to other reports, where not all has been read.
  package func close() async { await cursor.close() }
}

extension ReportReader {
  /// Answers a report as a file.
  ///
  /// - Parameters:
  ///   - report: Which.
  ///   - choices: What is chosen of it; without a limit it has all rows.
  ///   - now: The moment that it is about.
  /// - Returns: The file; what can be wrong with the question is known by now.
  /// - Throws: ``ReportFault``; ``TooManyFiles``; what the database says.
  package func file(
    of report: Report, _ choices: ReportChoices, at now: Timestamp
  ) async throws -> ReportFile {
    try await check(choices, for: report, at: now)
    return try await file(
      report.columns(choices), report.query(choices, rows: choices.limit, at: now))
  }

  /// Lists all that is counted in a number as a file.
  ///
  /// - Parameters:
  ///   - cell: The number.
  ///   - now: The moment that the report is about, unless its choices name one.
  /// - Returns: The file; what can be wrong with the question is known by now.
  /// - Throws: ``ReportFault``; ``TooManyFiles``; what the database says.
  package func file(of cell: ReportCell, at now: Timestamp) async throws -> ReportFile {
    let choices = cell.listing
    try await check(choices, for: cell.report, at: now)
    return try await file(
      cell.report.columns(choices), cell.items(cell.source(choices, at: now), rows: nil))
  }
}

/// As many files as can be read at a time are being read.
package struct TooManyFiles: Error {}

/// The places of the files that are being read.
final class FilePlaces: Sendable {
  /// One of them, until nobody holds it any more.
  final class Place: Sendable {
    private let places: FilePlaces

    fileprivate init(_ places: FilePlaces) { self.places = places }

    deinit { places.free.withLock { $0 += 1 } }
  }

  private let free: Mutex<Int>

  init(count: Int) { free = Mutex(count) }

  /// Takes a place.
  ///
  /// - Throws: ``TooManyFiles``.
  func take() throws -> Place {
    try free.withLock { free in
      guard free > 0 else { throw TooManyFiles() }
      free -= 1
    }
    return Place(self)
  }
}
