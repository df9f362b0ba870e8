import HummingbirdCore
import Testing

@testable import AdminSite
@testable import HTTPAPI

/// The links of paged lists.
struct PagePartTests {
  // swift-format-ignore
  @Test(
    "Of a whole list",
    arguments: [
      // query             shown       text        before               after
      ("",                 1...7,      nil,        nil,                 nil),
      ("limit=2",          1...2,      "1–2 of 7", nil,                 "/x?after=2&limit=2"),
      ("limit=2&after=2",  3...4,      "3–4 of 7", "/x?limit=2",        "/x?after=4&limit=2"),
      ("limit=2&after=4",  5...6,      "5–6 of 7", "/x?after=2&limit=2", "/x?after=6&limit=2"),
      ("limit=2&after=6",  7...7,      "7–7 of 7", "/x?after=4&limit=2", nil),
      ("limit=3&after=1",  2...4,      "2–4 of 7", "/x?limit=3",        "/x?after=4&limit=3"),
      ("after=5",          6...7,      "6–7 of 7", "/x",                nil),
    ] as [(String, ClosedRange<Int>, String?, String?, String?)])
  func slices(
    query: String, shown: ClosedRange<Int>, text: String?, before: String?, after: String?
  ) throws {
    let part = try PagePart(URI("/x?\(query)"), of: "/x")
    let (elements, paging) = try part.slice(of: Array(1...7)) { "\($0)" }
    #expect(elements == Array(shown))
    #expect(paging?.text == text)
    #expect(paging?.previousHref == before)
    #expect(paging?.nextHref == after)
  }

  @Test func `of a list that goes on, in a page with several`() throws {
    let part = try PagePart(URI("/x?jobs_limit=2&after=9"), of: "/x?id=.", prefix: "jobs_")
    #expect(part.page.after == nil)
    let (elements, paging) = part.part(of: [1, 2, 3]) { $0 }
    #expect(elements == [1, 2])
    #expect(paging?.text == "2 rows, more on the next page")
    #expect(paging?.nextHref == "/x?id=.&jobs_after=2&jobs_limit=2")
    #expect(part.part(of: [1, 2]) { $0 }.paging == nil)
  }
}
