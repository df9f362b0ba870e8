import Testing

/// Citus's requirements on statements, as far as the text shows them.
///
/// Its requirements on tables are tested with the catalogue.
struct DistributionTests {
  /// The column of distribution of each table in shards, as the comments in schema.sql say.
  private static let sharded: [String: String] = {
    let schema = Repository.text(of: "schema.sql") ?? ""
    let notes = schema.matches(
      of: /COMMENT ON TABLE (?<table>\w+) IS\s+'[^;]*\[by (?<column>\w+)\]';/)
    return Dictionary(uniqueKeysWithValues: notes.map { (String($0.table), String($0.column)) })
  }()

  /// Where rows of many keys are written by one `unnest`, thousands at a time.
  private static let bulk: Set<String> = ["Sources/LedgerStorage/ImportExport/OwnerImport.swift"]

  private static func findings(in source: SwiftSource) throws -> [Finding] {
    guard source.path.hasPrefix("Sources/LedgerStorage/") else { return [] }
    return try source.literals.filter { $0.text.contains("tenure.") }.flatMap { literal in
      try faults(of: literal.text, isBulk: bulk.contains(source.path)).map {
        Finding(path: source.path, line: literal.line, fault: $0)
      }
    }
  }

  private static func faults(of statement: String, isBulk: Bool) throws -> [String] {
    let tables = statement.matches(of: try Regex(line: #"\btenure\.(\w+)"#))
      .compactMap { $0.output[1].substring.map(String.init) }
    let columns = Set(tables.compactMap { sharded[$0] })
    var faults: [String] = []
    if columns.count > 1 {
      faults.append("it reads shards by \(columns.sorted().joined(separator: " and "))")
    }
    if statement.contains(try Regex(line: #"\bFOR (NO KEY )?UPDATE\b"#)) {
      for column in columns
      where !statement.contains(try Regex(line: #"\b\#(column) = \$"#)) {
        faults.append("it locks rows in shards without \(column) = one value")
      }
    }
    if let change = statement.firstMatch(of: try Regex(line: #"\bDO UPDATE\b|\bUPDATE tenure\."#)) {
      let rest = statement[change.range.lowerBound...]
      if rest.contains(try Regex(line: #"\b(now|clock_timestamp|gen_random_uuid)\(\)"#)) {
        faults.append("what it changes takes a parameter, no now() or gen_random_uuid()")
      }
    }
    if let returning = statement.firstMatch(of: try Regex(line: #"\bRETURNING\b[^)]*"#)),
      statement[returning.range].contains(try Regex(line: #"\(SELECT\b|::text|\bto_jsonb?\("#)),
      !columns.isEmpty
    {
      faults.append("it returns more than plain columns")
    }
    if statement.contains(try Regex(line: #"= \((\$|ARRAY)[^)]*\)\["#)) {
      faults.append("it sets a plain array subscript, on which Citus's deparser crashes")
    }
    if statement.contains(try Regex(line: #"INSERT INTO [^()]+\([^()]*\)\s+SELECT DISTINCT\b"#)) {
      faults.append("Citus adds an identity column to SELECT DISTINCT: make rows distinct below it")
    }
    if statement.contains(try Regex(line: #"(?s)\bFROM \(\s*SELECT\s+FROM\b"#)) {
      faults.append("a Citus that stores the rows of a subquery needs a column, such as SELECT 1")
    }
    faults += try Self.unstableUpdates(in: statement)
    for column in isBulk ? [] : columns {
      let keys = try Regex(line: #"(?s)unnest\(.*AS \w+\s+\([^)]*\b\#(column)\b"#)
      guard statement.contains(keys) else { continue }
      faults.append("it has rows of many keys in one unnest: VALUES with `rowLists` is for them")
    }
    return faults
  }

  /// UPDATE statements that call a STABLE function, which Citus refuses for columns.
  private static func unstableUpdates(in text: String) throws -> [String] {
    let update = try Regex(line: #"(?s)\bUPDATE \w[^;]*"#)
    let stable = try Regex(
      line: #"\b(convert_to|convert_from|array_to_string|concat_ws|to_char)\("#)
    return text.matches(of: update).filter { text[$0.range].contains(stable) }.map { _ in
      "its UPDATE calls a STABLE function: read the value before, and pass it"
    }
  }

  @Test func statementsKeepToWhatCitusPlans() throws {
    #expect(Self.sharded.count > 20)
    try Repository.sources.flatMap(Self.findings).report()
    let schema = try #require(Repository.text(of: "schema.sql"))
    #expect(try Self.unstableUpdates(in: schema) == [])
  }

  @Test(arguments: [
    // statement                                                                      is a finding
    ("SELECT FROM tenure.movement AS c JOIN tenure.renewal_status AS p USING (number)", false),
    ("SELECT FROM tenure.account AS a JOIN tenure.account_by_key AS k USING (account_key)", true),
    ("SELECT FROM tenure.account WHERE account_id = \\(id) FOR UPDATE", false),
    ("SELECT FROM tenure.account WHERE account_key = \\(key) FOR UPDATE", true),
    ("SELECT FROM tenure.account WHERE account_id = ANY(\\(ids)) FOR NO KEY UPDATE", true),
    ("SELECT FROM tenure.job WHERE queue = \\(queue) FOR UPDATE SKIP LOCKED", false),
    ("UPDATE tenure.account SET published_at = \\(now) WHERE account_id = \\(id)", false),
    ("UPDATE tenure.account SET published_at = now() WHERE account_id = \\(id)", true),
    ("INSERT INTO tenure.job SELECT 1 ON CONFLICT (kind) DO UPDATE SET run_at = now()", true),
    ("DELETE FROM tenure.account WHERE account_id = \\(id) RETURNING account_key", false),
    ("DELETE FROM tenure.account WHERE account_id = \\(id) RETURNING account_key::text", true),
    ("INSERT INTO tenure.account (account_id) VALUES \\(rows)", false),
    ("INSERT INTO tenure.account SELECT account_id FROM unnest(\\(ids)) AS a (account_id)", true),
    ("UPDATE tenure.job SET run_at = (\\(times))[attempts]", true),
    ("UPDATE tenure.job SET run_at = (SELECT t.at[1] FROM (SELECT \\(times) AS at) AS t)", false),
    ("INSERT INTO tenure.job (kind, subject) SELECT DISTINCT kind, stream FROM new", true),
    ("INSERT INTO tenure.job (kind) SELECT kind FROM (SELECT DISTINCT kind FROM new) AS n", false),
    ("UPDATE tenure.notification SET sha256 = sha256(convert_to(body, 'UTF8'))", true),
    ("UPDATE tenure.notification SET sha256 = \\(hash)", false),
    ("SELECT count(*) FROM (SELECT FROM tenure.submission LIMIT 10) AS first", true),
    ("SELECT count(*) FROM (SELECT 1 FROM tenure.submission LIMIT 10) AS first", false),
    ("SELECT EXISTS (SELECT FROM tenure.submission)", false),
    ("INSERT INTO tenure.movement SELECT number FROM unnest(\\(numbers)) AS c (number)", false),
  ])
  func canFail(statement: String, isFinding: Bool) throws {
    let source = SwiftSource(
      path: "Sources/LedgerStorage/X.swift", text: "query(\"\(statement)\")")
    #expect(try Self.findings(in: source).isEmpty != isFinding, "\(statement)")
  }
}
