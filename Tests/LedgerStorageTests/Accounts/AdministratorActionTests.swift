import Foundation
import Postgres
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("The audit log")
struct AdministratorActionTests {
  private static let anna = AccountKey(rawValue: UUID())
  private static let ben = AccountKey(rawValue: UUID())

  @Test(arguments: [
    // names of anna and ben   reason                                        names are kept by keys
    ("4711", "4712", "4711 is the same person as 4712.", true),
    ("4711", "4712", "Order 47110 and A4711 are unclaimed.", false),
    ("anna", "anna b", "anna b, not anna", true),
    ("a{1}", "account", "the account of a{1}", true),
    ("é", "x", "é!", true),
    ("4711", "4712", "", false),
  ])
  func `reasons name accounts as they are called now`(
    anna: String, ben: String, reason: String, isKeyed: Bool
  ) {
    let names = [Self.anna: anna, Self.ben: ben]
    let stored = KeyedText.withKeys(reason, of: names)
    #expect((stored != reason) == isKeyed)
    #expect(KeyedText.withNames(stored, of: names) == reason)
    let erased = KeyedText.withNames(stored, of: [Self.ben: ben])
    #expect((erased == reason) == !isKeyed)
  }

  @Test func `actions are read from the last one, by pages, and by account`() async throws {
    try await withLedger { ledger in
      for account in ["anna", "ben"] {
        _ = try await ledger.accounts.findOrCreateAccount(account, at: start)
        for number in 1...3 {
          _ = try await ledger.grants.grant(
            "e\(number)", to: account, until: nil, by: support, terms: .shop,
            at: day(Double(number)))
        }
      }
      let first = try await ledger.administration.administratorActions(limit: 4)
      #expect(first.map(\.accountID) == ["ben", "ben", "ben", "anna"])
      #expect(first.map(\.administrator) == Array(repeating: "ops", count: 4))
      #expect(first[0].reason == support.reason)
      #expect(first[0].actedAt == day(3))
      #expect(first[0].data == #"{"entitlement":"e3","expires_at":null}"#)
      let rest = try await ledger.administration.administratorActions(before: first[3].id, limit: 4)
      #expect(rest.map(\.accountID) == ["anna", "anna"])
      let anna = try #require(try await ledger.accounts.account("anna"))
      #expect(
        try await ledger.administration.administratorActions(on: anna.key, limit: 10).count == 3)
    }
  }

  @Test func `a transfer concerns whom it takes from as well`() async throws {
    try await withLedger { ledger in
      try await ledger.submit([charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1)
      _ = try await ledger.accounts.findOrCreateAccount("ben", at: start)
      try await ledger.ownership.transfer(
        key("1"), to: "ben", by: support, terms: .everything, at: day(1))
      for name in ["anna", "ben"] {
        let account = try #require(try await ledger.accounts.account(name))
        let action = try #require(
          try await ledger.administration.administratorActions(on: account.key, limit: 2).first)
        #expect(action.action == "transfer")
        #expect(action.subject == "production/1000/1")
        #expect(action.accountID == "ben")
        #expect(action.previousAccountID == "anna")
      }
    }
  }

  @Test func `redeliveries and retries that an administrator asks for are recorded`() async throws {
    try await withLedger { ledger in
      _ = try await ledger.webhooks.pushEvents(at: start)
      try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1, terms: .shop)
      let anna = try #require(try await ledger.accounts.account("anna"))
      let event = try #require(
        try await ledger.accounts.events(of: anna.key, after: nil, limit: 1).first
      ).position
      let administrator = Administrator(name: "cli:root")
      #expect(
        try await ledger.webhooks.redeliver(event.id, by: administrator, at: day(1)) == .scheduled)
      #expect(try await ledger.webhooks.redeliver(event.id, at: day(1)) == .scheduled)
      let unknown = try await ledger.webhooks.redeliver(
        event.id + 1000, by: administrator, at: day(1))
      #expect(unknown == .unknownEvent)
      _ = try await ledger.database.execute(
        "UPDATE tenure.webhook_delivery SET parked_at = now(), last_error = 'x'")
      #expect(try await ledger.webhooks.redeliverParked(by: administrator, at: day(1)) == 1)
      #expect(try await ledger.webhooks.redeliverParked(by: administrator, at: day(1)) == 0)
      _ = try await ledger.database.execute(
        """
        UPDATE tenure.job SET discarded_at = now(), last_error = 'x'
        WHERE kind = 'publish_entitlements'
        """
      )
      #expect(try await ledger.jobs.restartJobs(.allDiscarded, by: administrator, at: day(1)) == 1)
      #expect(try await ledger.jobs.restartJobs(.allDiscarded, by: administrator, at: day(1)) == 0)
      let actions = try await ledger.administration.administratorActions(limit: 10)
      #expect(
        actions.map(\.action) == ["retry_jobs", "redeliver_parked_events", "redeliver_event"])
      #expect(actions.map(\.administrator) == Array(repeating: "cli:root", count: 3))
      #expect(actions[2].subject == "\(event.id)")
      #expect(actions[2].accountID == "anna")
      #expect(actions.allSatisfy { $0.reason == nil })
    }
  }
}
