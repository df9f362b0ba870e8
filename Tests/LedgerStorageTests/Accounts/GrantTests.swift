import Foundation
import Postgres
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("Grants of administrators")
struct GrantTests {
  private func withAnna(_ body: @Sendable (Ledger) async throws -> Void) async throws {
    try await withLedger { ledger in
      _ = try await ledger.accounts.findOrCreateAccount("anna", at: start)
      try await body(ledger)
    }
  }

  private func grant(_ ledger: Ledger, until end: Double?, on date: Double) async throws -> UUID {
    try await ledger.grants.grant(
      "premium", to: "anna", until: end.map(day), by: support, terms: .shop, at: day(date)
    ).grant.grant.id
  }

  @Test func `a grant gives access until its end, with an event for both`() async throws {
    try await withAnna { ledger in
      let id = try await grant(ledger, until: 10, on: 1)
      #expect(try await ledger.usable(by: "anna", on: 5) == ["premium": day(10)])
      #expect(try await ledger.publishedKinds("anna") == ["entitlement.granted"])
      try await ledger.work(until: 11)
      #expect(try await ledger.publishedKinds("anna").last == "entitlement.expired")
      // It is over: there is nothing to take back.
      let actions = try await ledger.administration.administratorActions(limit: 10).count
      let after = try await ledger.grants.revokeGrant(id, by: support, terms: .shop, at: day(12))
      #expect(after.grant.revokedAt == nil)
      #expect(try await ledger.administration.administratorActions(limit: 10).count == actions)
    }
  }

  @Test func `a grant that is taken back ends at once, once, and its past remains`() async throws {
    try await withAnna { ledger in
      let id = try await grant(ledger, until: nil, on: 1)
      let revoked = try await ledger.grants.revokeGrant(id, by: support, terms: .shop, at: day(4))
      #expect(revoked.grant.revokedAt == day(4))
      #expect(try await ledger.usable(by: "anna", on: 4).isEmpty)
      #expect(
        try await ledger.publishedKinds("anna") == ["entitlement.granted", "entitlement.revoked"])
      let again = try await ledger.grants.revokeGrant(id, by: support, terms: .shop, at: day(5))
      #expect(again == revoked)
      #expect(
        try await ledger.administration.administratorActions(limit: 10).map(\.action) == [
          "revoke_grant", "grant",
        ])
      #expect(try await ledger.grants.storedGrants(of: "anna") == [revoked])

      let held = try await ledger.holdings.holdings(of: "anna")
      let entitlement = try #require(
        AccessTerms.shop.entitlements(
          of: "anna", holding: [], granted: held.grants, at: day(5)
        ).first)
      #expect(entitlement.state == .revoked)
      #expect(entitlement.source == .grant)
      #expect(entitlement.accessEndsAt == day(4))
    }
  }

  @Test func `what was granted is known from when it was recorded, and so is its end`()
    async throws
  {
    try await withAnna { ledger in
      let id = try await grant(ledger, until: 20, on: 1)
      _ = try await ledger.grants.revokeGrant(id, by: support, terms: .shop, at: day(4))
      // known on, at, active
      let cases: [(Double, Double, Bool)] = [
        (0.5, 2, false), (1, 2, true), (3, 10, true), (3, 21, false), (4, 3.5, true),
        (4, 10, false), (9, 3.5, true), (9, 10, false),
      ]
      for (known, at, isActive) in cases {
        let held = try await ledger.holdings.allHoldings(of: "anna", knownAt: day(known))
        let usable = AccessTerms.shop.entitlements(
          of: "anna", holding: held.holdings, granted: held.grants, at: day(at)
        ).filter(\.isActive)
        #expect(!usable.isEmpty == isActive, "known on day \(known), at day \(at)")
      }
    }
  }

  @Test func `with the same id it is granted once, and another grant is refused`() async throws {
    try await withAnna { ledger in
      let id = UUID()
      _ = try await ledger.accounts.findOrCreateAccount("ben", at: start)
      func ask(
        _ name: String = "premium", for account: String = "anna", until end: Double? = 10,
        on date: Double = 2
      ) async throws -> (grant: StoredGrant, isNew: Bool) {
        try await ledger.grants.grant(
          as: id, name, to: account, until: end.map(day), by: support, terms: .shop, at: day(date))
      }
      let first = try await ask(on: 1)
      #expect(first.isNew)
      let again = try await ask()
      #expect(!again.isNew)
      #expect(again.grant == first.grant)
      #expect(try await ledger.grants.storedGrants(of: "anna").count == 1)
      #expect(try await ledger.administration.administratorActions(limit: 10).count == 1)
      #expect(try await ledger.publishedKinds("anna") == ["entitlement.granted"])
      await #expect(throws: LedgerError.differentGrant(id, member: "account_id")) {
        try await ask(for: "ben")
      }
      await #expect(throws: LedgerError.differentGrant(id, member: "entitlement")) {
        try await ask("gold")
      }
      await #expect(throws: LedgerError.differentGrant(id, member: "expires_at")) {
        try await ask(until: nil)
      }
    }
  }

  @Test func `what is not known is refused`() async throws {
    try await withAnna { ledger in
      await #expect(throws: LedgerError.unknownAccount("ben")) {
        try await ledger.grants.grant(
          "a", to: "ben", until: nil, by: support, terms: .shop, at: start)
      }
      let id = UUID()
      await #expect(throws: LedgerError.unknownGrant(id)) {
        try await ledger.grants.revokeGrant(id, by: support, terms: .shop, at: start)
      }
      let given = try await grant(ledger, until: nil, on: 1)
      let erased = try await ledger.accounts.erase("anna", by: support, at: day(2))
      await #expect(throws: LedgerError.erasedAccount(erased.pseudonym)) {
        try await ledger.grants.revokeGrant(given, by: support, terms: .shop, at: day(3))
      }
      #expect(erased.removed.grants == 1)
      #expect(try await ledger.holdings.holdings(of: "anna").grants.isEmpty)
      #expect(try await ledger.holdings.holdings(of: erased.pseudonym).grants.map(\.id) == [given])
    }
  }
}
