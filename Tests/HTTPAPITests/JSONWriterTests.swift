import AppStoreSimulator
import Foundation
import JSONText
import Subscriptions
import Testing

@testable import HTTPAPI

struct JSONWriterTests {
  private func text(_ write: (inout JSONWriter) -> Void) -> String {
    var json = JSONWriter(capacity: 16)
    write(&json)
    return String(decoding: json.bytes, as: UTF8.self)
  }

  @Test(
    "Strings, with the escapes that JSON asks for",
    arguments: [
      ("plain", #""plain""#),
      ("", #""""#),
      (#"a "quoted" \ word"#, #""a \"quoted\" \\ word""#),
      ("line\nbreak\r\ttab", #""line\nbreak\r\ttab""#),
      ("\u{0}\u{1}\u{1f}\u{7f}", "\"\\u0000\\u0001\\u001f\u{7f}\""),
      ("/slashes/ “quotes” é 日本 😀", #""/slashes/ “quotes” é 日本 😀""#),
    ])
  func strings(value: String, expected: String) throws {
    let written = text { $0.write(value) }
    #expect(written == expected)
    #expect(try JSONDecoder().decode(String.self, from: Data(written.utf8)) == value)
  }

  @Test func `structure, with commas where they belong`() {
    let written = text { json in
      json.object { json in
        json.member("first", 1)
        json.member("none", String?.none)
        json.memberIfPresent("left_out", String?.none)
        json.memberIfPresent("there", true)
        json.key("empty")
        json.object { _ in }
        json.member("list", ["[", "{", ","])
        json.key("nested")
        json.array([1, 2]) { json, element in
          json.object { $0.member("element", element) }
        }
      }
    }
    #expect(
      written == #"{"first":1,"none":null,"there":true,"empty":{},"list":["[","{",","],"#
        + #""nested":[{"element":1},{"element":2}]}"#)
  }

  @Test func `moments are written as they describe themselves`() {
    let seed = UInt64.random(in: .min ... .max)
    var random = SplitMix64(seed: seed)
    // From the year 1 to the year 9999.
    let range: ClosedRange<Int64> = -62_135_596_800_000...253_402_300_799_999
    for milliseconds in [0, -1, 1, 999, range.lowerBound, range.upperBound]
      + (0..<10_000).map({ _ in Int64.random(in: range, using: &random) })
    {
      let moment = Timestamp(milliseconds: milliseconds)
      let written = text { $0.write(moment) }
      #expect(written == "\"\(moment)\"", "seed \(seed)")
    }
  }
}
