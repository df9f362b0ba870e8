import AppStore
import Foundation
import JSONText
import LedgerStorage
import Reports
import Subscriptions
import Testing

@testable import AdminSite
@testable import HTTPAPI

/// The administrator's pages in a real Chromium.
///
/// Requires the package `chromium-driver`. Without it the suite fails on Debian and is skipped
/// elsewhere.
@Suite(
  .serialized, .oneBrowser,
  .enabled(
    if: OneBrowser.isToBeHad,
    "chromedriver is not installed (Debian's package chromium-driver)."))
struct AdminInBrowserTests {
  // MARK: Support requests

  @Test
  func
    `an administrator logs in, finds a customer by any id, and reads why a charge has its owner`()
    async throws
  {
    try await BrowserStory.run { story in
      let browser = story.browser
      try await browser.open("/admin/search")
      try await browser.type("admin-secret-for-tryings", into: "#key")
      try await browser.click("button.primary")
      try await browser.see("Invalid key.")
      try await browser.type("admin-secret-for-trying", into: "#key")
      try await browser.click("button.primary")
      try await browser.arrive(at: "/admin/search")

      let line = story.line
      for (id, path) in [
        ("unknown", "/admin/search?q=unknown"), (story.order, "/admin/accounts/ben"),
        (story.lineItem, line), (story.month.rawValue, line),
        (story.quarter.rawValue, "\(line)#charge-\(story.quarter)-quarterly"),
        ("ben", "/admin/accounts/ben"),
      ] {
        try await browser.open("/admin/search")
        try await story.search(for: id, leadingTo: path)
        if id == "unknown" { try await browser.see("No results for") }
      }

      try await browser.see("Active entitlement: premium.")
      try await browser.click(.link(story.quarter.rawValue))
      try await browser.see("Renewals belong to ben.")
      // The timeline shows the refund and the owners, and has a text for screen readers.
      #expect(try await browser.texts(".timeline svg[role=group] desc").first?.isEmpty == false)
      for part in ["mark-refund", "mark-move", "mark-off"] {
        #expect(try await browser.texts(".timeline .plot .mark.\(part)").count == 1, "\(part)")
      }
      #expect(try await browser.texts(".timeline .owners .code") == ["anna", "ben"])
      // The decision and its evidence.
      let charge = "#charge-\(story.quarter)-quarterly"
      try await browser.click(.selector("\(charge) summary"))
      try await browser.see("“ben” submitted it first; ")
      try await browser.see("“ben” submitted transaction \(story.quarter).")
      try await browser.click(.selector("\(charge) a[href='/admin/accounts/ben']"))
      try await browser.arrive(at: "/admin/accounts/ben")
    }
  }

  @Test func `a charge is transferred, and the books say by whom and why`() async throws {
    try await BrowserStory.run { story in
      let browser = story.browser
      let reason = "She bought it for <b>her</b>."
      try await story.logIn(for: story.line)
      let charge = "#charge-\(story.quarter)-quarterly"
      try await browser.click(.selector("\(charge) .charge-do a"))
      try await browser.type("Dora", into: "#account-id")
      try await browser.wait(
        for: "suggestions",
        until: "return document.querySelector('#accounts option')?.value === 'dora'"
      )
      try await browser.type(reason, into: "#reason")
      try await browser.click("button.primary")
      try await browser.see("No account with the ID “Dora”.")
      try await browser.type("dora", into: "#account-id")
      try await browser.click("button.primary")
      try await browser.see("(owner: “ben”) will be assigned to “dora”, who has")
      try await browser.see("“ben” loses “premium”")
      try await browser.click("main form button[type=submit]")
      try await browser.see("was transferred to “dora”.")
      #expect(try await browser.texts("\(charge) a[href='/admin/accounts/dora']") == ["dora"])
      #expect(
        try await story.api.get("/v1/transactions/\(story.quarter)")["owner_account_id"] == "dora")

      try await browser.click(".brand")
      try await browser.arrive(at: "/admin")
      let action = "ops transferred quarterly \(story.quarter) from ben to dora"
      try await browser.see(action)
      try await browser.see(reason)
      try await browser.open("/admin/reports/audit")
      try await browser.see(action)
      let row = try await browser.texts("main tbody tr > *")
      #expect(row.contains(action) && row.contains(reason), "\(row)")
    }
  }

  // MARK: Queues

  @Test func `unclaimed charges, failed jobs and rejected receipts each have their button`()
    async throws
  {
    try await BrowserStory.run { story in
      let browser = story.browser
      try await story.orphan()
      try await story.parkJob()
      let rejected = try await story.rejectReceipt()
      try await story.logIn(for: "/admin")
      for text in ["1 unclaimed charge", "1 failed job or delivery"] {
        try await browser.see(text)
      }

      try await browser.open("/admin/unclaimed")
      try await browser.click(.link("Assign…"))
      try await browser.type("carl", into: "#account-id")
      try await browser.type("It is his.", into: "#reason")
      try await browser.click("button.primary")
      try await browser.see("(unclaimed) will be assigned to “carl”, who has")
      try await browser.click("main form button[type=submit]")
      try await browser.see("was assigned to “carl”.")
      try await browser.click(.link("Unclaimed charges"))
      try await browser.see("No unclaimed charges.")

      try await browser.click("nav a[href='/admin/parked']")
      try await browser.see("Apple answered with HTTP 503.")
      // The reason is required.
      try await browser.click("#jobs input[type=checkbox]")
      try await browser.click("#jobs button[value=retry]")
      #expect(try await browser.run("return document.querySelector(':invalid') !== null") == true)
      try await browser.type("Apple is back.", into: "#jobs-reason")
      try await browser.click("#jobs button[value=retry]")
      try await browser.see("1 job will be retried.")
      try await browser.see("No failed jobs.")

      try await browser.click("nav a[href='/admin/rejected']")
      try await browser.see(rejected)
      try await browser.click(.selector("#receipts input[value='\(rejected)']"))
      try await browser.type("The secret was wrong.", into: "#receipts-reason")
      try await browser.click("#receipts button[value=verify]")
      try await browser.see("1 submission will be verified again")
      try await browser.see("No rejected receipts.")

      let actions = try await story.api.ledger.administration.administratorActions(limit: 9)
      #expect(
        Set(actions.map { "\($0.action): \($0.reason ?? "")" }) == [
          "release: By mistake.", "transfer: It is his.", "retry_jobs: Apple is back.",
          "verify_submissions: The secret was wrong.",
        ])
    }
  }

  // MARK: Reports

  @Test func `a report's chart, table, numbers and file say the same`() async throws {
    try await BrowserStory.run { story in
      let browser = story.browser
      try await story.logIn(for: "/admin/reports")
      try await browser.click(.link("Active subscriptions"))
      try await browser.see("Active subscriptions")
      try await browser.click("#choice-bucket option[value=week]")
      try await browser.click(".choices button")
      try await browser.wait(
        for: "the weeks", until: "return location.search.includes('bucket=week')")
      try await browser.settle()

      // The API's answer to the same question; the form names the days.
      let query = try await browser.run("return location.search").string ?? ""
      let asked = EncodedFields(String(query.dropFirst()), .html)
      let range = ["from", "to"].map { "\($0)=\(asked[$0]?.rawValue ?? "")" }
      let path = "/v1/reports/active?bucket=week&\(range.joined(separator: "&"))"
      let answer = try await story.api.get(path, as: .admin)
      let rows = try #require(answer["rows"]?.array)
      #expect(rows.count > 10)
      let active = rows.map { "\($0["active"]?.integer ?? -1)" }
      #expect(Set(active).count > 1)
      let table = "main section table tbody tr"
      let periods = try await browser.texts("\(table):not(.total) > :first-child")
      #expect(periods.count == rows.count && periods.last?.hasSuffix(" so far") == true)
      #expect(try await browser.texts("\(table):not(.total) > :nth-child(2)") == active)
      // The last week that has ended is the latest in the totals.
      #expect(
        try await browser.texts("\(table).total > :nth-child(2)")
          == ["\(active[active.count - 2]) at the end"])
      #expect(
        try await browser.texts("#chart-1-1 .values tbody tr > :last-child") == active)
      #expect(try await browser.texts("#chart-1-1 .band").count == rows.count)
      // The chart shows the value under the pointer, and by the keyboard.
      let first = periods[0].replacing("part of a week", with: "(part of a week)")
      try await browser.run(
        "document.querySelector('#chart-1-1 .band').dispatchEvent(new Event('pointerenter'))")
      #expect(
        try await browser.texts("#chart-1-1 .readout") == ["\(first)\nActive \(active[0])"])
      try await browser.run("document.querySelector('#chart-1-1 .plot-row').focus()")
      try await browser.press(.end)
      #expect(
        try await browser.texts("#chart-1-1 .readout")
          == ["\(periods.last ?? "")\nActive \(active.last ?? "")"])
      // Beside the band, which is at the right.
      #expect(
        try await browser.run(
          """
          const band = document.querySelector('#chart-1-1 .band.at').getBoundingClientRect();
          const text = document.querySelector('#chart-1-1 .readout').getBoundingClientRect();
          return text.right < band.left && band.left - text.right < 20;
          """) == true)

      try await browser.click(.link("CSV"))
      var file: [UInt8]?
      try await browser.wait(for: "the file") {
        // The browser reserves the name with an empty file.
        let days = ["from", "to"].compactMap { asked[$0]?.rawValue }.joined(separator: "-to-")
        file = browser.driver.download("active-\(days).csv")
        return file?.isEmpty == false
      }
      let csv = try await story.api.get("\(path)&format=csv", as: .admin)
      #expect(String(decoding: file ?? [], as: UTF8.self) == csv.text)

      // A number links to its transactions.
      let most = try #require(active.max())
      let place = try #require(active.firstIndex(of: most)) + 1
      try await browser.click(.selector("\(table):nth-child(\(place)) > :nth-child(2) a"))
      try await browser.see("Items")
      #expect(try await browser.texts(".number-of") == [most])
      #expect(try await browser.texts("\(table) a[href^='/admin/original']").count == Int(most))
    }
  }

  // MARK: Every page

  @Test func `every page is read in light and dark, on a telephone, and without a complaint`()
    async throws
  {
    let axe = try await Axe.script.value
    try await BrowserStory.run { story in
      let browser = story.browser
      try await story.orphan()
      try await story.parkJob()
      try await story.rejectReceipt()
      try await story.logIn(for: "/admin")
      let transaction = "/admin/transactions/\(story.month)/transfer"
      let drillDown = "/admin/reports/active/transactions?cell=active&from=2026-01-01&to=2026-01-31"
      let pages =
        [
          "/admin", "/admin/search", "/admin/search?q=unknown",
          "/admin/accounts", "/admin/accounts/ben", "/admin/what-if?policy=shared",
          "/admin/accounts/dora", "/admin/accounts/ben/grant", "/admin/accounts/ben/erase",
          "/admin/accounts/ben/export",
          story.line, "\(transaction)?environment=production&product_id=monthly",
          "/admin/unclaimed", "/admin/parked", "/admin/rejected", "/admin/reports", drillDown,
          "/admin/products", "/admin/product?product_id=monthly", "/admin/product-form",
          "/admin/webhooks", "/admin/health",
        ] + Report.all.map { AdminURL.report($0.name) }
      try await browser.loading(axe) {
        for page in ["/admin/login"] + pages {
          try await browser.open(page)
          try await expectGood(browser)
        }
      }
    }
  }

  private func expectGood(_ browser: Browser) async throws {
    let address = try await browser.address
    #expect(try await browser.texts("h1").count == 1, "\(address)")
    #expect(try await browser.flaws() == [], "\(address)")
    let barriers = try await browser.barriers()
    #expect(barriers == [], "\(address): \(barriers)")
    try await browser.setDark(true)
    #expect(try await browser.barriers(isAboutColours: true) == [], "\(address), dark")
    try await browser.setPhone(true)
    #expect(try await browser.flaws() == [], "\(address), dark, on a telephone")
    try await browser.setDark(false)
    try await browser.setPhone(false)
    #expect(try await browser.complaints() == [], "\(address)")
  }

  @Test func `what is wrong with a page is found`() async throws {
    try await BrowserStory.run { story in
      let browser = story.browser
      let axe = try await Axe.script.value
      try await browser.loading(axe) { try await browser.open("/admin/login") }
      #expect(try await browser.flaws() == [])
      try await browser.run(
        """
        document.querySelector("label").style.color = "#999";
        document.querySelector("h1").style.width = "5000px";
        document.body.setAttribute("style", "color: red");
        """)
      let barriers = try await browser.barriers(isAboutColours: true)
      #expect(barriers.count == (axe == nil ? 0 : 1), "\(barriers)")
      #expect(barriers.allSatisfy { $0.hasPrefix("color-contrast: ") })
      let flaws = try await browser.flaws()
      #expect(flaws.count == 2)
      #expect(flaws.contains { $0.hasPrefix("scrolls sideways: ") })
      #expect(flaws.contains { $0.hasPrefix("contrast 2.") && $0.hasSuffix(": Key") }, "\(flaws)")
      let complaints = try await browser.complaints()
      #expect(complaints.count == 1 && complaints[0].contains("Content Security Policy"))
    }
  }

  @Test func `the pages are used by the keyboard alone`() async throws {
    try await BrowserStory.run { story in
      let browser = story.browser
      try await browser.open("/admin/accounts/ben")
      // The login field has the focus.
      try await browser.run("document.activeElement.value = 'admin-secret-for-trying'")
      try await browser.press(.enter)
      try await browser.arrive(at: "/admin/accounts/ben")

      let focus = """
        const element = document.activeElement, style = getComputedStyle(element);
        const isSeen = element.matches(":focus-visible") && style.outlineStyle === "solid" &&
          parseFloat(style.outlineWidth) >= 2;
        return (element.id || element.className || element.textContent) +
          (isSeen ? "" : ", which is not seen");
        """
      var reached: [String] = []
      while reached.last != "q", reached.count < 30 {
        try await browser.press(.tab)
        reached.append(try await browser.run(focus).string ?? "")
      }
      #expect(reached.first == "skip")
      #expect(reached.last == "q" && reached.contains("Reports"), "\(reached)")
      #expect(!reached.contains { $0.hasSuffix("not seen") }, "\(reached)")

      // The first link skips the navigation.
      try await browser.open("/admin/accounts/ben")
      try await browser.press(.tab)
      try await browser.press(.enter)
      try await browser.arrive(at: "/admin/accounts/ben#main")
      try await browser.press(.tab)
      #expect(try await browser.run(focus) == "button")
      try await browser.press(.enter)
      try await browser.arrive(at: "/admin/accounts/ben/grant")
    }
  }

  @Test func `without JavaScript everything is done as well`() async throws {
    try await BrowserStory.run { story in
      let browser = story.browser
      try await browser.setScripts(false)
      try await story.logIn()
      try await story.search(for: "anna", leadingTo: "/admin/accounts/anna")
      try await browser.click(.link("Grant…"))
      try await browser.type("Sorry.", into: "#reason")
      try await browser.click("button.primary")
      try await browser.see("“premium” was granted through")
      try await browser.open("/admin/reports/active")
      #expect(try await browser.texts("#chart-1-1 .plot .line").count == 1)
      #expect(try await browser.texts("#chart-1-1 .readout").isEmpty)
      try await browser.click("#chart-1-1 summary")
      try await browser.see("Time")
      // On a telephone the navigation is behind a button.
      try await browser.setPhone(true)
      try await browser.click(".menu summary")
      try await browser.click(".menu a[href='/admin/health']")
      try await browser.arrive(at: "/admin/health")
      try await browser.setPhone(false)
      try await browser.setScripts(true)
    }
  }

  // MARK: Hostile account ids

  @Test func `ids that are HTML or SQL are read as they are, and a logout ends the session`()
    async throws
  {
    try await BrowserStory.run { story in
      let browser = story.browser
      try await story.logIn()
      for name in [
        "<img src=x onerror=alert(1)>", "'; DROP TABLE tenure.account; --", "</title><script>",
        "{{page.csrfToken}}", "a/b?c#d&e=%20+",
      ] {
        _ = try await story.api.submit(name, from: "carl")
        try await browser.type(name, into: "#q")
        try await browser.click(".search button")
        try await browser.wait(
          for: name, until: "return document.querySelector('h1').textContent === arguments[0]",
          [.string(name)])
        #expect(try await browser.run("return document.title") == .string("\(name) · Tenure"))
        #expect(try await browser.texts("main img, main script, main iframe").isEmpty)
        #expect(try await browser.texts("dd.code").contains(name))
      }
      #expect(try await browser.complaints() == [])
      try await browser.click(".session button")
      try await browser.arrive(at: "/admin/login")
      try await browser.open("/admin/accounts/ben")
      #expect(try await browser.address == "/admin/login?return_to=%2Fadmin%2Faccounts%2Fben")
    }
  }
}
