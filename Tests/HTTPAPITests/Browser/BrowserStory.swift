import AppStore
import AppStoreSimulator
import HTTPTypes
import HummingbirdTesting
import JSONText
import LedgerStorage
import Postgres
import Subscriptions
import Testing

@testable import HTTPAPI

/// The data of the browser tests: a few customers, on a listening server.
///
/// On Anna's phone her account buys a month and turns auto-renew off, Ben's account buys a quarter
/// later, and the month is refunded. Carl renews monthly. Dora only has an account.
struct BrowserStory: Sendable {
  let api: TestAPI
  let browser: Browser
  let month: TransactionID
  let quarter: TransactionID
  /// Carl's latest charge.
  let renewal: TransactionID
  /// Ben's order of another month.
  let order: String
  let lineItem: String

  /// The page of Anna's and Ben's original transaction.
  var line: String { "/admin/original-transactions/\(month)?environment=production" }

  /// Runs a test with the suite's browser, before a login.
  static func run(_ test: @escaping @Sendable (BrowserStory) async throws -> Void) async throws {
    let driver = try #require(OneBrowser.driver)
    try await TestAPI.run(.live) { api in
      let browser = Browser(
        driver: driver, origin: "http://localhost:\(try #require(api.client.port))")
      try await browser.reset()
      let story = try await BrowserStory(api, browser)
      try await test(story)
      // Closes connections to the server before it ends.
      try await driver.post("/url", ["url": "about:blank"])
    }
  }

  private init(_ api: TestAPI, _ browser: Browser) async throws {
    let simulation = api.apple.simulation
    try await api.describe("monthly", "premium")
    try await api.describe("quarterly", "premium")
    for phone in ["anna", "carl"] { try api.addCustomer(phone) }
    let month = try simulation.buy("monthly", on: "anna")
    try simulation.buy("monthly", on: "carl")
    _ = try await api.submit("anna", from: "anna")
    _ = try await api.submit("carl", from: "carl")
    simulation.advance(by: .days(10))
    try simulation.setAutoRenew(false, month.originalTransactionID)
    _ = try await api.submit("anna", from: "anna")
    simulation.advance(by: .days(30))
    let quarter = try simulation.buy("quarterly", on: "anna")
    simulation.advance(by: .minutes(1))
    _ = try await api.submit("ben", from: "anna")
    simulation.advance(by: .days(1))
    try simulation.refund(month.transactionID)
    _ = try await api.submit("ben", from: "anna")
    simulation.advance(by: .days(60))
    _ = try await api.submit("carl", from: "carl")
    _ = try await api.call(.put, "/v1/accounts/dora")
    let order = try await api.call(
      .post, "/v1/orders", ["account_id": "ben", "product_id": "monthly"])
    self.api = api
    self.browser = browser
    self.month = month.transactionID
    self.quarter = quarter.transactionID
    renewal = try #require(
      simulation.truth(of: AppleID("carl")).max { $0.purchaseDate < $1.purchaseDate }
    ).transactionID
    self.order = try #require(order["order_id"]?.string)
    lineItem = try #require(
      try simulation.truth(of: month.transactionID).webOrderLineItemID
    ).rawValue
  }

  /// Logs in as the administrator `ops`, and opens a page.
  func logIn(for path: String = "/admin/search") async throws {
    try await browser.open(path)
    try await browser.type("admin-secret-for-trying", into: "#key")
    try await browser.click("button.primary")
    try await browser.arrive(at: path)
  }

  /// Uses the search field.
  func search(for id: String, leadingTo path: String) async throws {
    try await browser.type(id, into: "#q")
    try await browser.click(".search button")
    try await browser.arrive(at: path)
  }

  /// Rita buys a month, which Apple refunds; returns the order's ID in Apple's email to her.
  func refundRita() async throws -> String {
    let simulation = api.apple.simulation
    try api.addCustomer("rita")
    let month = try simulation.buy("monthly", on: "rita")
    _ = try await api.submit("rita", from: "rita")
    simulation.advance(by: .hours(1))
    try simulation.refund(month.transactionID)
    _ = try await api.submit("rita", from: "rita")
    return try #require(try simulation.truth(of: month.transactionID).orderID)
  }

  // MARK: Queues

  /// Releases Carl's charge.
  func orphan() async throws {
    let answer = try await api.call(
      .post, "/v1/transactions/\(renewal)/owner",
      ["account_id": .null, "reason": "By mistake."], as: .admin)
    try #require(answer.status == 200)
  }

  func parkJob() async throws {
    try await api.database.execute(
      """
      INSERT INTO tenure.job (kind, subject, queue, run_at, attempts, discarded_at, last_error,
        created_at)
      VALUES ('reconcile', 'all of it', 'maintenance', now(), 7, '2026-04-01T08:00:00Z',
        'Apple answered with HTTP 503.', now())
      """)
  }

  /// Submits a receipt of Anna's that Apple rejects; returns the submission's id.
  @discardableResult
  func rejectReceipt() async throws -> String {
    api.apple.answer("e3JlamVjdGVk", with: Array(#"{"status":21003}"#.utf8))
    return try #require(
      try await api.submit("anna", receipt: "e3JlamVjdGVk")["submission_id"]?.string)
  }
}
