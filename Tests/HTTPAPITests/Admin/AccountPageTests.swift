import AppStore
import AppStoreSimulator
import Foundation
import HTTPTypes
import JSONText
import LedgerStorage
import Postgres
import Subscriptions
import Testing

@testable import AdminSite
@testable import HTTPAPI

/// The account page, which explains why a customer lacks access.
struct AccountPageTests {
  /// The section with a title, or an empty string.
  private func section(_ title: String, of page: AdminBrowser.Page) -> String {
    guard let start = page.text.range(of: ">\(title)</h2>") else { return "" }
    let rest = page.text[start.upperBound...]
    return String(rest[..<(rest.range(of: "</section>")?.lowerBound ?? rest.endIndex)])
  }

  /// The URL of the link `Next` in a section.
  private func next(in section: String) -> String? {
    section.firstMatch(of: /href=\x22([^\x22]*)\x22 rel=\x22next/)
      .map { String($0.1).replacing("&amp;", with: "&") }
  }

  private static let claimed = "Submitted here, owned by another account"
  private static let moved = "Moved to another account"

  /// Anna's month, which Ben's account submits, too.
  private func share(
    _ api: TestAPI, as names: (anna: String, ben: String) = ("anna", "ben")
  ) async throws -> TransactionID {
    try await api.describe("monthly", "premium")
    try api.addCustomer("phone")
    let bought = try api.apple.simulation.buy("monthly", on: "phone")
    _ = try await api.submit(names.anna, from: "phone")
    _ = try await api.submit(names.ben, from: "phone")
    return bought.transactionID
  }

  // MARK: Charges owned by others, and unclaimed ones

  @Test func `charges that another account owns stand on the page of who submitted them`()
    async throws
  {
    try await TestAPI.run { api in
      let names = ("<b>anna</b>", "ben \"&\" <i>")
      let bought = try await share(api, as: names)
      var browser = try await AdminBrowser.loggedIn(api)
      let page = try await browser.get(AdminURL.account(names.1))
      let text = section(Self.claimed, of: page)
      let line = "/admin/original-transactions/\(bought)?environment=production"
      for part in [
        #"href="\#(line)#charge-\#(bought)-monthly""#,
        #"“<a class="code" href="/admin/accounts/%3Cb%3Eanna%3C%2Fb%3E">&lt;b&gt;anna&lt;/b&gt;</a>”"#
          + " submitted it first",
        "this is the subscription&#39;s first charge",
        #"href="/admin/transactions/\#(bought)/transfer?environment=production&amp;product_id="#,
      ] {
        #expect(text.contains(part), "\(part)")
      }
      // The page of the original transaction has the same text.
      let because = try #require(
        // The owner is named once, as a link.
        text.replacing(/<[^>]*>/, with: "").firstMatch(
          of: /“&lt;b&gt;anna&lt;\/b&gt;” submitted it first[^.]*/)?.0)
      #expect(
        try await browser.get(line).text.replacing(/<[^>]*>/, with: "")
          .contains(String(because).trimmingCharacters(in: .whitespaces)))
      #expect(page.contains("No purchases."))
      #expect(page.contains("No active entitlements: monthly of "))
      #expect(
        page.text.contains(
          /submitted here, but belongs to <a [^>]*>&lt;b&gt;anna&lt;\/b&gt;<\/a>, who submitted it/)
      )
      #expect(!page.contains("<b>anna"))
      #expect(
        section(Self.claimed, of: try await browser.get(AdminURL.account(names.0))).isEmpty)
    }
  }

  @Test func `charges of others are paged, and each leads to its owner`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      for number in 1...3 {
        let payment = Payment(id: "\(number)1", line: "\(number)1", from: Double(number), to: 90)
        try await api.claim(payment, by: "anna", on: Double(number))
        try await api.claim(payment, by: "ben", on: Double(number))
      }
      var browser = try await AdminBrowser.loggedIn(api)
      var (path, seen): (String?, [String]) = ("/admin/accounts/ben?claimed_limit=2", [])
      while let address = path, seen.count < 10 {
        let text = section(Self.claimed, of: try await browser.get(address))
        seen += text.matches(of: /\/transactions\/(\d+)\/transfer/).map { String($0.1) }
        path = next(in: text)
      }
      #expect(seen == ["31", "21", "11"])
      #expect(try await browser.get("/admin/accounts/ben?claimed_after=x").status == 400)
      #expect(try await browser.get("/admin/accounts/ben?unclaimed_after=x").status == 400)
    }
  }

  /// The links to the forms that transfer the charges of a section.
  private func transactions(in section: String) -> [String] {
    section.matches(of: /\/transactions\/(\d+)\/transfer/).map { String($0.1) }
  }

  @Test func `all charges that moved stand once on the pages of both accounts`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      for line in ["11", "21", "31"] {
        try await api.claim(Payment(id: line, line: line, from: 0, to: 30), by: "leo", on: 0.1)
        // Apple reports the renewal, which leo's app never submits.
        let renewal = Payment(
          id: "\(line)0", line: line, from: 30, to: 60, reason: "RENEWAL")
        try await api.deliver(
          Notice("DID_RENEW", nil, renewal, Future(line: line, isOn: true, end: 60), on: 30))
      }
      try await api.claim(Payment(id: "41", line: "41", from: 31, to: 61), by: "klara", on: 31)
      try await api.claim(Payment(id: "41", line: "41", from: 31, to: 61), by: "leo", on: 32)
      for (id, day) in [("110", 33.0), ("210", 34), ("310", 35), ("31", 36)] {
        api.live(until: day)
        let owner: JSONValue = ["account_id": "klara", "reason": "Hers."]
        _ = try await api.call(.post, "/v1/transactions/\(id)/owner", owner, as: .admin)
      }
      // What moved on is told as this account lost it.
      _ = try await api.call(.put, "/v1/accounts/nils")
      _ = try await api.call(
        .post, "/v1/transactions/110/owner", ["account_id": "nils", "reason": "His."], as: .admin)

      var browser = try await AdminBrowser.loggedIn(api)
      let leo = try await browser.get("/admin/accounts/leo")
      let lost = section(Self.moved, of: leo)
      #expect(transactions(in: lost).sorted() == ["110", "210", "31", "310"], "\(lost)")
      #expect(transactions(in: section(Self.claimed, of: leo)) == ["41"])
      #expect(transactions(in: section("Charges", of: leo)).sorted() == ["11", "21"])
      let words = lost.replacing(/<[^>]*>/, with: "")
      for text in [
        "Moved to klara on 3 Feb 2026 by an administrator. An administrator assigned it to “nils”.",
        "Moved to klara on 4 Feb 2026  · by ops Hers.",
      ] { #expect(words.contains(text), "\(text) in \(words)") }

      let klara = section("Charges", of: try await browser.get("/admin/accounts/klara"))
        .replacing(/<[^>]*>/, with: "")
      for day in ["4 Feb", "5 Feb", "6 Feb"] {
        #expect(
          klara.contains("Moved here from leo on \(day) 2026  · by ops Hers."), "\(klara)")
      }
      // Without a charge of its own, the account had some.
      api.live(until: 37)
      for id in ["11", "21"] {
        let owner: JSONValue = ["account_id": "klara", "reason": "Hers."]
        _ = try await api.call(.post, "/v1/transactions/\(id)/owner", owner, as: .admin)
      }
      browser = try await AdminBrowser.loggedIn(api)
      let none = try await browser.get("/admin/accounts/leo")
      #expect(section("Charges", of: none).contains("No charges now."))
      let nils = section("Charges", of: try await browser.get("/admin/accounts/nils"))
        .replacing(/<[^>]*>/, with: "")
      #expect(nils.contains("Moved here from klara on 6 Feb 2026  · by ops His."))

      var (path, seen): (String?, [String]) = ("/admin/accounts/leo?moved_limit=3", [])
      while let address = path, seen.count < 10 {
        let text = section(Self.moved, of: try await browser.get(address))
        seen += transactions(in: text)
        path = next(in: text)
      }
      #expect(seen.sorted() == ["11", "110", "21", "210", "31", "310"])
      #expect(try await browser.get("/admin/accounts/leo?moved_after=x").status == 400)
    }
  }

  @Test func `a released charge has no owner, and says by whom and why`() async throws {
    try await TestAPI.run { api in
      let bought = try await share(api)
      let path = "/v1/transactions/\(bought)/owner?reason=%3Cem%3EHers%3C%2Fem%3E"
      #expect(try await api.call(.delete, path, as: .admin).status == 200)
      var browser = try await AdminBrowser.loggedIn(api)
      for account in ["anna", "ben"] {
        let page = try await browser.get("/admin/accounts/\(account)")
        #expect(section(Self.claimed, of: page).isEmpty)
        #expect(section(Self.moved, of: page).isEmpty)
        let text = section("Unclaimed charges", of: page)
        #expect(text.contains(">\(bought)</a>"), "\(account)")
        #expect(
          text.contains("An administrator released it, and no account has submitted it since."))
        #expect(text.contains("by <strong>ops</strong></span> <q>&lt;em&gt;Hers&lt;/em&gt;</q>"))
        #expect(text.contains(">Released</span>"))
        #expect(page.contains("1 submitted charge is unclaimed"))
      }
      let page = try await browser.get("/admin/original-transactions/\(bought)")
      #expect(page.contains("Released by"))
    }
  }

  // MARK: Submissions

  @Test func `a submission shows its content, its result and its warnings`()
    async throws
  {
    try await TestAPI.run { api in
      _ = try await share(api)
      var browser = try await AdminBrowser.loggedIn(api)
      let ben = section("Submissions", of: try await browser.get("/admin/accounts/ben"))
      for part in [
        "Receipt verified by Apple. Claimed 1 transaction; no owner changed.",
        "Another account owned the claimed transactions.",
      ] {
        #expect(ben.contains(part), "\(part)")
      }
      let anna = section("Submissions", of: try await browser.get("/admin/accounts/anna"))
      #expect(anna.contains("; the account gained 1 charge."))
      #expect(!anna.contains(">Warning<"))
    }
  }

  @Test func `an empty receipt, one of an unknown product, and a rejected one are distinguished`()
    async throws
  {
    try await TestAPI.run { api in
      let bundle = SimulatedApp.sample.bundleID
      let empty =
        #"{"status":0,"environment":"Production","receipt":{"receipt_type":"Production","#
        + #""bundle_id":"\#(bundle)","request_date_ms":"1767225600000","in_app":[]}}"#
      api.apple.answer("e3JlY2VpcHR9", with: Array(empty.utf8))
      #expect(try await api.submit("ben", receipt: "e3JlY2VpcHR9").status == 200)
      api.apple.answer("e3JlamVjdGVk", with: Array(#"{"status":21003}"#.utf8))
      #expect(try await api.submit("ben", receipt: "e3JlamVjdGVk").status == 422)
      try await api.claim(Payment(id: "1000", from: 0, to: 30), by: "ben", on: 1)
      try api.addCustomer("phone")
      try api.apple.simulation.buy("monthly", on: "phone")
      _ = try await api.submit("ben", from: "phone", ["restore": true, "transaction_id": "77"])
      var browser = try await AdminBrowser.loggedIn(api)
      let text = section("Submissions", of: try await browser.get("/admin/accounts/ben"))
      for part in [
        "The receipt contains no purchases.", "Claimed nothing.",
        "rejected (Apple status 21003).",
        "Signed transactions verified by Apple.", "A product was not in the catalogue",
        "Receipt (restore, transaction 77) verified by Apple.",
        "The named transaction is not in the submission; next check",
      ] {
        #expect(text.contains(part), "\(part)")
      }
    }
  }

  @Test func `submissions are paged, and the last one is part of the verdict`() async throws {
    try await TestAPI.run { api in
      api.apple.answer("e3JlamVjdGVk", with: Array(#"{"status":21003}"#.utf8))
      for _ in 1...3 { _ = try await api.submit("ben", receipt: "e3JlamVjdGVk") }
      for _ in 1...6 { _ = try await api.submit("carl", receipt: "e3JlamVjdGVk") }
      var browser = try await AdminBrowser.loggedIn(api)
      var (path, seen): (String?, Set<String>) = ("/admin/accounts/ben?submissions_limit=2", [])
      var pages = 0
      while let address = path, pages < 10 {
        let page = try await browser.get(address)
        #expect(page.contains("The latest submission was rejected."))
        let text = section("Submissions", of: page)
        seen.formUnion(text.matches(of: /[0-9a-f]{8}-[0-9a-f-]{27}/).map { String($0.0) })
        path = next(in: text)
        pages += 1
      }
      #expect(pages == 2)
      #expect(seen.count >= 3)
      #expect(try await browser.get("/admin/accounts/ben?submissions_after=x").status == 400)
      let folded = section("Submissions", of: try await browser.get("/admin/accounts/carl"))
      #expect(folded.contains("<summary>1 earlier submission</summary>"))
      #expect(folded.matches(of: /<li id=/).count == 6)
    }
  }

  // MARK: History

  @Test func `history remains visible after the feed has deleted its events`() async throws {
    try await TestAPI.run { api in
      let bought = try await share(api)
      api.apple.simulation.advance(by: .days(3))
      try api.apple.simulation.refund(bought)
      _ = try await api.submit("anna", from: "phone")
      let before = try await api.database.query(
        "SELECT count(*) FROM tenure.event"
      ).decodeOnly(Int.self)
      #expect(before > 0)
      try await api.ledger.events.placeEvents()
      var browser = try await AdminBrowser.loggedIn(api)
      let whole = try await browser.get("/admin/accounts/anna")
      #expect(!whole.contains("were deleted"))
      _ = try await api.database.execute(
        """
        UPDATE tenure.feed SET trimmed_to = (SELECT max(position) FROM tenure.event),
          trimmed_stored_at = '2026-02-03T04:05:06Z'
        """)
      _ = try await api.database.execute("DELETE FROM tenure.event")

      let page = try await browser.get("/admin/accounts/anna")
      #expect(page.contains("stored until 3 Feb 2026, 04:05 were deleted"))
      #expect(!page.contains("Nothing yet"))
      let history = section("History", of: page)
      for part in [
        "“anna” submitted transaction \(bought).", "Claimed. “anna” submitted it first",
        "Apple reported transaction \(bought)", "refunded on 4 Jan 2026",
      ] {
        #expect(history.replacing(/<[^>]*>/, with: "").contains(part), "\(part)")
      }
      #expect(
        history.contains(
          #"href="/admin/original-transactions/\#(bought)?environment=production">\#(bought)</a>"#))
      #expect(!history.contains("<p class=\"note\">Event"))
      #expect(section("History", of: whole).contains("Charge claimed: monthly"))
      // Ben only has his claim: he never owned a charge of this original transaction.
      let ben = section("History", of: try await browser.get("/admin/accounts/ben"))
      #expect(
        ben.replacing(/<[^>]*>/, with: "").contains("“ben” submitted transaction \(bought)."))
      #expect(!ben.contains("“anna”"))
      #expect(!ben.contains("Apple reported"))
      _ = try await api.call(.put, "/v1/accounts/carl")
      let none = section("History", of: try await browser.get("/admin/accounts/carl"))
      #expect(none.contains("No history yet."))
      let fromApple = try await browser.get("/admin/accounts/carl?history=apple")
      #expect(fromApple.contains("Nothing from Apple about charges this account owns."))
    }
  }

  @Test func `what happened is paged without a gap or a repetition`() async throws {
    try await TestAPI.run { api in
      let bought = try await share(api)
      for number in 1...3 {
        api.apple.simulation.advance(by: .days(30))
        _ = try await api.submit("anna", from: "phone")
        let grant: JSONValue = [
          "account_id": "anna", "entitlement": .string("gift-\(number)"), "reason": "r",
        ]
        #expect(try await api.call(.post, "/v1/grants", grant, as: .admin).status == 201)
      }
      var browser = try await AdminBrowser.loggedIn(api)
      // Pages fold differently what they cut apart.
      func rows(_ text: String) -> [String] {
        text.matches(of: /<time datetime=\x22([^\x22]*)\x22>[^<]*<\/time>\n<div><p>(.*)<\/p>/)
          .map { "\($0.1) \($0.2)" }.sorted()
      }
      let all = section(
        "History", of: try await browser.get("/admin/accounts/anna?history_limit=500"))
      #expect(rows(all).count > 10)
      #expect(all.contains(bought.rawValue))
      #expect(all.contains("Granted gift-2 to "))
      for limit in [1, 4] {
        var (path, seen): (String?, [String]) = (
          "/admin/accounts/anna?history_limit=\(limit)", []
        )
        while let address = path, seen.count <= rows(all).count {
          let text = section("History", of: try await browser.get(address))
          seen += rows(text)
          path = next(in: text)
        }
        #expect(seen.sorted() == rows(all), "\(limit)")
      }
      for cursor in ["x", "%1F1", "%1F1%1Fmoon%1F1%1F1", "%1F1%1Fproduction%1F1%1Fx"] {
        let path = "/admin/accounts/anna?history_after=\(cursor)"
        #expect(try await browser.get(path).status == 400, "\(cursor)")
      }
    }
  }

  @Test func `what is known of one charge is one row, and renewals are folded`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.claim(Payment(id: "1", line: "1", from: 0, to: 30), by: "anna", on: 0.1)
      for number in 2...4 {
        let start = Double(number - 1) * 30 - 0.5
        let renewal = Payment(
          id: "\(number)", line: "1", from: start, to: start + 30.5, reason: "RENEWAL")
        try await api.claim(renewal, by: "anna", on: start + 0.1)
      }
      var browser = try await AdminBrowser.loggedIn(api)
      /// The rows that are seen before anything is unfolded.
      func rows(_ text: String) -> [String] {
        var depth = 0
        return text.split(separator: "\n").filter { line in
          depth += line.matches(of: /<details/).count
          defer { depth -= line.matches(of: /<\/details/).count }
          return depth == 0 && line.hasPrefix("<div><p")
        }.map { String($0).replacing(/<[^>]*>/, with: "") }
      }
      let history = section("History", of: try await browser.get("/admin/accounts/anna"))
      let shown = rows(history)
      #expect(shown.count == 2, "\(shown)")
      #expect(shown.first == "Renewal of monthly on 31 Mar 2026: until 1 May 2026.")
      #expect(
        shown.last
          == "Purchase of monthly on 1 Jan 2026: until 31 Jan 2026. Access to “premium” began.")
      #expect(history.contains("<summary>2 earlier charges, back to 30 Jan 2026</summary>"))
      #expect(history.contains(/<summary>\d details<\/summary>/))
      // Nothing is lost.
      #expect(history.matches(of: /: a renewal of monthly/).count == 3)
      #expect(history.matches(of: /Charge recorded: monthly/).count == 4)
      for filter in ["decisions", "events"] {
        let part = section(
          "History", of: try await browser.get("/admin/accounts/anna?history=\(filter)"))
        #expect(part.contains("earlier charge"), "\(filter)")
        #expect(!part.contains("Apple reported transaction"), "\(filter)")
      }
      let line = section("History", of: try await browser.get("/admin/original-transactions/1"))
      #expect(line.contains("2 earlier charges, back to 30 Jan 2026"))
      #expect(rows(line).count == 2)

      // Bought again by another account, in a payload that doesn't tell renewals.
      var again = Payment(id: "5", line: "1", from: 125, to: 155)
      again.reason = nil
      try await api.claim(again, Future(line: "1", isOn: true, end: 155), by: "ben", on: 125.1)
      browser = try await AdminBrowser.loggedIn(api)
      let now = rows(
        section("History", of: try await browser.get("/admin/original-transactions/1")))
      #expect(now.count == 3 && now.first?.hasPrefix("Charge of monthly on") == true, "\(now)")
    }
  }

  @Test func `what others did on the same phone is passed over, however much it is`() async throws {
    try await TestAPI.run { api in
      _ = try await share(api)
      for _ in 1...4 {
        api.apple.simulation.advance(by: .days(30))
        _ = try await api.submit("anna", from: "phone")
      }
      _ = try await api.submit("ben", from: "phone")
      let account = try #require(try await api.ledger.accounts.account("ben"))
      let ties = try await api.ledger.accounts.ties(of: account.key)
      let all = try await api.ledger.accounts.history(of: ties, before: nil, limit: 100)
      #expect(all.lookedBackTo == nil)
      #expect(all.items.map(\.item.content.kind) == [.claim, .claim])
      // Reading two entries at a time finds the same entries.
      var (place, found, rounds): (HistoryPosition?, [LedgerItem], Int) = (nil, [], 0)
      repeat {
        let part = try await api.ledger.accounts.history(
          of: ties, before: place, limit: 100, batches: 1, of: 2)
        found += part.items.map(\.item)
        place = part.lookedBackTo
        rounds += 1
      } while place != nil
      #expect(found == all.items.map(\.item))
      #expect(rounds > 5)
      let first = try await api.ledger.accounts.history(of: ties, before: nil, limit: 1, of: 2)
      #expect(first.items.map(\.item) == Array(found.prefix(1)))
      #expect(first.lookedBackTo == nil)
      // A page may end within the items of one entry.
      let anna = try await api.ledger.accounts.ties(
        of: try #require(try await api.ledger.accounts.account("anna")).key)
      let whole = try await api.ledger.accounts.history(of: anna, before: nil, limit: 100)
        .items.map(\.item)
      #expect(Set(whole.map(\.recordedAt)).count < whole.count)
      for (index, item) in whole.enumerated() {
        let rest = try await api.ledger.accounts.history(
          of: anna, before: HistoryPosition(item), limit: 100)
        #expect(rest.items.map(\.item) == Array(whole[(index + 1)...]))
      }
    }
  }

  // MARK: Administrators and reasons

  @Test func `a grant shows who gave and revoked it, and why`() async throws {
    try await TestAPI.run { api in
      _ = try await share(api)
      let grant: JSONValue = [
        "account_id": "ben", "entitlement": "gold", "expires_at": "2026-03-31T00:00:00Z",
        "reason": "Sorry for the <wait>.",
      ]
      let given = try await api.call(.post, "/v1/grants", grant, as: .admin)
      let id = try #require(given["grant_id"]?.string)
      api.apple.simulation.advance(by: .days(1))
      let back = "/v1/grants/\(id)?reason=It%20was%20Anna%27s"
      #expect(try await api.call(.delete, back, as: .admin).status == 200)
      var browser = try await AdminBrowser.loggedIn(api)
      func check(_ account: String) async throws {
        let page = try await browser.get("/admin/accounts/\(account)")
        let grants = section("Grants", of: page)
        #expect(
          grants.contains("by <strong>ops</strong></span> <q>Sorry for the &lt;wait&gt;.</q>"))
        #expect(grants.contains(/Revoked .*2026-01-02.* by <strong>ops<\/strong>/))
        #expect(grants.contains("<q>It was Anna&#39;s</q>"))
      }
      try await check("ben")
      let history = section("History", of: try await browser.get("/admin/accounts/ben"))
      #expect(
        history.replacing(/<[^>]*>/, with: "").contains(
          "Granted gold to ben through 30 Mar 2026 (UTC)."))
      #expect(history.contains("Access to “gold” began, through 30 Mar 2026 (UTC)."))
      // The action and its event are one.
      #expect(
        history.replacing(/<[^>]*>/, with: "").contains(
          "Revoked gold of ben. Access to “gold” ended."))
      #expect(history.replacing(/<[^>]*>/, with: "").contains("Revoked gold of ben."))
      for path in ["/admin/reports/audit", "/admin/reports/audit/transactions?cell=number"] {
        let page = try await browser.get(path)
        let list = page.text.replacing(/<[^>]*>/, with: "")
        for text in [
          "ops granted gold to ben through 30 Mar 2026 (UTC)", "ops revoked gold of ben",
          "Sorry for the &lt;wait&gt;.",
        ] { #expect(list.contains(text), "\(list)") }
        #expect(!list.contains(id))
        #expect(page.contains(#"<a class="code" href="/admin/accounts/ben">ben</a>"#))
      }
      let audit = try await browser.get("/admin/reports/audit")
      #expect(audit.contains("<h2>2 actions") && audit.contains("<summary>Counts</summary>"))
      #expect(!audit.contains("<figure"))
      #expect(history.contains("<q>Sorry for the &lt;wait&gt;.</q>"))
      #expect(history.contains("<q>It was Anna&#39;s</q>"))

      // A merge moves grants with their administrators' names.
      let merge: JSONValue = ["into": "anna", "reason": "She <logged> in."]
      #expect(
        try await api.call(.post, "/v1/accounts/ben/merge", merge, as: .admin).status == 200)
      try await check("anna")
      // What can't be done says so above the form, which keeps what was entered.
      let refused = try await browser.post(
        "/admin/accounts/ben/grant",
        [
          ("entitlement", "gold"), ("unknown", "true"), ("duration", "P1M"),
          ("reason", "My words."), ("confirmed", "yes"),
        ])
      #expect(refused.status == 409 && refused.contains("Nothing was changed."))
      #expect(refused.contains(">My words.</textarea>"))
      let merged = try await browser.get("/admin/accounts/ben")
      #expect(
        merged.contains(
          #"merged into “<a class="code" href="/admin/accounts/anna">anna</a>”, which gets its"#))
      #expect(section("History", of: merged).contains("<q>She &lt;logged&gt; in.</q>"))
      #expect(
        section("History", of: try await browser.get("/admin/accounts/anna"))
          .replacing(/<[^>]*>/, with: "").contains("Merged ben into anna."))
    }
  }

  @Test func `a transfer and a merge show administrator and reason on every page of the charge`()
    async throws
  {
    try await TestAPI.run { api in
      let bought = try await share(api)
      let owner: JSONValue = ["account_id": "ben", "reason": "He <paid>."]
      #expect(
        try await api.call(.post, "/v1/transactions/\(bought)/owner", owner, as: .admin).status
          == 200)
      var browser = try await AdminBrowser.loggedIn(api)
      let why = "<q>He &lt;paid&gt;.</q>"
      let ben = try await browser.get("/admin/accounts/ben")
      #expect(section("Charges", of: ben).contains("by <strong>ops</strong></span> \(why)"))
      let anna = try await browser.get("/admin/accounts/anna")
      #expect(section(Self.moved, of: anna).contains("by <strong>ops</strong></span> \(why)"))
      #expect(section(Self.claimed, of: anna).isEmpty)
      for page in [ben, anna] {
        let history = section("History", of: page)
        #expect(
          history.replacing(/<[^>]*>/, with: "").contains(
            "monthly of 1 Jan 2026: An administrator assigned it from “anna” to “ben”."))
        #expect(history.contains(why))
      }
      let line = "/admin/original-transactions/\(bought)"
      let page = try await browser.get(line)
      #expect(section("History", of: page).matches(of: /<q>He &lt;paid&gt;\.<\/q>/).count == 2)
      #expect(page.text.contains(/Assigned by<\/dt><dd>ops <span class="note">He &lt;paid&gt;\./))

      // A later action is shown with its own reason.
      api.apple.simulation.advance(by: .days(1))
      browser = try await AdminBrowser.loggedIn(api)
      _ = try await api.call(.put, "/v1/accounts/carl")
      let merge: JSONValue = ["into": "carl", "reason": "One person."]
      #expect(
        try await api.call(.post, "/v1/accounts/ben/merge", merge, as: .admin).status == 200)
      let carl = section("Charges", of: try await browser.get("/admin/accounts/carl"))
      #expect(carl.contains("by <strong>ops</strong></span> <q>One person.</q>"))
      #expect(carl.contains(">Merged</span>"))
      let facts = section("History", of: try await browser.get(line))
      #expect(facts.matches(of: /<q>He &lt;paid&gt;\.<\/q>/).count == 2)
      #expect(facts.matches(of: /<q>One person\.<\/q>/).count == 2)
    }
  }
}
