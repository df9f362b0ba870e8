import AppStore
import JSONText
import Subscriptions
import Testing

@testable import HTTPAPI

/// The most frequent tasks of support, each from the overview.
extension AdminInBrowserTests {
  private enum Step {
    case click(Browser.Place)
    case type(String, into: Browser.Place)
  }

  private static func search(_ text: String) -> [Step] {
    [.type(text, into: "#q"), .click(".search button")]
  }

  @Test func `support tasks take few clicks and end with the answer`() async throws {
    try await BrowserStory.run { story in
      let browser = story.browser
      let order = try await story.refundRita()
      try await story.logIn(for: "/admin")
      let reason = Step.type("Ticket 12.", into: "#reason")
      // The clicks that a task may take, its steps, and the beginning of the text at its end.
      // swift-format-ignore
      let tasks: [(most: Int, steps: [Step], place: String, text: String)] = [
        // Why a customer lost access.
        (1, Self.search("rita"), ".verdict", "Refunded by Apple on "),
        // A customer by a part of the name, and by the order in Apple's email.
        (1, Self.search("do"), "h1", "dora"),
        (1, Self.search(order), "h1", "monthly · rita · "),
        (
          4, Self.search("carl") + [
            .click(.link("Transfer monthly…")), .type("dora", into: "#account-id"), reason,
            .click("button.primary"), .click("main form button[type=submit]"),
          ], ".flash", "Transaction \(story.renewal) was transferred to “dora”."
        ),
        // A month.
        (
          3, Self.search("anna") + [.click(.link("Grant…")), reason, .click("button.primary")],
          ".flash", "“premium” was granted through "
        ),
        (
          3, Self.search("ben") + [.click(.link("Export…")), reason, .click("button.primary")],
          ".flash", "Export done"
        ),
      ]
      for task in tasks {
        try await browser.open("/admin")
        var clicks = 0
        for step in task.steps {
          switch step {
          case .type(let text, let place): try await browser.type(text, into: place)
          case .click(let place):
            try await browser.click(place)
            clicks += 1
          }
        }
        #expect(clicks <= task.most, "\(task.text)")
        try await browser.wait(
          for: task.text,
          until: """
            const found = document.querySelector(arguments[0]);
            return found !== null && found.textContent.trim().startsWith(arguments[1]);
            """, [.string(task.place), .string(task.text)])
      }
      #expect(
        browser.driver.download(
          "account-ben-\(story.api.api.now().description.prefix(10)).json")?.isEmpty == false)
    }
  }

  @Test func `this month's refunds are two clicks away`() async throws {
    try await BrowserStory.run { story in
      let browser = story.browser
      _ = try await story.refundRita()
      try await story.logIn(for: "/admin")
      try await browser.settle()
      try await browser.run(
        """
        [...document.querySelectorAll(".tile a")]
          .find((link) => link.textContent.startsWith("Refunds")).click();
        """)
      try await browser.wait(
        for: "the report", until: "return location.pathname.startsWith('/admin/reports/')")
      try await browser.settle()
      // The tile leads to the list, or to a report with the number.
      if try await browser.texts(".number-of").isEmpty {
        try await browser.run(
          """
          [...document.querySelectorAll("td.number a[href*='cell=refunds']")]
            .find((link) => link.textContent === "1").click();
          """)
        try await browser.see("Items")
      }
      #expect(try await browser.texts(".number-of") == ["1"])
    }
  }
}
