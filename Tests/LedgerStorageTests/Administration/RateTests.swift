import Postgres
import Subscriptions
import Testing

@testable import LedgerStorage

/// Rates as they are set and listed.
struct RateTests {
  private static let usd = Rate.Subject.exchange(currency: "USD", reportingCurrency: "EUR")
  private static let all = Rate.Subject.commission(productID: nil)

  // swift-format-ignore
  @Test(arguments: [
    (usd, "0.92", "2026-01-31", nil),
    (usd, "0", "2026-01-31", .value),
    (usd, "0.00", "2026-01-31", .value),
    (usd, "-1", "2026-01-31", .value),
    (usd, "1,2", "2026-01-31", .value),
    (usd, "1e3", "2026-01-31", .value),
    (usd, "0.92", "2026-02-31", .validFrom),
    (usd, "0.92", "today", .validFrom),
    (.exchange(currency: "usd", reportingCurrency: "eur"), "1", "2026-01-31", nil),
    (.exchange(currency: "XXQ", reportingCurrency: "EUR"), "1", "2026-01-31", .currency),
    (.exchange(currency: "USD", reportingCurrency: "EURO"), "1", "2026-01-31", .reportingCurrency),
    (.exchange(currency: "EUR", reportingCurrency: "EUR"), "1", "2026-01-31", .currency),
    (all, "15", "2026-01-31", nil),
    (all, "0", "2026-01-31", nil),
    (all, "100", "2026-01-31", nil),
    (all, "100.5", "2026-01-31", .value),
    (all, "", "2026-01-31", .value),
    (.commission(productID: ""), "15", "2026-01-31", .product),
  ] as [(Rate.Subject, String, String, RateFault.Field?)])
  func `what is no rate is refused`(
    subject: Rate.Subject, value: String, day: String, fault: RateFault.Field?
  ) {
    do {
      _ = try Rate(subject, value, validFrom: day)
      #expect(fault == nil)
    } catch {
      #expect(error.field == fault)
    }
  }

  @Test func `a rate is set from a day on, and corrected by another one of that day`() async throws
  {
    try await withLedger { ledger in
      let ops = Administrator(name: "ops", reason: "The bank's.")
      func rate(_ subject: Rate.Subject, _ value: String, _ day: String) throws -> Rate {
        try Rate(subject, value, validFrom: day)
      }
      #expect(try await ledger.rates.rates().isEmpty)
      _ = try await ledger.database.execute(
        "INSERT INTO tenure.product (product_id, valid_from, type) VALUES ('month', now(), 'consumable')"
      )
      let month = Rate.Subject.commission(productID: "month")
      for rate in [
        try rate(Self.usd, "0.9", "2026-01-01"), try rate(Self.usd, "0.92", "2026-01-01"),
        try rate(Self.usd, "0.95", "2026-02-01"), try rate(Self.all, "30", "2026-01-01"),
        try rate(month, "15", "2026-01-01"),
      ] { try await ledger.rates.set(rate, by: ops, at: Timestamp(milliseconds: 0)) }
      #expect(
        try await ledger.rates.rates() == [
          try rate(Self.usd, "0.95", "2026-02-01"), try rate(Self.usd, "0.92", "2026-01-01"),
          try rate(Self.all, "30", "2026-01-01"), try rate(month, "15", "2026-01-01"),
        ])
      let kept = try await ledger.database.query("SELECT 1 FROM tenure.exchange_rate").count
      #expect(kept == 3)
      let actions = try await ledger.database.query(
        "SELECT action || ' ' || subject FROM tenure.administrator_action ORDER BY action_id DESC"
      ).decode(String.self)
      #expect(
        actions.prefix(3) == [
          "set_commission month", "set_commission all products", "set_exchange_rate USD in EUR",
        ])

      // What is removed was never there, except for what was known before.
      let before = try await ledger.database.query("SELECT clock_timestamp()::text").decodeOnly(
        String.self)
      for rate in [
        try rate(Self.usd, "0.95", "2026-02-01"), try rate(Self.usd, "0.92", "2026-01-01"),
        try rate(month, "15", "2026-01-01"),
      ] {
        try await ledger.rates.remove(rate, by: ops, at: Timestamp(milliseconds: 0))
        if rate.value == "0.95" {
          #expect(try await ledger.rates.rates().first?.value == "0.92")
        }
      }
      #expect(try await ledger.rates.rates() == [try rate(Self.all, "30", "2026-01-01")])
      #expect(try await ledger.rates.currencies().isEmpty)
      let inForce = try await ledger.database.query(
        """
        SELECT concat_ws(' ', coalesce(tenure.exchange_rate_on('EUR', 'USD', '2026-03-01')::text, 'none'),
          tenure.exchange_rate_on('EUR', 'USD', '2026-03-01', \(before)::timestamptz),
          tenure.commission_on('month', '2026-03-01'),
          tenure.commission_on('month', '2026-03-01', \(before)::timestamptz))
        """
      ).decodeOnly(String.self)
      #expect(inForce == "none 0.95 30 15")
      // Set again, it is valid again.
      try await ledger.rates.set(
        try rate(Self.usd, "0.9", "2026-01-01"), by: ops, at: Timestamp(milliseconds: 0))
      #expect(try await ledger.rates.rates().first?.value == "0.9")
    }
  }
}
