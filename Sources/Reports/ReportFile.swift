import Postgres
package import Subscriptions
import Synchronization

/// A report as CSV, read in pieces from one snapshot.
package struct ReportFile: Sendable {
  /// Tens to hundreds of kilobytes in memory.
  static let rowsAtOnce = 1000
  /// A reader that takes nothing for this long is disconnected.
  static let patience: Duration = .seconds(60)

  let columns: [ReportColumn]
  let cursor: Cursor
  let place: FilePlaces.Place

  package var head: String { columns.csvHead }

  package func next() async throws -> String? {
    try await cursor.next()?.map { row in columns.csv(try columns.map(row.value)) }.joined()
  }

  /// Returns the connection before the end.
  package func close() async { await cursor.close() }
}

extension ReportReader {
  /// Opens a report as a file; without a limit it has all rows.
  package func file(
    of report: Report, _ choices: ReportChoices, at now: Timestamp
  ) async throws -> ReportFile {
    try await check(choices, for: report, at: now)
    return try await file(
      report.columns(choices), report.query(choices, rows: choices.limit, at: now))
  }

  /// Opens the items of a number as a file.
  package func file(of cell: ReportCell, at now: Timestamp) async throws -> ReportFile {
    let choices = cell.listing
    try await check(choices, for: cell.report, at: now)
    return try await file(
      cell.report.columns(choices), cell.items(cell.source(choices, at: now), rows: nil))
  }
}

/// ``ReportReader/mostFilesAtOnce`` files are open already.
package struct TooManyFiles: Error {}

final class FilePlaces: Sendable {
  final class Place: Sendable {
    private let places: FilePlaces

    fileprivate init(_ places: FilePlaces) { self.places = places }

    deinit { places.free.withLock { $0 += 1 } }
  }

  private let free: Mutex<Int>

  init(count: Int) { free = Mutex(count) }

  func take() throws -> Place {
    try free.withLock { free in
      guard free > 0 else { throw TooManyFiles() }
      free -= 1
    }
    return Place(self)
  }
}
