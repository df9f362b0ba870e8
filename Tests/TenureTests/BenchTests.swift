import Logging
import Postgres
import ScratchDatabases
import Testing

@testable import tenure

@Suite("The benchmarks' limits")
struct BenchTests {
  @Test("the bare statements leave the rows of a submission")
  func bareStatementsAreThoseOfASubmission() async throws {
    let real = try await withScratchDatabase { database in
      _ = try await SampleLedger(submissions: 2, in: database)
      return try await contents(of: database)
    }
    let bare = try await withScratchDatabase { database in
      let submission = BareSubmission(database: database, appStore: PreparedAppStore())
      for sample in try await SampleLedger.prepare(2, in: database) {
        try await submission.perform(sample)
      }
      return try await contents(of: database)
    }
    #expect(real.keys.sorted() == bare.keys.sorted())
    #expect(real["ledger_entry"]?.rows.isEmpty == false)
    for (table, real) in real.sorted(by: { $0.key < $1.key }) {
      let bare = try #require(bare[table])
      #expect(bare.rows == real.rows, "\(table)")
      // Made-up values are about as long as real ones.
      let range = Double(real.bytes) * 0.8...Double(real.bytes) * 1.2
      #expect(range.contains(Double(bare.bytes)), "\(table): \(bare.bytes) of \(real.bytes)")
    }
  }

  @Test("signed data are measured without a database, and all of them are accepted")
  func signatures() async throws {
    let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
    let results = try await SignatureBenchmark(seconds: 1, rounds: 1, logger: logger).run()
    #expect(results.map(\.goal) == [0.5, nil, 0.5, nil])
    #expect(results.allSatisfy { $0.ratio > 0 })
  }

  /// What is in a table: which columns are filled in each row, and how many bytes there are.
  private struct Contents: Sendable {
    var rows: [String]
    var bytes: Int
  }

  private func contents(of database: ConnectionPool) async throws -> [String: Contents] {
    let tables = try await database.query(
      "SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'tenure'"
    ).decode(String.self)
    var contents: [String: Contents] = [:]
    for table in tables {
      let rows = try await database.query(
        """
        SELECT array_to_string(ARRAY(
          SELECT jsonb_object_keys(jsonb_strip_nulls(to_jsonb(t))) ORDER BY 1), ' '),
          octet_length(t::text)
        FROM tenure.\(unescaped: table) AS t ORDER BY 1
        """
      ).decode(String.self, Int.self)
      contents[table] = Contents(rows: rows.map(\.0), bytes: rows.map(\.1).reduce(0, +))
    }
    return contents
  }
}
