import Foundation
import JSONText
import LedgerStorage
import Subscriptions
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// The forms of import files.
@Suite("Rows of a file")
struct RowFileTests {
  private static let columns = [
    RowFile.Column("a"), RowFile.Column("b", "beta"), RowFile.Column("c", isNeeded: false),
  ]

  /// The rows of a file: each row's values with slashes between them, or its error.
  private static func rows(_ text: String) async throws -> [String] {
    try await rows(Data(text.utf8))
  }

  private static func rows(_ data: Data) async throws -> [String] {
    try await fileRows(data, columns).map { row in
      switch row.values {
      case .success(let values):
        "\(row.line): " + values.map { $0 ?? "-" }.joined(separator: "/")
      case .failure(let fault): "\(row.line)! \(fault.reason)"
      }
    }
  }

  private static func fileRows(
    _ data: Data, _ columns: [RowFile.Column]
  ) async throws -> [FileRow] {
    try await withTemporaryDirectory { directory in
      let path = directory.appending(path: "rows")
      try data.write(to: path)
      var file = try RowFile(FileBytes(FileHandle(forReadingFrom: path)), columns: columns)
      var rows: [FileRow] = []
      while let row = try file.next() { rows.append(row) }
      return rows
    }
  }

  private static let marks = String(repeating: "\u{301}\u{323}", count: 250_000)

  @Test(
    "A field comes back from CSV as it was written",
    arguments: [
      "x\"\u{301},pro,true", "\"\u{301}", ",\u{323}", "\"\"\u{301}\"", "a\r\u{301}\nb", "\u{301}",
      "\"", ",", "a b", "=1+1", "'", "\u{FEFF}x", "caf\u{e9}", "cafe\u{301}",
    ])
  func comesBack(field: String) async throws {
    let text = "a,b\r\n\(field.csvField(guardsFormulas: false)),2\r\n"
    let rows = try await Self.fileRows(Data(text.utf8), Self.columns)
    let values = try #require(try rows.first?.values.get())
    #expect(rows.count == 1)
    #expect(values[0].map { Array($0.utf8) } == Array(field.utf8))
    #expect(values[1] == "2")
  }

  @Test(
    "Formulas are guarded where that is asked for",
    arguments: [
      ("=1", "'=1"), ("+1", "'+1"), ("-1", "'-1"), ("@A", "'@A"), ("\t1", "'\t1"),
      ("=\u{301}", "'=\u{301}"), ("=a,b", "\"'=a,b\""), ("a=1", "a=1"), ("", ""),
    ])
  func guarded(field: String, expected: String) {
    #expect(Array(field.csvField(guardsFormulas: true).utf8) == Array(expected.utf8))
    #expect(!field.csvField(guardsFormulas: false).utf8.contains(UInt8(ascii: "'")))
  }

  @Test("A file with a million combining marks anywhere is read in no time")
  func marks() async throws {
    let start = ContinuousClock.now
    let marks = "a" + Self.marks
    let texts = [
      "\(marks),b\n1,2\n", "a,b,\(marks)\n1,2,3\n", "a,b\n\(marks),\(marks)\n",
      "{\"\(marks)\":1}\n", "{\"a\":\"\(marks)\",\"b\":\"\(marks)\"}\n",
    ]
    for text in texts {
      _ = try? await Self.fileRows(Data(text.utf8), Self.columns)
      _ = try? await Self.fileRows(Data(text.utf8), OwnerRow.columns)
    }
    let values = [marks, marks, marks, marks, marks, marks]
    _ = OwnerRow.owner(values, asOf: Timestamp(milliseconds: 0))
    _ = PublishedAccess.access(values, at: Timestamp(milliseconds: 0))
    #expect(ContinuousClock.now - start < .seconds(20))
  }

  struct Case: Sendable, CustomTestStringConvertible {
    var text: String
    var rows: [String]
    var testDescription: String { text }

    init(_ text: String, _ rows: [String]) {
      self.text = text
      self.rows = rows
    }
  }

  // swift-format-ignore
  static let cases: [Case] = [
    Case("a,b\n1,2\n",                         ["2: 1/2/-"]),
    Case("a,b\r\n1,2\r\n3,4",                  ["2: 1/2/-", "3: 3/4/-"]),
    Case("\u{FEFF}a,b\n1,2",                   ["2: 1/2/-"]),
    Case("\n\na,b\n\n1,2\n\n",                 ["5: 1/2/-"]),
    Case("c, B ,x,A\n1,2,3,4",                 ["2: 4/2/1"]),
    Case("a,beta\n1,",                         ["2: 1/-/-"]),
    Case("a,b\n\"1\",\"2,\"\"3\"\"\n4\"\n5,6", ["2: 1/2,\"3\"\n4/-", "4: 5/6/-"]),
    Case("a,b\n\"\",2",                        ["2: -/2/-"]),
    Case("a,b\n1\n2,3",                        ["2! The line can't be read: it has one field, but the header has 2.", "3: 2/3/-"]),
    Case("a,b\n1,2,3\n4,5",                    ["2! The line can't be read: it has 3 fields, but the header has 2.", "3: 4/5/-"]),
    Case("a,b\n1\"2,3\n4,5",                   ["2! The line can't be read: it has a quote inside an unquoted field.", "3: 4/5/-"]),
    Case("a,b\n\"1\"2,3\n4,5",                 ["2! The line can't be read: it has text after a closing quote.", "3: 4/5/-"]),
    Case("a,b\n1,\"2",                         ["2! The line can't be read: a quote is not closed."]),
    Case("{\"a\":\"1\",\"b\":2,\"x\":[]}\n\n{\"beta\":\"2\",\"a\":null,\"c\":true}\n", ["1: 1/2/-", "3: -/2/true"]),
    Case("{\"a\":[]}\n{\"a\":1,\"b\":2}",      ["1! The line can't be read: a is not a string or a number.", "2: 1/2/-"]),
    Case("{\"a\":1,\"b\":2}\n[1]\n",           ["1: 1/2/-", "2! The line can't be read: it is JSON, but not an object."]),
  ]

  @Test("A row is what stands between two ends of lines", arguments: cases)
  func reads(_ test: Case) async throws {
    #expect(try await Self.rows(test.text) == test.rows)
  }

  @Test("what is not in UTF-8 is one line's fault")
  func encoding() async throws {
    let rows = try await Self.rows(Data("a,b\n1,".utf8) + [0xE4] + Data("\n3,4".utf8))
    #expect(rows == ["2! The line can't be read: it is not UTF-8.", "3: 3/4/-"])
  }

  @Test("broken JSON is one line's fault")
  func brokenJSON() async throws {
    let rows = try await Self.rows("{\"a\":1,\"b\":2}\n{\"a\":\n{\"a\":3,\"b\":4}")
    #expect(rows.count == 3)
    #expect(rows[1].hasPrefix("2! The line can't be read: it is not JSON"))
    #expect(rows[2] == "3: 3/4/-")
  }

  // swift-format-ignore
  static let refused: [(String, String)] = [
    ("",              "empty"),
    ("a;b\n1;2",      "“;”"),
    ("a\tb\n1\t2",    "tabs"),
    ("a,c\n1,2",      "the column b"),
    ("a,b,a\n1,2,3",  "contains a twice"),
    ("a,\"b\n1,2",    "a quote is not closed"),
  ]

  @Test("A file without the columns is refused as a whole", arguments: refused)
  func refuses(text: String, named: String) async throws {
    let fault = await #expect(throws: FileFault.self) { try await Self.rows(text) }
    #expect(fault?.description.contains(named) == true, "\(String(describing: fault))")
  }

  @Test("rows are read as they were written, in both forms", arguments: RowFormat.allCases)
  func roundTrip(_ format: RowFormat) async throws {
    let rows: [[String?]] = [
      ["1", "plain", nil], ["2", "a,\"b\"\r\nc", "\u{1}\t\\"], ["3", "äöü 😀", "x"],
    ]
    try await withTemporaryDirectory { directory in
      let path = directory.appending(path: "rows").path(percentEncoded: false)
      var writer = try RowWriter(to: path, format, columns: ["a", "b", "c"])
      for row in rows { try writer.write(row) }
      try writer.finish()
      var file = try RowFile(
        FileBytes(FileHandle(forReadingFrom: URL(filePath: path))), columns: Self.columns)
      var found: [[String?]] = []
      while let row = try file.next() { found.append(try row.values.get()) }
      #expect(found == rows)
    }
  }

  // MARK: Owners

  // swift-format-ignore
  static let owners: [([String?], String)] = [
    (["production", "1000", "anna", nil, nil, nil],            "production/1000 anna"),
    (["Sandbox", "2000000012345678", "a b", nil, nil, nil],    "sandbox/2000000012345678 a b"),
    (["production", "1000", "anna", "77", "cmVj", nil],        "production/1000 anna 77 cmVj"),
    ([nil, "1000", "anna", nil, nil, nil],                     "missing_value"),
    (["production", nil, "anna", nil, nil, nil],               "missing_value"),
    (["production", "1000", nil, nil, nil, nil],               "missing_value"),
    (["live", "1000", "anna", nil, nil, nil],                  "unknown_environment"),
    (["production", "2.0E+15", "anna", nil, nil, nil],         "invalid_original_transaction_id"),
    (["production", "10 00", "anna", nil, nil, nil],           "invalid_original_transaction_id"),
    (["production", String(repeating: "1", count: 129), "anna", nil, nil, nil], "invalid_original_transaction_id"),
    (["production", "1000", "an\nna", nil, nil, nil],          "invalid_account_id"),
    (["production", "1000", String(repeating: "a", count: 256), nil, nil, nil], "invalid_account_id"),
    (["production", "1000", "anna", "7 7", nil, nil],          "invalid_transaction_id"),
    (["production", "1000", "anna", nil, "no base64", nil],    "invalid_receipt"),
    (["production", "1000", "anna", nil, nil, "com.example.app"], "production/1000 anna com.example.app"),
    (["production", "1000", "anna", nil, nil, String(repeating: "b", count: 256)], "invalid_bundle_id"),
    (["production", "1000", "anna", nil, nil, "com.example app"], "invalid_bundle_id"),
    (["production", "1000", "anna", nil, nil, "com.example\0"], "invalid_bundle_id"),
  ]

  @Test("An owner is an environment, an id and an account", arguments: owners)
  func readsOwner(values: [String?], expected: String) {
    switch OwnerRow.owner(values, asOf: Timestamp(milliseconds: 0)) {
    case .success(let owner):
      let parts = [
        "\(owner.line)", owner.accountID, owner.transactionID?.rawValue, owner.receipt,
        owner.bundleID,
      ]
      #expect(parts.compactMap(\.self).joined(separator: " ") == expected)
    case .failure(let fault): #expect(fault.code == expected, "\(fault)")
    }
  }

  // MARK: Comparisons

  private static let now = Timestamp(milliseconds: 1_790_000_000_000)

  // swift-format-ignore
  static let reported: [([String?], String)] = [
    (["anna", "gold", nil, nil],                        "true -"),
    (["anna", "gold", "", nil],                         "true never"),
    (["anna", "gold", "", "no"],                        "false never"),
    (["anna", "gold", "2999-01-01T00:00:00Z", nil],     "true 2999-01-01T00:00:00.000Z"),
    (["anna", "gold", "2001-01-01T00:00:00Z", nil],     "false 2001-01-01T00:00:00.000Z"),
    (["anna", "gold", "2001-01-01T00:00:00Z", "TRUE"],  "true 2001-01-01T00:00:00.000Z"),
    (["anna", "gold", nil, "0"],                        "false -"),
    (["anna", "gold", nil, "maybe"],                    "invalid_active"),
    (["anna", "gold", "tomorrow", nil],                 "invalid_time"),
    ([nil, "gold", nil, nil],                           "missing_value"),
    (["anna", nil, nil, nil],                           "missing_value"),
  ]

  // swift-format-ignore
  static let ends: [(String, String?)] = [
    ("account_id,entitlement,until\nanna,gold,2999-01-01T00:00:00Z", "2999-01-01T00:00:00Z"),
    ("account_id,entitlement,until\nanna,gold,",                     ""),
    ("account_id,entitlement,active\nanna,gold,true",                nil),
    (#"{"account_id":"a","entitlement":"b"}"#,                       nil),
    (#"{"account_id":"a","entitlement":"b","until":null}"#,          ""),
    (#"{"account_id":"a","entitlement":"b","until":""}"#,            ""),
    (#"{"account_id":"a","entitlement":"b","until":null,"expires_at":"c"}"#, "c"),
  ]

  @Test("An empty end is distinguished from a missing one", arguments: ends)
  func emptyEnds(text: String, expected: String?) async throws {
    let rows = try await Self.fileRows(Data(text.utf8), PublishedAccess.columns)
    #expect(try rows.map { try $0.values.get()[2] } == [expected])
  }

  @Test("What another backend says is active until its end, or as it says", arguments: reported)
  func readsAccess(values: [String?], expected: String) {
    switch PublishedAccess.access(values, at: Self.now) {
    case .success(let reported):
      let until =
        switch reported.until {
        case .unsaid: "-"
        case .never: "never"
        case .at(let moment): moment.description
        }
      #expect("\(reported.isActive) \(until)" == expected)
    case .failure(let fault): #expect(fault.code == expected)
    }
  }
  private static let (soon, later) = (now + .days(1), now + .days(30))

  // swift-format-ignore
  static let comparedEnds: [(Timestamp?, [PublishedAccess.End], Timestamp??)] = [
    // here  there                         until there, where it differs
    (soon,   [.at(soon)],                  nil),
    (soon,   [.at(soon + .minutes(5))],    nil),
    (soon,   [.at(soon + .minutes(6))],    .some(soon + .minutes(6))),
    (soon,   [.never],                     .some(nil)),
    (soon,   [.unsaid],                    nil),
    (nil,    [.never],                     nil),
    (nil,    [.unsaid],                    nil),
    (nil,    [.at(soon)],                  .some(soon)),
    // Of several lines the one that lasts longest.
    (soon,   [.at(soon), .never],          .some(nil)),
    (soon,   [.never, .unsaid],            .some(nil)),
    (soon,   [.unsaid, .never],            .some(nil)),
    (soon,   [.unsaid, .at(later)],        nil),
    (soon,   [.at(later), .unsaid],        nil),
    (later,  [.at(later), .at(soon)],      nil),
    (later,  [.at(soon), .at(later)],      nil),
  ]

  @Test("Different ends are reported, and a missing one differs from any", arguments: comparedEnds)
  func comparesEnds(here: Timestamp?, there: [PublishedAccess.End], expected: Timestamp??)
    async throws
  {
    let comparison = AccessComparison(tolerance: .minutes(5), now: Self.now)
    let entitlements = AccessTerms(catalogue: Catalogue([])).entitlements(
      of: "anna", holding: [],
      granted: [
        Grant(id: UUID(), entitlement: "gold", startsAt: Self.now - .days(1), endsAt: here)
      ], at: Self.now)
    let reported = there.map {
      PublishedAccess(accountID: "anna", entitlement: "gold", isActive: true, until: $0)
    }
    let found = try await comparison.differences(of: "anna", reported, entitlements) { _ in "" }
    #expect(found.map(\.kind) == (expected == nil ? [] : [.otherEnd]))
    #expect(found.first?.untilThere == expected ?? nil)
    #expect(found.allSatisfy { $0.untilHere == here })
  }
}
