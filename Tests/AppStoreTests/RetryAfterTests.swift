import AppStore
import Subscriptions
import Testing

/// `Retry-After` in each of its forms; the answer comes at 2026-09-21T13:33:20Z.
struct RetryAfterTests {
  // swift-format-ignore
  @Test(arguments: [
    (429, "120",                            "2026-09-21T14:15:20Z"),
    (503, "120",                            "2026-09-21T14:15:20Z"),
    (429, " 120",                           "2026-09-21T14:15:20Z"),
    (429, "Mon, 21 Sep 2026 14:30:00 GMT",  "2026-09-21T14:30:00Z"),
    (429, "1790001000000",                  "2026-09-21T14:30:00Z"),
    // Nothing waits for longer than a day.
    (429, "31536000",                       "2026-09-22T14:13:20Z"),
    (429, "Wed, 01 Jan 2098 00:00:00 GMT",  "2026-09-22T14:13:20Z"),
    (429, "9223372036854775807",            "2026-09-22T14:13:20Z"),
    // Past and unreadable values leave the delay to the worker.
    (429, "0",                              nil),
    (429, "-5",                             nil),
    (429, "-9223372036854775808",           nil),
    (429, "Mon, 21 Sep 2020 14:30:00 GMT",  nil),
    (429, "1500000000000",                  nil),
    (429, "Monday, 21-Sep-26 14:30:00 GMT", nil),
    (429, "soon",                           nil),
    (429, "",                               nil),
    (429, nil,                              nil),
    (500, nil,                              nil),
  ] as [(Int, String?, String?)])
  func `when to ask again`(status: Int, header: String?, moment: String?) async throws {
    let transport = ScriptedTransport { _ in
      AppStoreResponse(
        status: status, headers: header.map { [HTTPHeader("retry-after", $0)] } ?? [], body: [])
    }
    let verdict = await ReceiptVerifier(transport, apps: try apps("com.example.app"))
      .verify("cmVjZWlwdA==").verdict
    let retry = try #require(verdict.retry)
    // The answer takes a moment, from which seconds are counted.
    let toMinute: (Timestamp) -> Int64 = { $0.milliseconds / 60_000 }
    #expect(retry.notBefore.map(toMinute) == (try moment.map { toMinute(try Timestamp($0)) }))
  }
}
