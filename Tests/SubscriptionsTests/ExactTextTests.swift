import Foundation
import Subscriptions
import Testing

/// Text from outside is the bytes that it is.
///
/// Each test fails where texts are compared as strings.
struct ExactTextTests {
  // swift-format-ignore
  static let spellings: [(String, String)] = [
    ("caf\u{e9}",          "cafe\u{301}"),
    ("K",                  "\u{212A}"),
    (";",                  "\u{37E}"),
    ("a\u{301}\u{323}",    "a\u{323}\u{301}"),
    ("zed",                "\u{FEFF}zed"),
  ]

  private func same<Value: Equatable>(_ one: Value, _ other: Value) -> Bool { one == other }

  @Test(arguments: spellings)
  func `two spellings are two identifiers`(one: String, other: String) {
    func check<ID: TextIdentifier>(_: ID.Type) {
      let (one, other) = (ID(one), ID(other))
      #expect(one != other)
      #expect(!(one == other))
      #expect(!same(one, other))
      #expect(Set([one, other, one]).count == 2)
      #expect((one < other) != (other < one))
      #expect([one: 1][other] == nil)
    }
    check(ExactText.self)
    check(AccountID.self)
    check(ProductID.self)
    check(TransactionID.self)
    check(OriginalTransactionID.self)
    check(WebOrderLineItemID.self)
  }

  @Test func `a million marks are compared, hashed and sorted in no time`() {
    let marks = String(repeating: "\u{301}\u{323}", count: 250_000)
    let (one, other) = (ExactText("a" + marks + "b"), ExactText("a" + marks + "c"))
    let start = ContinuousClock.now
    #expect(one != other)
    #expect([other, one].sorted() == [one, other])
    #expect(Set([one, other]).count == 2)
    #expect(Entitlement.State(exactly: one.rawValue) == nil)
    #expect(ContinuousClock.now - start < .seconds(10))
  }

  @Test func `cases are found by the bytes of their names`() {
    #expect(Environment(exactly: "sandbox") == .sandbox)
    #expect(Environment(exactly: "Sandbox") == nil)
    #expect(Environment(exactly: "sandbox\u{301}") == nil)
  }

  @Test(arguments: spellings)
  func `a plan does not prolong an entitlement of another spelling`(one: String, other: String) {
    let catalogue = Catalogue([
      Product(id: .monthly, validFrom: day(0), type: .autoRenewable, entitlements: [one]),
      Product(id: .quarterly, validFrom: day(0), type: .autoRenewable, entitlements: [other]),
    ])
    #expect(catalogue[.monthly]?.entitlements != catalogue[.quarterly]?.entitlements)
    var ledger = Ledger()
    ledger.receive(
      charge("1", from: day(0), to: day(30)),
      charge("2", .quarterly, from: day(30), to: day(120)))
    ledger.claim(key("1"), by: a)
    ledger.claim(key("2", .quarterly), by: a)
    let entitlements = Entitlement.entitlements(
      holdings: ledger.holdings(of: a), catalogue: catalogue, at: day(10))
    #expect(entitlements.map(\.accessEndsAt) == [day(30)])
  }

  @Test func `an account has the entitlements of both spellings, in the order of their bytes`() {
    let now = Timestamp(milliseconds: 0)
    let grants = Self.spellings.flatMap { [$0.0, $0.1] }.map {
      Grant(id: .init(), entitlement: $0, startsAt: now, endsAt: nil)
    }
    let found = Entitlement.entitlements(
      holdings: [], grants: grants, catalogue: Catalogue([]), at: now)
    #expect(Set(found.map { ExactText($0.name) }).count == grants.count)
    #expect(found.map { ExactText($0.name) } == found.map { ExactText($0.name) }.sorted())

    let account = AccountKey(rawValue: .init())
    let events = EntitlementEvents.events(for: account, published: [:], now: found, at: now)
    #expect(events.events.count == grants.count)
    #expect(events.published.count == grants.count)
  }

  @Test func `sandbox access is an account's of just that id`() {
    let access = SandboxAccess.accounts(["caf\u{e9}"])
    #expect(access.grants(.sandbox, to: "caf\u{e9}"))
    #expect(!access.grants(.sandbox, to: "cafe\u{301}"))
  }
}
