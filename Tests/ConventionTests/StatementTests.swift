import Testing

/// SQL has one home.
struct StatementTests {
  /// The targets that know tables, the client itself, the benchmarks' baselines, and the
  /// rehearsal's invented schema step.
  ///
  /// In tests SQL may stand anywhere.
  private static let homes = [
    "Sources/LedgerStorage/", "Sources/Reports/", "Sources/Postgres/",
    "Sources/Development/Benchmarks/", "Sources/Development/Demo/", "Tests/",
  ]

  private static func findings(in source: SwiftSource) throws -> [Finding] {
    guard !homes.contains(where: source.path.hasPrefix) else { return [] }
    // Keywords are written in capitals, and several of them are Apple's words, too: each counts
    // with what follows it in a statement.
    let statement = try Regex(
      line:
        #"\bSELECT\s|\b(INSERT\s+INTO|DELETE\s+FROM|TRUNCATE\s+TABLE)\s|\bUPDATE\s+\S+\s+SET\s|"#
        + #"\b(CREATE|ALTER|DROP)\s+(TABLE|INDEX|VIEW|SCHEMA|ROLE|USER|DATABASE|FUNCTION|TYPE)\b"#)
    return source.literals.filter { $0.text.contains(statement) }.map {
      Finding(
        path: source.path, line: $0.line,
        fault: "SQL stands in LedgerStorage or Reports: one method there for one statement")
    }
  }

  @Test func standWhereTablesAreKnown() throws {
    try Repository.sources.flatMap(Self.findings).report()
  }

  @Test(arguments: [
    // file                           code                                         is a finding
    ("Sources/LedgerStorage/X.swift", #"query("SELECT 1 FROM a")"#, false),
    ("Sources/Intake/X.swift", #"query("SELECT 1 FROM a")"#, true),
    ("Sources/HTTPAPI/X.swift", "query(\"\"\"\n  UPDATE tenure.a SET b = 1\n  \"\"\")", true),
    ("Sources/tenure/X.swift", #"query("INSERT INTO \(table) VALUES (1)")"#, true),
    ("Sources/Development/Benchmarks/X.swift", #"query("INSERT INTO a VALUES (1)")"#, false),
    ("Sources/Development/PrivatePostgres/X.swift", #"query("CREATE ROLE a")"#, true),
    ("Sources/AppStore/X.swift", #"case revoke = "REVOKE""#, false),
    ("Sources/Intake/X.swift", "// SELECT 1 FROM a", false),
    ("Sources/Intake/X.swift", #"log("Selects and updates are set")"#, false),
    ("Tests/IntakeTests/X.swift", #"query("SELECT 1 FROM a")"#, false),
  ])
  func canFail(path: String, code: String, isFinding: Bool) throws {
    let source = SwiftSource(path: path, text: code)
    #expect(try Self.findings(in: source).isEmpty != isFinding)
  }
}
