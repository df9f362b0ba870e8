import Postgres
import Testing

@Suite struct SQLTests {
  @Test func interpolationsBecomeParameters() {
    let id = 7
    let sql: SQL = "SELECT * FROM account WHERE id = \(id) AND name = \("Bobby'; --")"
    #expect(sql.text == "SELECT * FROM account WHERE id = $1 AND name = $2")
  }

  @Test(arguments: [
    ([], "id = ANY($1)"), ([1], "id = $1"), ([1, 2], "id IN ($1, $2)"),
    ([1, 2, 3, 4], "id IN ($1, $2, $3, $4)"), ([1, 2, 3, 4, 5], "id = ANY($1)"),
  ])
  func fewValuesAreComparedWithoutAnArray(values: [Int], condition: String) async throws {
    let sql: SQL = "id \(anyOf: values)"
    #expect(sql.text == condition)
    let found = try await TestServer.withPool { pool in
      try await pool.query("SELECT id FROM generate_series(1, 9::int8) AS id WHERE \(sql)")
        .decode(Int.self)
    }
    #expect(found == values)
  }

  @Test func partsAreSplicedAndRenumbered() {
    let condition: SQL = "a = \(1) OR b = \("$1")"
    let sql: SQL = "SELECT \(0) WHERE (\(condition)) AND (\(condition)) LIMIT \(2)"
    #expect(
      sql.text == "SELECT $1 WHERE (a = $2 OR b = $3) AND (a = $4 OR b = $5) LIMIT $6")
  }

  @Test func rawTextHasToBeSpelled() {
    let table = "account"
    let sql: SQL = "SELECT \(unescaped: table).id"
    #expect(sql.text == "SELECT account.id")
  }

  @Test func manyPartsAreJoined() async throws {
    let rows = (1...12).map { number -> SQL in "(\(number), \("n\(number)"))" }
    let sql: SQL = "SELECT sum(a)::int8, max(b) FROM (VALUES \(rows.joined())) AS v (a, b)"
    #expect(sql.text.contains("($23, $24)) AS v"))
    let (sum, last) = try await TestServer.withPool { pool in
      try await pool.query(sql).decodeOnly(Int.self, String.self)
    }
    #expect(sum == 78)
    #expect(last == "n9")
  }

  @Test func scriptsAreSplitOutsideOfQuotesCommentsAndBodies() async throws {
    let notes = try await TestServer.withPool { pool in
      try await pool.runScript(
        #"""
        CREATE TABLE note (text text); -- one; with ' and $$
        INSERT INTO note VALUES ('a;b'''), ($$c;'d$$), ($x$e;$$f$x$) /* ; ' */;
        CREATE FUNCTION "of;note"(n int) RETURNS text BEGIN ATOMIC
          SELECT CASE WHEN $1 > 0 THEN max(text) END FROM note;
          SELECT CASE n WHEN 1 THEN 'g;' ELSE 'h' END;
        END;
        INSERT INTO note SELECT "of;note"(1);

        """#)
      return try await pool.query("SELECT text FROM note ORDER BY ctid").decode(String.self)
    }
    #expect(notes == ["a;b'", "c;'d", "e;$$f", "g;"])
  }

  @Test func tooManyParametersAreRefusedBeforeSending() async throws {
    let parts = (0...65_535).map { number -> SQL in "\(number)" }
    let error = await postgresError {
      try await TestServer.withPool { _ = try await $0.query("SELECT \(parts.joined())") }
    }
    #expect(error?.code == .invalidRequest)
  }
}
