import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import LedgerStorage

/// How often Apple may be asked, by everybody together.
struct AppleBudgetTests {
  private static let budget = AppleBudget("polls/production", perHour: 600)

  @Test func `a minute's worth goes at once, and the rest of the hour flows back`() async throws {
    try await withLedger { ledger async throws in
      #expect(try await ledger.polls.takeBudget(Self.budget, upTo: 4, at: start) == 4)
      #expect(try await ledger.polls.takeBudget(Self.budget, upTo: 100, at: start) == 6)
      #expect(try await ledger.polls.takeBudget(Self.budget, upTo: 100, at: start) == 0)
      // 590 in an hour.
      #expect(
        try await ledger.polls.takeBudget(Self.budget, upTo: 100, at: start + .seconds(6)) == 0)
      #expect(
        try await ledger.polls.takeBudget(Self.budget, upTo: 100, at: start + .seconds(7)) == 1)
      #expect(
        try await ledger.polls.takeBudget(Self.budget, upTo: 100, at: start + .minutes(60)) == 10)
      // A clock that is behind gives nothing, and takes nothing away.
      #expect(try await ledger.polls.takeBudget(Self.budget, upTo: 1, at: start) == 0)
      // A clock that was an hour ahead and is right again does not block requests for an hour.
      #expect(try await ledger.polls.takeBudget(Self.budget, upTo: 1, at: start + .seconds(7)) == 1)
      // Another budget has nothing to do with it.
      let sandbox = AppleBudget("polls/sandbox", perHour: 60)
      #expect(try await ledger.polls.takeBudget(sandbox, upTo: 10, at: start) == 1)
    }
  }

  @Test func `a portion is spent from memory, and what is left of it lapses`() async throws {
    try await withLedger { ledger in
      // Ten a second, and six hundred at once.
      let budget = AppleBudget("polls/production", perHour: 36_000)
      func left() async throws -> Double? {
        try await ledger.database.query("SELECT tokens FROM tenure.rate_budget")
          .decodeFirst(Double.self)
      }
      let portions = BudgetPortions(ledger.polls)
      #expect(try await portions.spend(upTo: 0, of: budget, at: start) == 0)
      #expect(try await left() == nil)
      #expect(try await portions.spend(upTo: 4, of: budget, at: start) == 4)
      #expect(try await left() == 590)
      #expect(try await portions.spend(upTo: 4, of: budget, at: start) == 4)
      portions.giveBack(1, of: budget)
      #expect(try await portions.spend(upTo: 4, of: budget, at: start + .seconds(10)) == 3)
      #expect(try await left() == 590)
      #expect(try await portions.spend(upTo: 4, of: budget, at: start + .seconds(10)) == 4)
      // Six are left of the second portion, and lapse.
      #expect(try await portions.spend(upTo: 10, of: budget, at: start + .seconds(21)) == 10)
      // A killed process loses its portion and nothing else.
      let other = BudgetPortions(ledger.polls)
      #expect(try await other.spend(upTo: 1, of: budget, at: start + .seconds(21)) == 1)
      #expect(try await left() == 580)
      // Without a grant nothing is written.
      #expect(
        try await ledger.polls.takeBudget(budget, upTo: 1000, at: start + .seconds(21)) == 580)
      let version = try await ledger.database.query("SELECT ctid::text FROM tenure.rate_budget")
        .decodeOnly(String.self)
      #expect(try await portions.spend(upTo: 1, of: budget, at: start + .seconds(21)) == 0)
      let same = try await ledger.database.query("SELECT ctid::text FROM tenure.rate_budget")
      #expect(try same.decodeOnly(String.self) == version)
    }
  }

  @Test func `a portion that is spent late exceeds no hour`() async throws {
    try await withLedger { ledger in
      let budget = AppleBudget("polls/production", perHour: 36_000)
      let begin = start + .seconds(10)
      let late = BudgetPortions(ledger.polls)
      #expect(try await late.spend(upTo: 1, of: budget, at: start) == 1)
      // The budget is full again when the hour begins.
      var spent = try await late.spend(upTo: 9, of: budget, at: begin)
      #expect(spent == 9)
      for minute in 0...60 {
        spent += try await ledger.polls.takeBudget(
          budget, upTo: 100_000, at: begin + .minutes(minute))
      }
      #expect(spent <= 36_000)
      #expect(spent > 35_500)
    }
  }

  @Test func `sixty minutes never see more than the limit, however many take`() async throws {
    try await withLedger { ledger in
      var granted: [(at: Timestamp, count: Int)] = []
      for minute in 0..<180 {
        let now = start + .seconds(minute * 40)
        let taken = try await withThrowingTaskGroup(of: Int.self) { group in
          for worker in 0..<3 {
            let ledger = Ledger(database: ledger.database)
            group.addTask {
              try await ledger.polls.takeBudget(Self.budget, upTo: 4 + worker, at: now)
            }
          }
          return try await group.reduce(0, +)
        }
        granted.append((now, taken))
      }
      for (begin, _) in granted {
        let hour = granted.filter { $0.at >= begin && $0.at < begin + .minutes(60) }
        #expect(hour.map(\.count).reduce(0, +) <= 600)
      }
      // And nearly all of it can be used.
      let hour = granted.filter { $0.at < start + .minutes(60) }
      #expect(hour.map(\.count).reduce(0, +) > 500)
    }
  }

  @Test(arguments: [(2, 1), (59, 1), (60, 1), (6000, 100), (144_000, 2400)])
  func `even a small limit lets something through`(perHour: Int, atOnce: Int) async throws {
    try await withLedger { ledger async throws in
      let budget = AppleBudget("b", perHour: perHour)
      #expect(try await ledger.polls.takeBudget(budget, upTo: 1_000_000, at: start) == atOnce)
      #expect(try await ledger.polls.takeBudget(budget, upTo: 1, at: start + .minutes(61)) == 1)
    }
  }
}
