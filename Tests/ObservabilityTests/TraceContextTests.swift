import Testing

@testable import Observability

@Suite("W3C Trace Context")
struct TraceContextTests {
  private static let trace = "0af7651916cd43dd8448eb211c80319c"
  private static let span = "b7ad6b7169203331"

  @Test(
    "what is a traceparent, and what is none",
    arguments: [
      ("00-\(trace)-\(span)-01", true), ("00-\(trace)-\(span)-00", true),
      ("00-\(trace)-\(span)-ff", true),
      // A later version, and one that says more.
      ("01-\(trace)-\(span)-01", true), ("cc-\(trace)-\(span)-01-more", true),
      ("00-\(trace)-\(span)-01-more", false), ("cc-\(trace)-\(span)-01more", false),
      ("ff-\(trace)-\(span)-01", false), ("0g-\(trace)-\(span)-01", false),
      ("00-00000000000000000000000000000000-\(span)-01", false),
      ("00-\(trace)-0000000000000000-01", false), ("00-\(trace.uppercased())-\(span)-01", false),
      ("00-\(trace)-\(span)-1", false), ("00-\(trace)-\(span)", false), ("", false),
      ("00_\(trace)-\(span)-01", false), ("00-\(trace)-\(span)-0é", false),
      ("00-\(trace)0\(span)-01-", false),
    ])
  func traceparent(text: String, isOne: Bool) {
    #expect((TraceContext(traceparent: text) != nil) == isOne)
  }

  @Test("it is written as it was read")
  func roundTrip() throws {
    for flags in ["00", "01"] {
      let text = "00-\(Self.trace)-\(Self.span)-\(flags)"
      let context = try #require(TraceContext(traceparent: text, state: "vendor=1"))
      #expect(context.traceparent == text)
      #expect(context.isSampled == (flags == "01"))
      #expect(context.state == "vendor=1")
    }
    let small = TraceContext(trace: .init(high: 0, low: 10), span: 255, isSampled: false)
    #expect(small.traceparent == "00-0000000000000000000000000000000a-00000000000000ff-00")
    #expect(TraceContext(traceparent: small.traceparent) == small)
  }

  @Test("more of other tracers than may be sent is not handed along")
  func state() throws {
    let parent = "00-\(Self.trace)-\(Self.span)-01"
    let long = String(repeating: "a", count: 513)
    #expect(try #require(TraceContext(traceparent: parent, state: long)).state == nil)
    #expect(try #require(TraceContext(traceparent: parent, state: "")).state == nil)
    #expect(
      try #require(TraceContext(traceparent: parent, state: String(long.dropLast()))).state
        == String(long.dropLast()))
  }
}
