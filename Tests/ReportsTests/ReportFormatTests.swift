import Subscriptions
import Testing

@testable import Reports

/// The formats of reports, with any contents.
struct ReportFormatTests {
  private static let now = Timestamp(CalendarDate(year: 2026, month: 3, day: 31))

  private static func table(_ rows: [[ReportValue]]) -> ReportTable {
    ReportTable(
      report: .intake, asOf: now,
      columns: [
        ReportColumn("cause", .text), ReportColumn("number", .number),
        ReportColumn("oldest_age_ms", .duration), ReportColumn("last_at", .time),
        ReportColumn("last_detail", .text),
      ],
      rows: rows, isCutShort: false)
  }

  private static let sample = table([
    [.text("a, \"b\""), .number(12), .duration(milliseconds: 93_784_000), .time(now), .none],
    [.text("c\nd"), .number(3), .none, .none, .none],
  ])

  @Test func `people get aligned columns, and none without a value`() {
    #expect(
      Self.sample.text(.table) == """
        cause   number  oldest age  last at
        a, "b"      12     1 d 2 h  2026-03-31T00:00:00.000Z
        c d          3

        """)
  }

  @Test func `CSV is that of RFC 4180`() {
    #expect(
      Self.sample.text(.csv)
        == "cause,number,oldest_age_ms,last_at,last_detail\r\n"
        + "\"a, \"\"b\"\"\",12,93784000,2026-03-31T00:00:00.000Z,\r\n" + "\"c\nd\",3,,,\r\n")
  }

  @Test func `a comma or a quotation mark with an accent is one all the same`() {
    let table = Self.table([
      [.text("a,\u{301}"), .none, .none, .none, .none],
      [.text("\"\u{301}"), .none, .none, .none, .none],
    ])
    // By bytes: as characters they are equal to other texts.
    let rows = "\"a,\u{301}\",,,,\r\n\"\"\"\u{301}\",,,,\r\n"
    #expect(table.text(.csv).utf8.suffix(rows.utf8.count).elementsEqual(rows.utf8))
  }

  // swift-format-ignore
  @Test(arguments: [
    // text         the field of CSV
    ("=1+1",        "'=1+1"),
    ("+1",          "'+1"),
    ("-1",          "'-1"),
    ("@SUM(A1)",    "'@SUM(A1)"),
    ("\t=1",        "'\t=1"),
    ("\r=1",        "\"'\r=1\""),
    ("=\"a\",b",    "\"'=\"\"a\"\",b\""),
    // One character for Swift.
    ("=\u{301}",    "'=\u{301}"),
    ("a=1",         "a=1"),
    ("'",           "'"),
    ("a\rb",        "\"a\rb\""),
  ])
  func `what callers send is no formula of a spreadsheet, and no other line`(
    text: String, field: String
  ) {
    let table = Self.table([[.text(text), .number(-1), .none, .none, .none]])
    #expect(table.text(.csv).utf8.elementsEqual(
      "cause,number,oldest_age_ms,last_at,last_detail\r\n\(field),-1,,,\r\n".utf8))
    // Programs get it as it is.
    #expect(!table.text(.json).contains("'") || text == "'")
  }

  @Test func `JSON has each column in each row`() {
    #expect(
      Self.table([[.text("\"\\\n\u{1}é"), .number(-1), .none, .none, .none]]).text(.json)
        == #"{"report":"intake","as_of":"2026-03-31T00:00:00.000Z","rows":[{"#
        + #""cause":"\"\\\n\u0001é","number":-1,"oldest_age_ms":null,"last_at":null,"#
        + #""last_detail":null}],"cut_short":false}"# + "\n")
  }

  // swift-format-ignore
  @Test(arguments: [
    // milliseconds     words
    (0,                 "0 s"),
    (59_999,            "59 s"),
    (60_000,            "1 min"),
    (61_000,            "1 min 1 s"),
    (3_600_000,         "1 h"),
    (7_260_000,         "2 h 1 min"),
    (604_800_000,       "7 d"),
    (-61_000,           "-1 min 1 s"),
  ] as [(Int64, String)])
  func `durations are written with their two largest units`(milliseconds: Int64, words: String) {
    let row: [ReportValue] = [
      .none, .none, .duration(milliseconds: milliseconds), .none, .none,
    ]
    #expect(Self.table([row]).text(.table).split(separator: "\n").last?.trimmed == words)
  }

  // swift-format-ignore
  @Test(arguments: [
    // value                                        in a table       for programs
    (.money(milliunits: 9990, currency: "EUR"),     "9.99 EUR",      "9990"),
    (.money(milliunits: -5991, currency: "EUR"),    "-5.99 EUR",     "-5991"),
    (.money(milliunits: 962_457, currency: "EUR"),  "962.46 EUR",    "962457"),
    (.money(milliunits: 995, currency: "EUR"),      "1.00 EUR",      "995"),
    (.money(milliunits: -4, currency: "EUR"),       "0.00 EUR",      "-4"),
    (.money(milliunits: 100_500, currency: "JPY"),  "101 JPY",       "100500"),
    (.money(milliunits: -1024, currency: "KWD"),    "-1.024 KWD",    "-1024"),
    (.money(milliunits: -50, currency: nil),        "-0.05",         "-50"),
    (.money(milliunits: 5, currency: nil),          "0.005",         "5"),
    (.rate("0.333333"),                             "33.33 %",       "0.333333"),
    (.rate("-0.000049"),                            "0.00 %",        "-0.000049"),
    (.rate("-0.012350"),                            "-1.24 %",       "-0.012350"),
    (.rate("1.000000"),                             "100.00 %",      "1.000000"),
    (.fraction("179870.05"),                        "179870.05",     "179870.05"),
    (.flag(true),                                   "yes",           "true"),
  ] as [(ReportValue, String, String)])
  func `amounts and parts are exact`(value: ReportValue, words: String, plain: String) {
    let table = ReportTable(
      report: .mrr, asOf: Self.now, columns: [ReportColumn("mrr_milliunits", .money)],
      rows: [[value]], isCutShort: false)
    let lines = table.text(.table).split(separator: "\n")
    #expect(lines.first?.trimmed == "mrr")
    #expect(lines.last?.trimmed == words)
    let decimal = if case .money = value { words.prefix { $0 != " " } } else { words.prefix(0) }
    #expect(table.text(.csv) == "mrr_milliunits,mrr\r\n\(plain),\(decimal)\r\n")
    #expect(table.text(.json).contains("{\"mrr_milliunits\":\(plain)}"))
  }

  @Test func `no two columns of a file have one name`() {
    for columns in Report.all.flatMap({ [$0.columns, $0.itemColumns] }) {
      let names = columns.csvHead.split(separator: ",")
      #expect(Set(names).count == names.count, "\(names)")
    }
  }
}

extension Substring {
  fileprivate var trimmed: String {
    String(drop { $0 == " " })
  }
}
