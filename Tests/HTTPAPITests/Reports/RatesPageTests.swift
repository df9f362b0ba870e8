import JSONText
import LedgerStorage
import Postgres
import Reports
import Subscriptions
import Testing

@testable import AdminSite
@testable import HTTPAPI

/// The page of exchange rates and commissions.
struct RatesPageTests {
  @Test func `a rate is set by its form, and shown`() async throws {
    try await TestAPI.run { api in
      var browser = try await AdminBrowser.loggedIn(api)
      let empty = try await browser.get("/admin/rates")
      #expect(empty.contains("No exchange rates. Reports show each currency by itself."))
      #expect(empty.contains("No commission is set. Proceeds are calculated with 30%."))

      let forms = [
        (
          "exchange", [("currency", "usd"), ("reporting_currency", "EUR"), ("value", "0.92")],
          "The exchange rate of USD in EUR is 0.92 from 31 Jan 2026 on."
        ),
        (
          "commission", [("product_id", ""), ("value", "15")],
          "commission on all products is 15% from 31 Jan 2026 on."
        ),
      ]
      for (form, fields, message) in forms {
        #expect(try await browser.get("/admin/rates/\(form)").status == 200)
        let day = [("valid_from", "2026-01-31")]
        let unexplained = try await browser.post("/admin/rates/\(form)", fields + day)
        #expect(unexplained.status == 400)
        #expect(try await api.ledger.rates.rates().count == (form == "exchange" ? 0 : 1))
        let done = try await browser.post(
          "/admin/rates/\(form)", fields + day + [("reason", "As agreed.")])
        #expect(done.status == 303)
        #expect(try await browser.get("/admin/rates").contains(message))
      }
      for (query, message) in [
        ("currency=USD&reporting_currency=EUR&", "exchange rate of USD in EUR from 31 Jan 2026 on"),
        ("", "commission on all products from 31 Jan 2026 on"),
      ] {
        let path = "/admin/rates/removal?\(query)valid_from=2026-01-31"
        #expect(
          try await browser.get("/admin/rates").contains("href=\"\(PageText.escaped(path))\""))
        #expect(try await browser.get(path).status == 200)
        #expect(try await browser.post(path, []).status == 400)
        #expect(try await browser.post(path, [("reason", "A typo.")]).status == 303)
        #expect(try await browser.get("/admin/rates").contains("\(message) was removed."))
        #expect(try await browser.get(path).status == 404)
      }
      #expect(try await api.ledger.rates.rates().isEmpty)
      // On a busy machine the overview keeps an answer that came late for a minute.
      let removal = "removed the exchange rate of USD in EUR from 31 Jan 2026"
      var overview = ""
      for look in 0..<90 where !overview.contains(removal) {
        if look > 0 { try await Task.sleep(for: .seconds(1)) }
        overview = try await browser.get("/admin").text.replacing(/<[^>]*>/, with: "")
      }
      #expect(overview.contains(removal))
      let wrong = try await browser.post(
        "/admin/rates/exchange",
        [
          ("currency", "USD"), ("reporting_currency", "EUR"), ("value", "many"),
          ("valid_from", "2026-01-31"), ("reason", "As agreed."),
        ])
      #expect(wrong.status == 400)
      #expect(wrong.contains(">Rate must be a positive number, such as 0.92.<"))
      _ = try await api.database.execute(
        "INSERT INTO tenure.product (product_id, valid_from, type) VALUES ('coins', now(), 'consumable')"
      )
      let unknown = try await browser.post(
        "/admin/rates/commission",
        [
          ("product_id", "coin"), ("value", "15"), ("valid_from", "2026-01-31"),
          ("reason", "As agreed."),
        ])
      #expect(unknown.status == 400)
      #expect(unknown.contains(">Product is not in the catalogue (did you mean coins?).<"))
    }
  }

  @Test func `an answer names the currencies without a rate`() async throws {
    try await TestAPI.run { api in
      let rate = try Rate(
        .exchange(currency: "USD", reportingCurrency: "EUR"), "0.5", validFrom: "2026-01-01")
      try await api.ledger.rates.set(
        rate, by: Administrator(name: "ops"), at: Timestamp(milliseconds: 0))
      _ = try await api.database.execute(
        """
        INSERT INTO tenure.movement (environment, original_transaction_id, kind, at, transaction_id,
          charge_original_transaction_id, product_id, number, ownership_type, period_type, quantity,
          currency, amount_milliunits, rule, decided_at, has_moved, is_renewal, expires_at, known_from)
        SELECT 'production', code, 'charged', '2026-03-01Z', code, code, 'monthly', 1, 'purchased',
          'normal', 1, code, 1500, 'submitter', '2026-03-01Z', false, false, 'infinity', '2026-03-01Z'
        FROM unnest(ARRAY['USD', 'GBP', 'JPY']) AS code
        """)
      _ = try await api.ledger.maintenance.repairMovements()
      let choices = "from=2026-03-01&to=2026-03-31&as_of=2026-04-01T00:00:00Z"
      let path = "/v1/reports/revenue?\(choices)"
      func answer(_ query: String) async throws -> Answer {
        var answer = try await api.get(path + query, as: .admin)
        while answer.status == 202 { answer = try await api.get(path + query, as: .admin) }
        return answer
      }
      #expect(try await answer("")["unconverted"] == nil)
      #expect(try await answer("&reporting_currency=EUR")["unconverted"] == ["GBP", "JPY"])
      var browser = try await AdminBrowser.loggedIn(api)
      let page = try await browser.get("/admin/reports/revenue?\(choices)&reporting_currency=EUR")
      let note =
        "Some amounts from 1 Mar 2026 to 31 Mar 2026 were not converted to EUR, as exchange rates "
        + "are missing: GBP, JPY."
      #expect(page.contains(note))
      #expect(page.contains(#"<a href="/admin/rates">Set rates</a>"#) && !page.contains("`"))
      // Also for the period before alone.
      let compared = try await browser.get(
        "/admin/reports/revenue?from=2026-04-01&to=2026-04-30&as_of=2026-05-15T00:00:00Z"
          + "&reporting_currency=EUR&compare=true")
      #expect(compared.contains(note))
    }
  }
}
