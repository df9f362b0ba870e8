import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import LedgerStorage

struct UnclaimedChargeTests {
  private static let lines = [
    OriginalTransactionKey(.production, "1000"), OriginalTransactionKey(.production, "2000"),
    OriginalTransactionKey(.sandbox, "1000"),
  ]

  /// All pages of a list, one after the other.
  private static func pages(
    _ list: UnclaimedList, of ledger: Ledger, limit: Int, on date: Double
  ) async throws -> [UnclaimedCharge] {
    var all: [UnclaimedCharge] = []
    while true {
      let page = try await ledger.ownership.unclaimedCharges(
        list, after: all.last.map { ($0.expiresAt, $0.charge) }, limit: limit, at: day(date))
      #expect(page.count <= limit)
      guard !page.isEmpty else { return all }
      all += page
    }
  }

  private static func names(_ charges: [UnclaimedCharge]) -> [String] {
    charges.map { unclaimed in
      let line = unclaimed.charge.line
      return "\(line.environment) \(line.originalTransactionID) \(unclaimed.charge.transactionID)"
    }
  }

  @Test func `whether it had ended depends on the end that was known then`() async throws {
    try await withLedger { ledger in
      try await ledger.learn([charge("1", on: 0)], on: 31)
      // Apple has made the period longer, and said so late.
      try await ledger.learn([charge("1", on: 0, days: 40, asOf: 32)], on: 33)
      func wasOver(knownAt date: Double?, _ column: SQL = "was_over") async throws -> [Bool] {
        try await ledger.database.query(
          """
          SELECT \(column) FROM tenure.report_unclaimed(as_of => \(day(60)),
            known_at => \(date.map { day($0) }))
          """
        ).decode(Bool.self)
      }
      #expect(try await wasOver(knownAt: nil) == [false])
      #expect(try await wasOver(knownAt: 34) == [false])
      #expect(try await wasOver(knownAt: 32) == [true])
      // By the end of the report's moment.
      #expect(try await wasOver(knownAt: nil, "has_ended") == [true])
      #expect(try await wasOver(knownAt: 34, "has_ended") == [false])
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test func `each is on one of three lists, the most urgent first, page after page`() async throws
  {
    let terms = AccessTerms(
      catalogue: Catalogue([
        Product(
          id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"],
          priceMilliunits: 9990, currency: "EUR")
      ]))
    try await withLedger { ledger in
      // Two periods of each original transaction, reported when the first one has ended; and a third one.
      for (line, name) in zip(Self.lines, ["x", "y", "z"]) {
        try await ledger.learn(
          [
            charge(TransactionID("\(name)1"), on: 0, line: line),
            charge(TransactionID("\(name)2"), on: 30, line: line),
          ], on: 31, terms: terms)
        try await ledger.learn(
          [charge(TransactionID("\(name)3"), on: 60, line: line)], on: 61, terms: terms)
      }
      // Claimed charges are on no list.
      let other = OriginalTransactionKey(.production, "3000")
      try await ledger.learn([charge("w1", on: 0, line: other)], on: 31, terms: terms)
      try await ledger.submit(
        [charge("w1", on: 0, line: other)], claiming: [key("w1", line: other)], by: "anna", on: 62,
        terms: terms)

      for limit in 1...4 {
        let second = ["production 1000 x2", "production 2000 y2", "sandbox 1000 z2"]
        let third = ["production 1000 x3", "production 2000 y3", "sandbox 1000 z3"]
        for (date, waiting, ended) in [
          (59.0, second + third, []), (62, third, second.reversed()),
          (91, [], third.reversed() + second.reversed()),
        ] {
          let lists = try await [
            Self.names(Self.pages(.waiting, of: ledger, limit: limit, on: date)),
            Self.names(Self.pages(.ended, of: ledger, limit: limit, on: date)),
          ]
          #expect(lists == [waiting, ended], "\(date)")
        }
        #expect(
          try await Self.names(Self.pages(.historical, of: ledger, limit: limit, on: 62)) == [
            "sandbox 1000 z1", "production 2000 y1", "production 1000 x1",
          ])
      }

      let first = try #require(
        try await ledger.ownership.unclaimedCharges(.waiting, limit: 2, at: day(62)).last)
      #expect(first.chargedAt == day(60))
      #expect(first.firstSeenAt == day(61))
      #expect(first.expiresAt == day(90))
      #expect(first.amountMilliunits == 9990)
      #expect(first.currency == "EUR")
      #expect(first.decision.rule == .unclaimed)

      // The alert and the menu leave out what has ended since, and what had ended before.
      for (date, production, sandbox) in [(59.0, 4, 2), (62, 2, 1), (91, 0, 0)] {
        let reading = try await ledger.maintenance.reading(at: day(date))
        #expect(
          reading.unclaimedCharges.mapValues(\.count) == [
            .production: production, .sandbox: sandbox,
          ])
        let waiting = try await ledger.accounts.waitingCounts(upTo: 3, at: day(date))
        #expect(waiting.unclaimed.count == min(production, 3))
        #expect((waiting.unclaimed.since == nil) == (production == 0))
        #expect(waiting.jobs == 0 && waiting.deliveries == 0)
      }
    }
  }
}
