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

  @Test func `what is not used can be given back, as far as it fits`() async throws {
    try await withLedger { ledger in
      #expect(try await ledger.polls.takeBudget(Self.budget, upTo: 10, at: start) == 10)
      try await ledger.polls.returnBudget(Self.budget, 3, at: start)
      #expect(try await ledger.polls.takeBudget(Self.budget, upTo: 10, at: start) == 3)
      try await ledger.polls.returnBudget(Self.budget, 100, at: start)
      #expect(try await ledger.polls.takeBudget(Self.budget, upTo: 100, at: start) == 10)
      #expect(try await ledger.polls.takeBudget(Self.budget, upTo: 0, at: start + .minutes(1)) == 0)
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
