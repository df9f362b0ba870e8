import AppStore
import AppStoreSimulator
import Foundation
import HTTPTypes
import Intake
import JSONText
import LedgerStorage
import Postgres
import Subscriptions
import Testing

@testable import AdminSite
@testable import HTTPAPI

/// The actions on the pages, each with its record.
struct AdminActionTests {
  private func actions(_ api: TestAPI) async throws -> [AdministratorAction] {
    try await api.ledger.administration.administratorActions(limit: 100)
  }

  /// Buys Anna's month and creates Ben's account.
  private func buy(_ api: TestAPI) async throws -> TransactionID {
    try await api.describe("monthly", "premium")
    try api.addCustomer("phone")
    let bought = try api.apple.simulation.buy("monthly", on: "phone")
    _ = try await api.submit("anna", from: "phone")
    _ = try await api.call(.put, "/v1/accounts/ben")
    return bought.transactionID
  }

  // MARK: Failed jobs and deliveries

  private func park(_ subject: String, _ api: TestAPI) async throws -> Int64 {
    try await api.database.query(
      """
      INSERT INTO tenure.job (kind, subject, queue, run_at, attempts, discarded_at, last_error,
        created_at)
      VALUES ('reconcile', \(subject), 'maintenance', now(), 7, '2025-12-30T08:00:00Z',
        '<b>down</b>', now())
      RETURNING job_id
      """
    ).decodeOnly(Int64.self)
  }

  @Test func `a job that was given up starts again, once, and it is recorded who did so`()
    async throws
  {
    try await TestAPI.run { api in
      let (first, second) = (try await park("<one>", api), try await park("two", api))
      var browser = try await AdminBrowser.loggedIn(api)
      let page = try await browser.get("/admin/parked")
      #expect(page.contains("&lt;one&gt;"))
      #expect(page.contains("&lt;b&gt;down&lt;/b&gt;"))
      #expect(page.contains("7 attempts"))
      #expect(page.contains(#"Failed jobs <span class="count">2</span>"#))

      for missing in [
        [("item", "\(first)"), ("do", "retry")],
        [("item", "\(first)"), ("reason", "x"), ("do", "discard")],
        [("item", "x"), ("reason", "x"), ("do", "retry")],
      ] {
        let refused = try await browser.post("/admin/parked/jobs", missing)
        #expect(refused.status == 400, "\(missing)")
        #expect(refused.contains("<nav"))
      }
      // Without a row, each list is shown again.
      for (path, page, action) in [
        ("/admin/parked/jobs", "/admin/parked", "retry"),
        ("/admin/parked/webhooks", "/admin/parked", "redeliver"),
        ("/admin/webhooks", "/admin/webhooks", "redeliver"),
        ("/admin/rejected", "/admin/rejected", "verify"),
      ] {
        let again = try await browser.post(path, [("do", action), ("reason", "x")])
        #expect(again.location == page, "\(path)")
        #expect(
          try await browser.get(page).contains("Select at least one row first."),
          "\(path)")
      }
      let fields = [("item", "\(first)"), ("do", "retry"), ("reason", "Apple is <back>.")]
      let done = try await browser.post("/admin/parked/jobs", fields)
      #expect(done.status == 303)
      #expect(done.location == "/admin/parked")
      let after = try await browser.get("/admin/parked")
      #expect(after.contains("1 job will be retried."))
      #expect(!after.contains("&lt;one&gt;"))
      #expect(after.contains(">two<"))
      // The message is shown once.
      #expect(try await !browser.get("/admin/parked").contains("will be retried"))

      _ = try await browser.post("/admin/parked/jobs", fields)
      #expect(try await browser.get("/admin/parked").contains("0 jobs will be retried."))
      let actions = try await actions(api)
      #expect(actions.map(\.action) == ["retry_jobs"])
      #expect(actions.first?.administrator == "ops")
      #expect(actions.first?.reason == "Apple is <back>.")
      #expect(actions.first?.subject == "\(first)")
      #expect(try await api.ledger.jobs.discardedJobs(limit: 9).map(\.id) == [second])
    }
  }

  @Test func `parked jobs are paged`() async throws {
    try await TestAPI.run { api in
      for number in 0..<5 { _ = try await park("job \(number)", api) }
      var browser = try await AdminBrowser.loggedIn(api)
      var (path, seen): (String?, [String]) = ("/admin/parked?jobs_limit=2", [])
      while let next = path {
        let page = try await browser.get(next)
        seen += page.text.matches(of: /job \d/).map { String($0.0) }
        path = page.text.firstMatch(of: /href=\x22([^\x22]*)\x22 rel=\x22next/)
          .map { String($0.1).replacing("&amp;", with: "&") }
      }
      #expect(seen == (0..<5).map { "job \($0)" })
    }
  }

  @Test func `a delivery that was given up is made again`() async throws {
    try await TestAPI.run { api in
      _ = try await api.ledger.webhooks.pushEvents(at: Timestamp(milliseconds: 0))
      _ = try await buy(api)
      _ = try await api.ledger.webhooks.pushEvents(at: api.apple.simulation.clock.now)
      let events = try await api.database.query(
        """
        UPDATE tenure.webhook_delivery SET parked_at = now(), last_error = 'HTTP 500', attempts = 9
        RETURNING event_id
        """
      ).decode(Int64.self).map { $0 }
      #expect(events.count > 1)
      var browser = try await AdminBrowser.loggedIn(api)
      let page = try await browser.get("/admin/parked")
      #expect(page.contains("Event \(events[0])"))
      #expect(page.contains("HTTP 500"))
      let rows = page.text.components(separatedBy: #"id="webhooks""#).last ?? ""
      #expect(rows.components(separatedBy: "<li>").count == events.count + 1)
      for text in ["9 attempts", ">Account anna</a>", ">Redeliver</button>"] {
        #expect(rows.contains(text), "\(text)")
      }
      let done = try await browser.post(
        "/admin/parked/webhooks",
        [("item", "\(events[0])"), ("do", "redeliver"), ("reason", "The receiver is fixed.")])
      #expect(done.status == 303)
      #expect(try await browser.get("/admin/parked").contains("1 delivery will be retried."))
      #expect(try await api.ledger.webhooks.webhookStatus().parked == events.count - 1)
      #expect(try await actions(api).map(\.subject) == ["\(events[0])"])
    }
  }

  @Test func `a rejected receipt is verified again`() async throws {
    try await TestAPI.run { api in
      api.apple.answer("e3JlamVjdGVk", with: Array(#"{"status":21003}"#.utf8))
      let id = try #require(
        try await api.submit("anna", receipt: "e3JlamVjdGVk")["submission_id"]?.string)
      var browser = try await AdminBrowser.loggedIn(api)
      let page = try await browser.get("/admin/rejected")
      #expect(page.contains(id))
      #expect(page.contains("Apple 21003"))
      #expect(page.contains(#"href="/admin/accounts/anna""#))
      // The cause is counted below the list.
      for text in ["Rejections in the last 30 days by cause", "Apple status 21003", "1 attempt"] {
        #expect(page.contains(text), "\(text)")
      }
      #expect(!page.contains("Receipt rejected"))
      #expect(page.contains(#"Rejected receipts <span class="count">1</span>"#))
      #expect(page.contains("receipt_rejected"))
      for count in [1, 0] {
        _ = try await browser.post(
          "/admin/rejected", [("item", id), ("do", "verify"), ("reason", "The secret was wrong.")])
        let text = "\(count) submission\(count == 1 ? "" : "s") will be verified again"
        #expect(try await browser.get("/admin/rejected").contains(text))
      }
      let uuid = try #require(UUID(uuidString: id))
      let submission = try #require(try await api.ledger.submissions.submission(uuid))
      #expect(submission.status == .pending)
      #expect(
        try await !browser.get("/admin/rejected").contains("Rejected receipts <span class=\"count"))
      #expect(submission.isOpen)
      #expect(try await actions(api).map(\.action) == ["verify_submissions"])
      // Apple is not asked about what is not a receipt.
      _ = try await api.submit("ben", receipt: "bm90IGEgcmVjZWlwdA==")
      let refused = try await browser.get("/admin/rejected")
      #expect(refused.contains("The receipt is neither PKCS#7") && !refused.contains("`"))
      // Apple rejects it again.
      _ = try await api.intake.resume(submission.id)
      #expect(try await browser.get("/admin/rejected").contains(id))
    }
  }

  @Test func `unclaimed charges are listed, those that had ended separately`() async throws {
    try await TestAPI.run { api in
      let id = try await buy(api)
      for account in [JSONValue.string("ben"), .null] {
        _ = try await api.call(
          .post, "/v1/transactions/\(id)/owner", ["account_id": account, "reason": "By mistake."],
          as: .admin)
      }
      var browser = try await AdminBrowser.loggedIn(api)
      let page = try await browser.get("/admin/unclaimed")
      #expect(page.contains(">\(id)</a>"))
      #expect(page.contains("An administrator released it, and no account has submitted it since."))
      #expect(page.contains("Assign…"))
      #expect(page.contains(#"Last owner: <a href="/admin/accounts/ben">ben</a>."#))
      // Each earlier owner has the date of its own loss.
      var losses: [Timestamp] = []
      for name in ["anna", "ben"] {
        let account = try #require(try await api.ledger.accounts.account(name))
        losses += try await api.ledger.accounts.ties(of: account.key).lost.compactMap(\.lostAt)
      }
      #expect(losses.count == 2 && losses[0] < losses[1])
      let badge = #"Unclaimed charges <span class="count">1</span>"#
      #expect(page.contains(badge) && !page.contains("Period ended since"))
      #expect(page.contains(">paid until 1 Feb 2026 <"))
      #expect(page.contains("1 paid charge gives no account access, since "))
      #expect(try await browser.get("/admin").contains("<strong>1 unclaimed charge</strong>"))
      // Later there is no access left to give.
      api.live(until: 40)
      browser = try await AdminBrowser.loggedIn(api)
      let later = try await browser.get("/admin/unclaimed")
      #expect(later.contains(">\(id)</a>") && later.contains("<h2>Period ended since</h2>"))
      #expect(later.contains(#">ended 1 Feb 2026 <span class="note">unclaimed since "#))
      #expect(!later.contains(badge) && !later.contains("no account access"))
      #expect(!later.contains("Needs attention") && !later.contains("No unclaimed charges."))
      #expect(try await !browser.get("/admin").contains("unclaimed charge</strong>"))
      for query in ["after=x", "ended_after=x", "historical_after=x", "limit=0"] {
        #expect(try await browser.get("/admin/unclaimed?\(query)").status == 400)
      }
    }
  }

  // MARK: Actions with a confirmation

  @Test func `a charge is transferred after the consequences were shown`() async throws {
    try await TestAPI.run { api in
      let id = try await buy(api)
      var browser = try await AdminBrowser.loggedIn(api)
      let path = "/admin/transactions/\(id)/transfer?environment=production&product_id=monthly"
      let form = try await browser.get(path)
      #expect(form.contains(#"name="account_id""#))
      #expect(form.contains(">anna</a>"))

      let unknown = try await browser.post(path, [("account_id", "carl"), ("reason", "x")])
      #expect(unknown.status == 400)
      #expect(unknown.contains("No account with the ID “carl”. Search for the customer above"))
      #expect(form.contains(#"list="accounts""#))
      let suggested = try await browser.get("/admin/account-suggestions?q=B")
      #expect(suggested.text == #"[["ben",""]]"#)
      let near = try await browser.post(path, [("account_id", "BEN"), ("reason", "x")])
      #expect(near.contains("No account with the ID “BEN”. Did you mean “ben”?"))
      #expect(unknown.contains(#"value="carl""#))
      #expect(try await browser.post(path, [("account_id", "ben")]).status == 400)
      // The fault has the field's label, and the field is marked.
      let empty = try await browser.post(path, [("account_id", ""), ("reason", "x")])
      #expect(empty.contains(#"id="account-id-fault">New owner is missing.<"#))
      #expect(empty.contains(#"name="account_id" aria-invalid="true""#))

      let fields = [("account_id", "ben"), ("reason", "She bought it for him.")]
      let shown = try await browser.post(path, fields)
      #expect(shown.status == 200)
      #expect(
        shown.contains("(owner: “anna”) will be assigned to “ben”, who has no active entitlement."))
      #expect(shown.contains("“anna” loses “premium”"))
      #expect(shown.contains("“ben” gets “premium” ("))
      #expect(shown.contains(#"name="confirmed" value="yes""#))
      #expect(shown.contains("<h1>Confirm: transfer subscription</h1>"))
      #expect(shown.contains(">Transfer subscription</button>"))
      #expect(shown.contains("<dt>Reason</dt><dd>She bought it for him."))
      #expect(try await actions(api).isEmpty)

      let done = try await browser.post(path, fields + [("confirmed", "yes")])
      #expect(done.status == 303)
      let page = try await browser.get(try #require(done.location))
      #expect(page.contains("was transferred to “ben”."))
      #expect(
        page.text.replacing(/<[^>]*>/, with: "").contains("An administrator assigned it to “ben”."))
      #expect(try await api.get("/v1/transactions/\(id)")["owner_account_id"] == "ben")
      let actions = try await actions(api)
      #expect(actions.map(\.action) == ["transfer"])
      #expect(actions.first?.administrator == "ops")
      #expect(actions.first?.reason == "She bought it for him.")
      // Sending it again does nothing.
      _ = try await browser.post(path, fields + [("confirmed", "yes")])
      #expect(try await self.actions(api).count == 1)

      // There is a way back on every page of the charge.
      let release = path.replacing("/transfer", with: "/release").replacing("&", with: "&amp;")
      for page in ["/admin/original-transactions/\(id)", "/admin/accounts/ben"] {
        let shown = try await browser.get(page)
        #expect(shown.contains(">Assigned by an administrator</span>"), "\(page)")
        #expect(shown.contains(#"<a href="\#(release)">Release…</a>"#), "\(page)")
      }
      let back = try await browser.get(path)
      #expect(
        back.contains(
          "An administrator assigned this charge to “ben” on 1 Jan 2026; before, “anna” owned it. To "
            + "undo that, transfer it back to “anna”, or release it: then the account"))
      #expect(back.contains(#"<a href="\#(release)">Release…</a>"#))
      let released = try await browser.get(release.replacing("&amp;", with: "&"))
      #expect(released.contains("To leave no gap, transfer it back to “anna” instead."))
      #expect(released.contains(">Transfer…</a>"))
    }
  }

  @Test func `an unclaimed renewal names the last owner of its subscription`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      let off = Future(isOn: false, end: 30)
      try await api.claim(Payment(id: "1", from: 0, to: 30), off, by: "gita", on: 10)
      for (id, from) in [("2", 50.0), ("3", 90)] {
        let bought = Payment(id: id, from: from, to: from + 30)
        try await api.deliver(Notice("SUBSCRIBED", "RESUBSCRIBE", bought, on: from + 5))
      }
      var browser = try await AdminBrowser.loggedIn(api)
      let page = try await browser.get("/admin/unclaimed")
      let owners = page.text.matches(of: /Last owner: <a href=\x22[^\x22]*\x22>gita<\/a>\./)
      #expect(owners.count == 2, "\(page.text)")
      // Since 55, although the charge is of 50.
      #expect(page.contains("unclaimed since \(Moment(storyDay(55)).text)"))
      // The reason leads to the charge before.
      #expect(page.text.contains(/transaction <a class="code" href="[^"]*">1<\/a>/))
    }
  }

  @Test func `the owner of a charge is pinned to it`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.claim(
        Payment(id: "1", from: 0, to: 30), Future(isOn: true, end: 30), by: "klara", on: 0.1)
      try await api.claim(Payment(id: "2", from: 50, to: 80, reason: nil), by: "leo", on: 50.1)
      var browser = try await AdminBrowser.loggedIn(api)
      let path = "/admin/transactions/2/transfer?environment=production&product_id=monthly"
      #expect(
        try await browser.get(path).contains("Enter the present owner to keep the charge there"))
      let fields = [("account_id", "leo"), ("reason", "He paid.")]
      let asked = try await browser.post(path, fields)
      #expect(
        asked.contains("Transaction 2 stays with “leo”, whatever Apple reports later."),
        "\(asked.text)")
      #expect(!asked.contains("will be assigned") && !asked.contains("loses"))
      #expect(asked.contains("Overrides the ownership rule without changing the owner."))
      #expect(!asked.contains("to another account"))
      #expect(
        asked.contains("<h1>Confirm: keep owner</h1>") && asked.contains(">Keep owner</button>"))
      let done = try await browser.post(path, fields + [("confirmed", "yes")])
      let page = try await browser.get(try #require(done.location))
      #expect(page.contains("Transaction 2 stays with “leo”."))
      let acts = try await browser.get("/admin/accounts/leo?history=administrators")
      #expect(acts.text.replacing(/<[^>]*>/, with: "").contains("Kept monthly 2 with leo."))
      // Late evidence would move it to klara.
      let recovered = Payment(id: "2", from: 50, to: 80, reason: "RENEWAL")
      try await api.deliver(
        Notice(
          "DID_RENEW", "BILLING_RECOVERY", recovered, Future(isOn: true, end: 80), on: 50.05),
        on: 53)
      #expect(try await api.get("/v1/transactions/2")["owner_account_id"] == "leo")
      browser = try await AdminBrowser.loggedIn(api)
      #expect(try await !browser.get(path).contains("Enter the present owner"))
      let again = try await browser.post(path, fields)
      #expect(again.status == 400)
      #expect(again.contains("An administrator has assigned this charge to “leo” already."))
      #expect(
        again.contains(
          "An administrator pinned this charge to “leo” on 20 Feb 2026. To undo that, release it: then"
        ))
      for page in ["/admin/accounts/leo", "/admin/original-transactions/1000"] {
        let shown = try await browser.get(page)
        #expect(shown.contains(">Pinned</span>") && shown.contains(">Release…</a>"), "\(page)")
      }
      // A release gives it back, and then only an assignment undoes that.
      _ = try await api.call(.delete, "/v1/transactions/2/owner?reason=r", as: .admin)
      #expect(
        try await browser.get(path).contains(
          "An administrator released this charge on 23 Feb 2026. To undo that, assign it to “leo”"))
    }
  }

  @Test func `a transfer says whether renewals go along`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      let on = Future(isOn: true, end: 60)
      try await api.claim(Payment(id: "1", line: "1", from: 0, to: 30), by: "klara", on: 0.1)
      let renewal = Payment(id: "2", line: "1", from: 30, to: 60, reason: "RENEWAL")
      var future = on
      future.line = "1"
      try await api.claim(renewal, future, by: "klara", on: 30.1)
      _ = try await api.call(.put, "/v1/accounts/leo")
      var browser = try await AdminBrowser.loggedIn(api)
      let fields = [("account_id", "leo"), ("reason", "His.")]
      func path(_ id: String) -> String {
        "/admin/transactions/\(id)/transfer?environment=production&product_id=monthly"
      }

      let earlier = try await browser.get(path("1"))
      #expect(earlier.contains("<h1>Transfer charge</h1>"))
      let alone = try await browser.post(path("1"), fields)
      #expect(alone.contains("This is not the latest charge: renewals stay with klara."))
      #expect(!alone.contains("renewals will belong"))
      #expect(try await browser.get(path("2")).contains("<h1>Transfer subscription</h1>"))
      let whole = try await browser.post(path("2"), fields)
      #expect(whole.contains("The renewals will belong to “leo”."))
      #expect(!whole.contains("This is not the latest charge"))

      // The account and the subscription lead to the latest charge.
      for page in ["/admin/accounts/klara", "/admin/original-transactions/1"] {
        let shown = try await browser.get(page)
        let link = shown.text.firstMatch(
          of: /class=\x22button\x22 href=\x22([^\x22]*)\x22>Transfer (?:subscription|monthly)…/
        ).map { String($0.1).replacing("&amp;", with: "&") }
        #expect(link == path("2"), "\(page)")
      }
      // What the page said comes true.
      _ = try await browser.post(path("1"), fields + [("confirmed", "yes")])
      let preview = "/v1/ownership-preview?account_id=leo&original_transaction_id=1"
      #expect(try await api.get(preview)["renewal"]?["owner_account_id"] == "klara")
    }
  }

  @Test func `an entitlement is granted, and taken back`() async throws {
    try await TestAPI.run { api in
      _ = try await buy(api)
      var browser = try await AdminBrowser.loggedIn(api)
      let path = "/admin/accounts/ben/grant"
      // Anna has “premium”, so a grant of it has to be confirmed.
      let annas = "/admin/accounts/anna/grant"
      let form = try await browser.get(path)
      #expect(form.contains(#"type="date""#))
      #expect(form.contains(#"<option value="premium" selected>premium</option>"#))
      // Among several, none is chosen in advance.
      try await api.describe("lifetime", "forever", type: .nonConsumable)
      let several = try await browser.get(path)
      #expect(several.contains(#"<option value="" selected>Choose…</option>"#))
      #expect(try await browser.post(path, [("reason", "Sorry.")]).contains("is missing"))
      func ask(_ name: String, _ more: (String, String)...) async throws -> AdminBrowser.Page {
        try await browser.post(annas, [("entitlement", name), ("reason", "Sorry.")] + more)
      }
      // It is 1 January 2026.
      for (duration, end, text) in [
        ("P7D", "", "through 8 Jan 2026 (UTC)."), ("P1M", "", "through 1 Feb 2026 (UTC)."),
        ("P1Y", "", "through 1 Jan 2027 (UTC)."), ("", "", "until it is revoked."),
        ("day", "2026-03-31", "through 31 Mar 2026 (UTC)."), ("day", "2025-01-01", nil),
        ("day", "soon", nil), ("day", "", nil), ("P2D", "", nil),
      ] as [(String, String, String?)] {
        let answer = try await ask("premium", ("duration", duration), ("expires_at", end))
        #expect(answer.status == (text == nil ? 400 : 200), "\(duration) \(end)")
        if let text { #expect(answer.contains(text)) }
      }
      // A name that no product grants has to be confirmed.
      for name in [("premum", ""), ("", "premum")] {
        let other = ("other_entitlement", name.1)
        let refused = try await ask(name.0, other)
        #expect(refused.status == 400)
        #expect(refused.contains(">No product grants “premum”: check the spelling"))
        #expect(try await ask(name.0, other, ("unknown", "true")).contains("gets “premum”"))
      }
      let fields = [
        ("entitlement", "premium"), ("duration", "day"), ("expires_at", "2026-03-31"),
        ("reason", "Sorry."),
      ]
      let shown = try await browser.post(annas, fields)
      #expect(shown.contains(#"name="confirmed_day" value="2026-03-31""#))
      #expect(shown.contains("The account already has “premium”"))
      let done = try await browser.post(path, fields)
      #expect(done.location == "/admin/accounts/ben")
      let account = try await browser.get("/admin/accounts/ben")
      #expect(account.contains("“premium” was granted through 31 Mar 2026 (UTC)."))
      #expect(account.contains("Active entitlement: premium was granted by an administrator"))
      // The entitlement and the grant have one end.
      #expect(account.contains(#"<span class="until">through 31 Mar 2026 (UTC)</span>"#))
      #expect(account.contains("premium was granted by an administrator, through 31 Mar 2026"))

      let revocation = try #require(
        account.text.firstMatch(of: /\/admin\/grants\/[0-9a-f-]*\/revoke/).map { String($0.0) })
      let asked = try await browser.get(revocation)
      #expect(asked.contains("<dt>Reason for the grant</dt><dd>Sorry."))
      #expect(asked.contains("“ben” loses “premium” at once."))
      // Another grant, or a purchase, keeps it.
      let other = try await api.call(
        .post, "/v1/grants",
        ["account_id": "ben", "entitlement": "premium", "reason": "Again."], as: .admin)
      #expect(
        try await browser.get(revocation).contains("“ben” keeps “premium”: premium was granted"))
      let otherPath = "/v1/grants/\(try #require(other["grant_id"]?.string))?reason=r"
      #expect(try await api.call(.delete, otherPath, as: .admin).status == 200)
      #expect(try await browser.post(revocation, []).status == 400)
      let back = try await browser.post(revocation, [("reason", "Enough.")])
      #expect(back.location == "/admin/accounts/ben")
      let after = try await browser.get("/admin/accounts/ben")
      #expect(after.contains("was revoked."))
      #expect(after.contains("premium was granted by an administrator; revoked on 1 Jan 2026."))
      #expect(!after.contains(revocation))
      let over = try await browser.get(revocation)
      #expect(over.contains("This grant was revoked on 1 Jan 2026."))
      #expect(!over.contains(#"<form class="form""#))
      #expect(
        try await actions(api).map(\.action)
          == ["revoke_grant", "revoke_grant", "grant", "grant"])
      #expect(try await browser.get("/admin/grants/\(UUID())/revoke").status == 404)
      let unreadable = try await browser.get("/admin/grants/x/revoke")
      #expect(unreadable.status == 400 && unreadable.contains("Grant ID must be"))
      #expect(!unreadable.contains("Nothing was changed"))
    }
  }

  @Test func `a grant that is sent twice is granted once`() async throws {
    try await TestAPI.run { api in
      _ = try await buy(api)
      var browser = try await AdminBrowser.loggedIn(api)
      let path = "/admin/accounts/ben/grant"
      var fields = [("entitlement", "premium"), ("reason", "Sorry.")]
      let form = try await browser.get(path)
      let id = try #require(
        form.text.firstMatch(of: /[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}/))
      fields.append(("grant_id", String(id.0)))
      for _ in 0..<2 {
        #expect(try await browser.post(path, fields).location == "/admin/accounts/ben")
      }
      #expect(try await actions(api).map(\.action) == ["grant"])
    }
  }

  @Test func `an account is merged after the consequences were shown`() async throws {
    try await TestAPI.run { api in
      _ = try await buy(api)
      var browser = try await AdminBrowser.loggedIn(api)
      _ = try await api.call(.put, "/v1/accounts/..")
      let path = "/admin/accounts/ben/merge"
      let form = try await browser.get(path)
      #expect(form.contains("Merge account") && form.contains("This account remains."))
      #expect(try await browser.get("/admin/account-forms/merge?id=..").status == 200)
      for into in ["ben", "no such account"] {
        let refused = try await browser.post(path, [("into", into), ("reason", "r")])
        #expect(refused.status == 400, "\(into)")
        #expect(
          into != "ben" || refused.contains(">Account ben can&#39;t be merged into itself.<"))
      }
      let who: JSONValue = ["label": "Carl C", "email": "carl@example.com"]
      _ = try await api.call(.put, "/v1/accounts/carl", who)
      let grant: JSONValue = ["account_id": "carl", "entitlement": "pro", "reason": "r"]
      _ = try await api.call(.post, "/v1/grants", grant, as: .admin)
      let fields = [("into", "carl"), ("reason", "Logged in.")]
      let shown = try await browser.post(path, fields)
      #expect(shown.status == 200)
      #expect(!shown.contains("pays twice") && !shown.contains("open order"))
      #expect(
        shown.contains("move from “ben” to “carl” (Carl C, carl@example.com), who has pro."))
      let done = try await browser.post(path, fields + [("confirmed", "yes")])
      #expect(done.location == "/admin/accounts/carl")
      #expect(
        try await browser.get("/admin/accounts/carl").contains("was merged into this account"))
      #expect(try await actions(api).map(\.action) == ["merge_account", "grant"])
    }
  }

  @Test func `a merge says what becomes of everything, and that the customer pays twice`()
    async throws
  {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.describe("yearly", "premium")
      for (id, product, account) in [("11", "monthly", "guest"), ("21", "yearly", "member")] {
        var future = Future(product: product, isOn: true, end: 30)
        future.line = id
        try await api.claim(
          Payment(id: id, line: id, product: product, from: 0, to: 30), future, by: account, on: 0.1
        )
      }
      let order: JSONValue = ["account_id": "guest", "product_id": "yearly"]
      #expect(try await api.call(.post, "/v1/orders", order).status == 201)
      _ = try await api.database.execute(
        """
        UPDATE tenure.submission SET status = 'pending', environment = NULL, decided_at = NULL
        WHERE account_key = (SELECT account_key FROM tenure.account WHERE account_id = 'guest')
        """)
      var browser = try await AdminBrowser.loggedIn(api)
      let path = "/admin/accounts/guest/merge"
      let form = try await browser.get(path)
      let shown = try await browser.post(path, [("into", "member"), ("reason", "r")])
      for (page, target) in [(form, "the other account"), (shown, "“member”")] {
        for text in [
          "This cannot be undone.", "1 open order waits for a purchase by \(target) from then on.",
          "1 pending submission is decided for \(target).",
          "The app account token of “guest” stays valid: purchases with it belong to \(target).",
          "Moved charges stay with \(target) whatever Apple reports later.",
          "“guest” keeps its submissions and history, has no entitlements, and can&#39;t receive",
          "Erasing \(target) later erases “guest”, too.",
        ] { #expect(page.contains(text), "\(text)") }
      }
      #expect(!form.contains("pays twice"))
      #expect(
        shown.contains(
          "The customer pays twice: monthly of “guest” renews on 31 Jan 2026, and yearly of “member” "
            + "on 31 Jan 2026. The merge cancels neither; only the customer can."))

      // It comes true.
      _ = try await browser.post(
        path, [("into", "member"), ("reason", "r"), ("confirmed", "yes")])
      let orders = try await browser.get("/admin/accounts/member")
      #expect(orders.contains(">Open</span>"))
      for form in ["merge", "grant"] {
        let refused = try await browser.post(
          "/admin/accounts/guest/\(form)",
          [
            ("into", "ben"), ("entitlement", "premium"), ("duration", "P1M"), ("reason", "r"),
            ("confirmed", "yes"),
          ])
        #expect([400, 409].contains(refused.status), "\(form)")
      }
      let refused = try await browser.post(
        "/admin/transactions/21/transfer?environment=production&product_id=yearly",
        [("account_id", "guest"), ("reason", "r")])
      #expect(
        refused.status == 400
          && refused.contains("“guest” was merged into “member”: enter “member”."))
      // One that ends is not paid again.
      api.live(until: 1)
      try await api.claim(
        Payment(id: "31", line: "31", from: 1, to: 31), Future(line: "31", isOn: false, end: 31),
        by: "other", on: 2)
      browser = try await AdminBrowser.loggedIn(api)
      let single = try await browser.post(
        "/admin/accounts/other/merge", [("into", "member"), ("reason", "r")])
      #expect(single.status == 200 && !single.contains("pays twice"))
    }
  }

  @Test func `a person is erased after the id was typed, and the pseudonym is shown`() async throws
  {
    try await TestAPI.run { api in
      let bought = try await buy(api)
      api.apple.simulation.advance(by: .days(1))
      var browser = try await AdminBrowser.loggedIn(api)
      let path = "/admin/accounts/anna/erase"
      // What it does is said before anything is typed.
      _ = try await api.call(
        .post, "/v1/grants",
        [
          "account_id": "anna", "entitlement": "pro", "expires_at": "2026-01-10T00:00:00Z",
          "reason": "Anna Berg was patient.",
        ], as: .admin)
      let form = try await browser.get(path)
      for text in [
        "1 charge, 1 grant, the app account token", "the reasons stored with grants",
        "Kept: the audit log, with the pseudonym instead of the ID.",
      ] { #expect(form.contains(text), "\(text)") }
      let wrong = try await browser.post(
        path, [("typed_account_id", "Anna"), ("reason", "Asked."), ("confirmed", "yes")])
      #expect(wrong.status == 400 && wrong.contains(">This is not the account ID.<"))
      let fields = [("typed_account_id", "anna"), ("reason", "Anna asked.")]
      let asked = try await browser.post(path, fields)
      #expect(asked.contains("This cannot be undone."))
      #expect(asked.contains("“anna” loses “pro” (through 9 Jan 2026, UTC)"))
      #expect(try await browser.get("/admin/accounts/anna").status == 200)
      let done = try await browser.post(path, fields + [("confirmed", "yes")])
      #expect(done.status == 200)
      let pseudonym = try #require(
        done.text.firstMatch(of: /erased-[0-9a-f-]{36}/).map { String($0.0) })
      #expect(try await browser.get("/admin/accounts/anna").status == 404)
      let page = try await browser.get("/admin/accounts/\(pseudonym)")
      #expect(page.status == 200)
      #expect(!page.contains("Erase…"))
      // As the form has said.
      #expect(page.contains("<q>The account was erased.</q>"))
      #expect(try await actions(api).map(\.reason) == ["Anna asked.", "Anna Berg was patient."])
      let original = try await browser.get("/admin/original-transactions/\(bought)")
      #expect(original.contains("Renewals will be unclaimed: the owner was erased."))
      #expect(!original.contains("Renewals belong to"))

      // Nothing can be given to it, but its charges can get another owner.
      #expect(page.contains("It can receive no grant, charge or merge, and renewals are unclaimed"))
      let transfer =
        "/admin/transactions/\(bought)/transfer?environment=production&product_id=monthly"
      let transferForm = try await browser.get(transfer)
      #expect(transferForm.contains("The owner&#39;s data was erased"))
      #expect(!transferForm.contains("Enter the present owner"))
      let pinned = try await browser.post(transfer, [("account_id", pseudonym), ("reason", "r")])
      #expect(pinned.status == 400)
      #expect(pinned.contains("“\(pseudonym)” was erased. Enter another account of the customer."))
      let release = transfer.replacing("/transfer", with: "/release")
      let released = try await browser.post(release, [("reason", "r")])
      #expect(released.status == 200 && !released.contains("is the first to submit it again"))
      let moved = try await browser.post(
        transfer, [("account_id", "ben"), ("reason", "r"), ("confirmed", "yes")])
      #expect(moved.status == 303)
      #expect(try await api.get("/v1/transactions/\(bought)")["owner_account_id"] == "ben")
    }
  }

  @Test func `all that is known of an account is one file`() async throws {
    try await TestAPI.run { api in
      _ = try await buy(api)
      var browser = try await AdminBrowser.loggedIn(api)
      let path = "/admin/accounts/anna/export"
      let form = try await browser.get(path)
      #expect(form.status == 200)
      #expect(form.contains(#"name="reason""#))
      #expect(form.contains(" data-file"))
      for fields in [[], [("reason", "")], [("reason", String(repeating: "x", count: 1001))]] {
        let refused = try await browser.post(path, fields)
        #expect(refused.status == 400)
        #expect(refused.contains(#"id="reason-fault""#))
      }
      let foreign = try await browser.post(path, [("reason", "Anna asked.")], token: .none)
      #expect(foreign.status == 403)
      #expect(foreign.contains("Reload the page") && !foreign.contains("another key"))
      // Neither the form nor rejected requests are recorded as exports.
      #expect(try await actions(api).isEmpty)

      let file = try await browser.post(path, [("reason", "anna asked.")])
      #expect(file.status == 200)
      #expect(file.headers[.contentType] == "application/json")
      #expect(
        file.headers[.contentDisposition] == #"attachment; filename="account-anna-2026-01-01.json""#
      )
      #expect(file.headers[.cacheControl] == "no-store")
      let json = try JSONValue(parsing: Array(file.text.utf8))
      #expect(json["account"]?["account_id"] == "anna")
      let action = try #require(try await actions(api).first)
      #expect(action.action == "export_account")
      #expect(action.administrator == "ops")
      #expect(action.reason == "anna asked.")
      #expect(action.accountID == "anna")
      #expect(try await actions(api).count == 1)
    }
  }

  @Test(arguments: [".", ".."])
  func `what is known of an account that no path can name can be taken along`(name: String)
    async throws
  {
    try await TestAPI.run { api in
      _ = try await api.ledger.accounts.findOrCreateAccount(name, at: api.api.now())
      var browser = try await AdminBrowser.loggedIn(api)
      let path = AdminURL.account(name, form: "export")
      let page = try await browser.get(AdminURL.account(name))
      #expect(page.contains("href=\"\(path)\""))
      #expect(try await browser.get(path).contains(#"action="\#(path)""#))
      let file = try await browser.post(path, [("reason", "asked")])
      #expect(file.status == 200)
      let safe = String(repeating: "-", count: name.count)
      #expect(
        file.headers[.contentDisposition]?.contains(#"filename="account-\#(safe)-20"#) ?? false)
      let json = try JSONValue(parsing: Array(file.text.utf8))
      #expect(json["account"]?["account_id"]?.string == name)
      #expect(try await browser.get("/admin/account-forms/export?id=unknown").status == 404)
    }
  }
}
