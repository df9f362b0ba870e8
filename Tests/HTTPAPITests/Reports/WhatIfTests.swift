import AppStoreSimulator
import HTTPTypes
import JSONText
import Subscriptions
import Testing

@testable import AdminSite
@testable import HTTPAPI

struct WhatIfTests {
  /// Anna's account buys a month, which lapses; Ben's account buys another on the same phone.
  private func recordStory(_ api: TestAPI) async throws -> OriginalTransactionID {
    try await api.describe("monthly", "premium")
    try api.addCustomer("phone")
    let bought = try api.apple.simulation.buy("monthly", on: "phone")
    _ = try await api.submit("anna", from: "phone")
    try api.apple.simulation.setAutoRenew(false, bought.originalTransactionID)
    _ = try await api.submit("anna", from: "phone")
    api.apple.simulation.advance(by: .days(40))
    _ = try api.apple.simulation.buy("monthly", on: "phone")
    api.apple.simulation.advance(by: .minutes(1))
    _ = try await api.submit("ben", from: "phone")
    return bought.originalTransactionID
  }

  @Test func `the charges that a policy would give to other accounts`() async throws {
    try await TestAPI.run { api in
      let line = try await recordStory(api)
      let scopes: [JSONValue] = [
        [:], ["account_id": "ben"], ["original_transaction_id": .string(line.rawValue)],
      ]
      for scope in scopes {
        let members = scope.keys.map { JSONValue.Member(key: $0, value: scope[$0] ?? .null) }
        let body = JSONValue.object(
          members + [JSONValue.Member(key: "policy", value: "first-owner-keeps")])
        let answer = try await api.call(.post, "/v1/what-if", body, as: .admin)
        #expect(answer.status == 200, "\(answer)")
        #expect(answer["original_transactions"] == 1)
        #expect(answer["charges"] == 2)
        #expect(answer["elsewhere"]?["charges"] == 1)
        #expect(answer["months"]?.array?.map { $0["month"] } == ["2026-02"])
        #expect(answer["cut_short"] == false)
        #expect(answer["differences_cut_short"] == false)
        let difference = try #require(answer["differences"]?.array?.first)
        #expect(difference["owner_account_id"] == "ben")
        #expect(difference["gains"] == ["anna"])
        #expect(difference["loses"] == "ben")
        #expect(
          difference["policy_explanation"]
            == "“anna” was the first to submit this original transaction.")
      }
      let same = try await api.call(.post, "/v1/what-if", ["policy": "present-rule"], as: .admin)
      #expect(same["elsewhere"]?["charges"] == 0)
      #expect(same["differences"] == [])
      let patient = try await api.call(
        .post, "/v1/what-if", ["policy": "present-rule", "early_charge_hours": 2000], as: .admin)
      #expect(patient.status == 200)
    }
  }

  // swift-format-ignore
  @Test(arguments: [
    (["policy": "mine"], 400, "policy"), ([:], 400, "policy"),
    (["policy": "shared", "billing_retry_days": 1], 400, "policy"),
    (["policy": "present-rule", "billing_retry_days": -1], 400, "billing_retry_days"),
    (["policy": "present-rule", "period_end_seconds": 1.5], 400, "period_end_seconds"),
    (["policy": "shared", "account_id": "anna", "bundle_id": "com.example"], 400, "account_id"),
    (["policy": "shared", "account_id": "nobody"], 404, nil),
    (["policy": "shared", "original_transaction_id": "1"], 404, nil),
  ] as [(JSONValue, Int, String?)])
  func `what can't be compared is refused`(body: JSONValue, status: Int, field: String?)
    async throws
  {
    try await TestAPI.run { api in
      let answer = try await api.call(.post, "/v1/what-if", body, as: .admin)
      #expect(answer.status == status, "\(answer)")
      if let field { #expect(answer["field"]?.string == field, "\(answer)") }
    }
  }

  @Test func `a long list of accounts says how many there are, and has all of them`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      for number in 11...31 {
        let month = Payment(id: "\(number)", line: "\(number)", from: 0, to: 30)
        let off = Future(line: "\(number)", isOn: false, end: 30)
        try await api.claim(month, off, by: "account-\(number)", on: 10)
      }
      for number in 11...31 {
        let next = Payment(id: "\(number)0", line: "\(number)", from: 50, to: 80)
        try await api.claim(next, by: "ben", on: 50.1)
      }
      var browser = try await AdminBrowser.loggedIn(api)
      let page = try await browser.get("/admin/what-if?policy=first-owner-keeps").text
      #expect(page.contains("<h2>Accounts that would gain or lose most</h2>"))
      let all = page.split(separator: "<summary>All 22 accounts</summary>", maxSplits: 1)
      #expect(all.count == 2)
      for number in 11...31 {
        #expect(all.last?.contains("/admin/accounts/account-\(number)\"") == true, "\(number)")
      }
      // Ten of those who gain, and the one who loses.
      #expect(all.first?.matches(of: /<th scope="row">/).count == 11)
    }
  }

  @Test func `the page shows months, gains and losses with both reasons`() async throws {
    try await TestAPI.run { api in
      let line = try await recordStory(api)
      var browser = try await AdminBrowser.loggedIn(api)
      let form = try await browser.get("/admin/what-if")
      #expect(form.status == 200)
      #expect(form.contains("<option value=\"latest-submitter-takes\">"))
      #expect(!form.contains("<h2>Accounts</h2>"))
      #expect(form.contains("<details class=\"rare\"><summary>"))

      let page = try await browser.get(
        "/admin/what-if?policy=first-owner-keeps&account_id=&original_transaction_id=\(line)")
      #expect(page.status == 200)
      for text in [
        "With “First owner keeps”, 1 of 2 charges would have another owner or none (2 accounts): ",
        " days of access",
        "anna would gain most (1 charge). ben would lose most (1 charge).", "2026-02",
        "<summary>1 charge, with the reasons</summary>", "<h2>Accounts</h2>",
        "“ben” submitted it first;", "“anna” was the first to submit this original transaction.",
        #"<a href="/admin/accounts/anna">anna</a>"#,
        "<option value=\"first-owner-keeps\" selected>",
      ] {
        #expect(page.contains(text), "\(text)")
      }
      let same = try await browser.get("/admin/what-if?policy=present-rule")
      #expect(same.contains("No charge would have another owner (2 charges compared)."))

      let unknown = try await browser.get("/admin/what-if?policy=shared&account_id=nobody")
      #expect(unknown.status == 404)
      #expect(unknown.contains("No account has this ID."))
      // Errors name fields and policies as the page does.
      for (query, text) in [
        (
          "shared&billing_retry_days=1",
          "Policy must be “Present rule”, the only policy with constants."
        ),
        ("shared&account_id=a&bundle_id=b", "Account can&#39;t be combined with App (bundle ID)."),
      ] {
        let refused = try await browser.get("/admin/what-if?policy=\(query)")
        #expect(refused.status == 400 && refused.contains(">\(text)<"), "\(refused.text)")
      }
      let wrong = try await browser.get("/admin/what-if?policy=shared&billing_retry_days=x")
      #expect(wrong.status == 400)
      #expect(wrong.contains("must be a number from 0 to 100000"))
      #expect(wrong.contains("<details class=\"rare\" open><summary>"))
    }
  }
}
