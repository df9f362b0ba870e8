import Postgres
import Testing

@Suite struct ErrorTests {
  private static let secret = "tok3n-of-a-person"

  @Test func theServersErrorsAreNamed() async throws {
    let secret = Self.secret
    let nobody: String? = nil
    try await TestServer.withPool { pool in
      try await pool.runScript(
        """
        CREATE TABLE owner (name text PRIMARY KEY CHECK (name <> 'nobody'));
        CREATE TABLE owned (name text NOT NULL REFERENCES owner);
        INSERT INTO owner VALUES ('\(Self.secret)');
        """)
      // swift-format-ignore
      let table: [(SQL, SQLState, String?, String?)] = [
        ("INSERT INTO owner VALUES (\(secret))",   .uniqueViolation, "owner_pkey",       "owner"),
        ("INSERT INTO owner VALUES (\("nobody"))", .checkViolation,  "owner_name_check", "owner"),
        ("INSERT INTO owned VALUES (\("none"))", .foreignKeyViolation, "owned_name_fkey", "owned"),
        ("INSERT INTO owned VALUES (\(nobody))",   .notNullViolation, nil, "owned"),
        ("SELECT \(secret)::int",            .invalidTextRepresentation, nil,                nil),
        ("SELECT * FROM nowhere",                  .undefinedTable,      nil,                nil),
        ("SELECT FROM WHERE",                      .syntaxError,         nil,                nil),
      ]
      for (sql, state, constraint, name) in table {
        let error = await postgresError { _ = try await pool.query(sql) }
        #expect(error?.sqlState == state)
        #expect(error?.constraint == constraint)
        #expect(error?.table == name)
        #expect(error?.statement == sql.text)
        #expect(error?.severity == "ERROR")
        #expect(error?.isTransient == false)
        let everything = "\(String(describing: error)) \(String(reflecting: error))"
        #expect(!everything.contains(secret))
      }
    }
  }

  @Test func anErrorIsDescribedOnOneLine() async throws {
    try await TestServer.withPool { pool in
      let error = await postgresError {
        _ = try await pool.query(
          """
          SELECT no_such_column
            FROM pg_class WHERE relname = \("x")
          """)
      }
      #expect(
        error?.description == """
          PostgreSQL ERROR 42703: column "no_such_column" does not exist \
          in: SELECT no_such_column FROM pg_class WHERE relname = $1
          """)
    }
  }

  @Test func copyHasAMethodOfItsOwn() async throws {
    try await TestServer.withPool { pool in
      let error = await postgresError { _ = try await pool.query("COPY pg_class TO STDOUT") }
      #expect(error?.code == .invalidRequest || error?.sqlState != nil)
      let alive = try await pool.query("SELECT 1").count
      #expect(alive == 1)
    }
  }
}
