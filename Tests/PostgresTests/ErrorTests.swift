import Testing

@testable import Postgres

@Suite struct ErrorTests {
  private static let secret = "tok3n-of-a-person"

  @Test func theServersErrorsAreNamed() async throws {
    let secret = Self.secret
    let noName: String? = nil
    try await TestServer.withPool { pool in
      try await pool.runScript(
        """
        CREATE TABLE owner (name text PRIMARY KEY CHECK (name <> 'missing'));
        CREATE TABLE owned (name text NOT NULL REFERENCES owner);
        INSERT INTO owner VALUES ('\(Self.secret)');
        """)
      // The SQLSTATE of each kind of error: a violated constraint, and an unusable statement.
      let table: [(SQL, String, String?, String?)] = [
        ("INSERT INTO owner VALUES (\(secret))", "23505", "owner_pkey", "owner"),
        ("INSERT INTO owner VALUES (\("missing"))", "23514", "owner_name_check", "owner"),
        ("INSERT INTO owned VALUES (\("none"))", "23503", "owned_name_fkey", "owned"),
        ("INSERT INTO owned VALUES (\(noName))", "23502", nil, "owned"),
        ("SELECT \(secret)::int", "22P02", nil, nil),
        ("SELECT * FROM nowhere", "42P01", nil, nil),
        ("SELECT FROM WHERE", "42601", nil, nil),
      ]
      for (sql, state, constraint, name) in table {
        let error = await postgresError { _ = try await pool.query(sql) }
        #expect(error?.sqlState?.rawValue == state)
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

  @Test func aServerThatIsNotThereIsDescribedWithoutGuesses() async throws {
    let error = await postgresError {
      try await TestServer.withPool(uri: "postgresql://unknown@127.0.0.1:1/none") {
        _ = try await $0.query("SELECT 1")
      }
    }
    #expect(
      error?.description.contains(
        /^PostgreSQL can't be reached: .*failed: Connection refused( in: SELECT 1)?$/) == true,
      "\(String(describing: error))")
  }

  @Test func copyIsRefused() async throws {
    try await TestServer.withPool { pool in
      let error = await postgresError { _ = try await pool.query("COPY pg_class TO STDOUT") }
      #expect(error?.code == .invalidRequest || error?.sqlState != nil)
      let alive = try await pool.query("SELECT 1").count
      #expect(alive == 1)
    }
  }

  @Test func whatSharesAConnectionWithCopyIsLostAndNotToBlame() async throws {
    try await TestServer.withPool { pool in
      _ = try await pool.query("SELECT 1")
      let statements: [SQL] = ["SELECT 1", "COPY pg_class TO STDOUT", "SELECT 2"]
      let answers = await Answers(
        of: statements.map { Request([$0], timeout: TestServer.patience) }, from: pool)
      #expect(try await answers.rows(of: 0)?.count == 1)
      #expect(await answers.error(of: 1)?.code == .invalidRequest)
      #expect(await answers.error(of: 1)?.statement == "COPY pg_class TO STDOUT")
      #expect(await answers.error(of: 2)?.code == .connectionLost)
    }
  }

  @Test func aCommitThatFailsAtTheEndOfABatchIsTheServersError() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 1
    } _: { pool in
      try await pool.execute(
        "CREATE TABLE checked_late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
      let process = try await pool.query("SELECT pg_backend_pid()").decodeOnly(Int32.self)
      let error = await postgresError {
        _ = try await pool.execute("INSERT INTO checked_late VALUES (1), (1)")
      }
      #expect(error?.sqlState == .uniqueViolation)
      #expect(error?.statement == "INSERT INTO checked_late VALUES (1), (1)")
      let next = try await pool.query("SELECT pg_backend_pid()").decodeOnly(Int32.self)
      #expect(next == process)
    }
  }

  @Test func aServerThatTakesNoWritesIsLeft() async throws {
    try await TestServer.withPool {
      $0.connectionLimit = 1
    } _: { pool in
      let process = try await pool.query("SELECT pg_backend_pid()").decodeOnly(Int32.self)
      try await pool.execute("SET default_transaction_read_only = on")
      let error = await postgresError { try await pool.execute("CREATE TABLE demoted (id int)") }
      #expect(error?.sqlState == .readOnlyTransaction)
      #expect(error?.isTransient == true)
      let next = try await pool.query("SELECT pg_backend_pid()").decodeOnly(Int32.self)
      #expect(next != process)
    }
  }

  // swift-format-ignore
  @Test(arguments: [
    ("57P01", true), ("57P03", true), ("57P04", false), ("53300", true), ("08006", true),
    ("25006", true), ("55P03", true), ("40001", true), ("23505", false), ("57014", false),
  ])
  func transientFailuresAreKnown(state: String, isTransient: Bool) {
    var error = PostgresError(.server, "")
    error.sqlState = SQLState(rawValue: state)
    #expect(error.isTransient == isTransient)
  }
}
