import Foundation
import HTTPTypes
import HummingbirdCore
import LedgerStorage
import Subscriptions
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

  @Test func `a cursor with a time that no row can have is refused`() async throws {
    func text(_ place: some Encodable) throws -> String {
      String(decoding: try JSONEncoder().encode(place), as: UTF8.self)
    }
    let at = Timestamp(milliseconds: 1_234_567)
    let charge = TransactionKey(
      line: OriginalTransactionKey(.production, "1"), transactionID: "1", productID: "monthly")
    let places = [
      ("/admin/rejected?after=", try text(TimedCursor(at: at, id: UUID()))),
      ("/admin/parked?jobs_after=", try text(TimedCursor(at: at, id: Int64(1)))),
      ("/admin/unclaimed?after=", try text(UnclaimedCursor(expiresAt: at, charge: charge))),
      ("/admin/unclaimed?ended_after=", try text(UnclaimedCursor(expiresAt: at, charge: charge))),
      (
        "/admin/accounts/anna?history_after=",
        try text(
          AccountHistoryRows.Cursor(
            item: HistoryPosition(recordedAt: at, line: charge.line, number: 1)))
      ),
    ]
    try await TestAPI.run { api in
      _ = try await api.call(.put, "/v1/accounts/anna")
      var browser = try await AdminBrowser.loggedIn(api)
      for (path, place) in places {
        for (number, status) in [("1234567", 200), ("\(Int64.max)", 400), ("\(Int64.min)", 400)] {
          let cursor = place.replacing("1234567", with: number)
            .addingPercentEncoding(withAllowedCharacters: .alphanumerics)
          let page = try await browser.get(path + (cursor ?? ""))
          #expect(page.status == status, "\(path) \(number)")
        }
      }
    }
  }
}
