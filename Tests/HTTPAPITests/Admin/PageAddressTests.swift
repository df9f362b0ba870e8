import Testing

@testable import AdminSite
@testable import HTTPAPI

struct PageAddressTests {
  // swift-format-ignore
  @Test(
    "An account id stays one part of its path",
    arguments: [
      ("anna-1138", "/admin/accounts/anna-1138"),
      ("bella@example.org", "/admin/accounts/bella%40example.org"),
      ("<script>alert(1)</script>", "/admin/accounts/%3Cscript%3Ealert%281%29%3C%2Fscript%3E"),
      ("a/../b?c=d#e&f", "/admin/accounts/a%2F..%2Fb%3Fc%3Dd%23e%26f"),
      ("100% \u{1F600}", "/admin/accounts/100%25%20%F0%9F%98%80"),
      (".", "/admin/accounts?id=."),
      ("..", "/admin/accounts?id=.."),
      ("...", "/admin/accounts/..."),
    ])
  func accounts(id: String, expected: String) {
    #expect(AdminURL.account(id) == expected)
  }

  @Test func `forms, charges and choices have their places`() {
    #expect(AdminURL.account("a", form: "erase") == "/admin/accounts/a/erase")
    #expect(AdminURL.account("..", form: "erase") == "/admin/account-forms/erase?id=..")
    #expect(
      AdminURL.originalTransaction("1", environment: "sandbox", charge: "charge-2")
        == "/admin/original-transactions/1?environment=sandbox#charge-2")
    #expect(
      AdminURL.transaction("1", form: "transfer", productID: "a&b", environment: "production")
        == "/admin/transactions/1/transfer?environment=production&product_id=a%26b")
    #expect(AdminURL.product("..") == "/admin/product?product_id=..")
    #expect(AdminURL.product("a&b", isForm: true) == "/admin/product-form?product_id=a%26b")
    #expect(AdminURL.report("active") == "/admin/reports/active")
    #expect(
      AdminURL.drillDown("churn", choices: [("from", "2026-11-01"), ("cause", "billing")])
        == "/admin/reports/churn/transactions?from=2026-11-01&cause=billing")
    #expect(AdminURL.search("a b") == "/admin/search?q=a%20b")
  }

  @Test(
    "After logging in one goes on to a page of ours, or not at all",
    arguments: [
      ("/admin", true), ("/admin/accounts/a%2Fb?x=1", true), ("/admin?x", true), ("", false),
      ("/", false), ("/administrator", false), ("//example.org/admin/", false),
      ("https://example.org/admin/", false), ("/admin/\\example.org", false),
      ("/admin/\nLocation: x", false), ("javascript:alert(1)", false), ("/admin/é", false),
      ("/admin/" + String(repeating: "a", count: 2041), true),
      ("/admin/" + String(repeating: "a", count: 2042), false),
    ])
  func returning(path: String, isOurs: Bool) {
    #expect(AdminURL.isOurs(path) == isOurs)
  }
}
