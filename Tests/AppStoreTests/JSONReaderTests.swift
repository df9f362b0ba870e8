import AppStore
import JSONText
import Testing

/// Valid JSON (RFC 8259), and texts that two readers could understand differently.
struct JSONReaderTests {
  // swift-format-ignore
  @Test(arguments: [
    ("null",                      .null),
    (" \t\r\n true\n",            true),
    ("false",                     false),
    ("0",                         0),
    ("-0",                        0),
    ("1698148900000",             1_698_148_900_000),
    ("9223372036854775807",       .integer(.max)),
    ("-9223372036854775807",      .integer(-.max)),
    ("-9223372036854775808",      .number(-9_223_372_036_854_775_808)),
    ("9223372036854775808",       .number(9_223_372_036_854_775_808)),
    ("18446744073709551616",      .number(18_446_744_073_709_551_616)),
    ("1697679936049.7297",        .number(1_697_679_936_049.7297)),
    ("1.0",                       .number(1)),
    ("1e3",                       .number(1000)),
    ("1E+3",                      .number(1000)),
    ("-2.5e-1",                   .number(-0.25)),
    ("1e-400",                    .number(0)),
    (#""""#,                      ""),
    (#""a b""#,                   "a b"),
    (#""äß€𝄞""#,                  "äß€𝄞"),
    (#""\"\\\/\b\f\n\r\t""#,      "\"\\/\u{8}\u{c}\n\r\t"),
    (#""\u0041\u00e9\uD834\udd1e""#, "Aé𝄞"),
    (#""\u0000""#,                "\u{0}"),
    (#""\u007f""#,                "\u{7f}"),
    (#""e\u0301""#,               "e\u{301}"),
    ("[]",                        []),
    ("[ ]",                       []),
    ("[1,[2,[]]]",                [1, [2, []]]),
    ("{}",                        [:]),
    (#"{ "b" : 1 , "a" : [ ] }"#, ["b": 1, "a": []]),
    (#"{"":""}"#,                 ["": ""]),
    (#"{"a":{"a":1},"b":{"a":1}}"#, ["a": ["a": 1], "b": ["a": 1]]),
  ] as [(String, JSONValue)])
  func `read`(text: String, value: JSONValue) throws {
    #expect(try JSONValue(parsing: text.utf8) == value)
    #expect(try JSONValue(parsing: value.bytes) == value)
  }

  // swift-format-ignore
  @Test(arguments: [
    "", " ", "nul", "nulll", "True", "NaN", "Infinity", "undefined", "'a'", "a",
    "+1", "01", "-01", "-", "1.", ".5", "1.e3", "1e", "1e+", "0x10", "1_000", "1e400", "-1e400", "--1",
    "\"", "\"a", "\"a\n\"", "\"a\u{1}\"", #""\"#, #""\x""#, #""\u""#, #""\u12""#, #""\u12g4""#,
    #""\ud834""#, #""\udd1e""#, #""\ud834\ud834""#, #""\ud834x""#, #""\udd1e\ud834""#, #""\ud834\n""#,
    "[", "]", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "[1}", "(1)",
    "{", "}", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":1,", "{\"a\":1,}", "{,}", "{a:1}", "{1:1}", "{\"a\" 1}", "{\"a\":1]",
    "{} {}", "1 2", "null,", "[]]", "{}\u{0}", "/**/1", "1//", "#1", "\u{feff}1", "\u{a0}1",
    #"{"a":1,"a":1}"#, #"{"a":1,"b":2,"\u0061":3}"#, #"[{"x":{"a":1,"a":2}}]"#,
    "{\"" + String(repeating: "n", count: 257) + "\":1}",
  ])
  func `refused`(text: String) {
    #expect(throws: JSONError.self) { try JSONValue(parsing: text.utf8) }
  }

  // swift-format-ignore
  @Test(arguments: [
    [0x22, 0xFF, 0x22], [0x22, 0xC3, 0x22], [0x22, 0xC0, 0x80, 0x22], [0x22, 0xED, 0xA0, 0x80, 0x22],
    [0x22, 0xF4, 0x90, 0x80, 0x80, 0x22], [0x22, 0x80, 0x22], [0xEF, 0xBB, 0xBF, 0x31], [0x31, 0x00],
    [0x22, 0x5C, 0x6E, 0xFF, 0x22], [0xFF, 0xFE, 0x31, 0x00],
  ] as [[UInt8]])
  func `bytes that are no UTF-8`(bytes: [UInt8]) {
    #expect(throws: JSONError.self) { try JSONValue(parsing: bytes) }
  }

  @Test func `nesting has an end, and a deep text costs no stack`() throws {
    let deepest = JSONValue.deepestNesting
    func nested(_ depth: Int, _ open: String, _ close: String) -> String {
      String(repeating: open, count: depth) + String(repeating: close, count: depth)
    }
    _ = try JSONValue(parsing: nested(deepest, "[", "]").utf8)
    _ = try JSONValue(
      parsing: (nested(deepest - 1, "{\"a\":", "}")
        .replacing(":}", with: ":0}")).utf8)
    for text in [nested(deepest + 1, "[", "]"), String(repeating: "[", count: 1_000_000)] {
      #expect(throws: JSONError.self) { try JSONValue(parsing: text.utf8) }
    }
  }

  @Test func `many members cost no quadratic time and are all compared`() throws {
    let members = (0..<50_000).map { "\"\($0)\":\($0)" }
    let text = "{" + members.joined(separator: ",")
    #expect(try JSONValue(parsing: (text + "}").utf8).keys.count == 50_000)
    #expect(throws: JSONError.self) { try JSONValue(parsing: (text + ",\"49999\":0}").utf8) }
  }

  @Test func `members are distinguished by bytes`() throws {
    let json = try JSONValue(parsing: "{\"caf\u{e9}\":1,\"cafe\u{301}\":2}".utf8)
    #expect(json["caf\u{e9}"] == 1)
    #expect(json["cafe\u{301}"] == 2)
    #expect(JSONValue.string("caf\u{e9}") != .string("cafe\u{301}"))
    let name = String(repeating: "n", count: JSONValue.longestName)
    #expect(try JSONValue(parsing: "{\"\(name)\":1}".utf8)[name] == 1)
    let twice = "{\"a\":\"\u{301}\u{323}\",\"a\":\"\u{323}\u{301}\"}"
    #expect(throws: JSONError.self) {
      try JSONValue(parsing: twice.utf8, toleratesRepetitions: true)
    }
  }

  @Test func `an error says what is wrong, and never what stands there`() {
    for text in [#"{"s3cr3t":1,"s3cr3t":2}"#, "\"s3cr3t", "[s3cr3t]", "s3cr3t", "{s3cr3t:1}"] {
      let error = #expect(throws: JSONError.self) { try JSONValue(parsing: text.utf8) }
      #expect(error?.description.contains("s3cr3t") == false)
    }
  }
}
