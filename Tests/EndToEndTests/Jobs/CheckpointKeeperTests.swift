import Bootstrap
import Foundation
import LedgerStorage
import ScratchDatabases
import Subscriptions
import Testing

@testable import BackgroundJobs

@Suite("The operator's place for checkpoints")
struct CheckpointKeeperTests {
  @Test func `a file gets each checkpoint once, as a line, also those that it missed`() async throws
  {
    try await withScratchDatabase { database in
      try await withTemporaryDirectory { directory in
        let ledger = Ledger(database: database)
        let file = directory.appending(path: "checkpoints.jsonl")
        let keeper = CheckpointKeeper.file(file.path(percentEncoded: false))
        func checkpoint(_ number: Int) async throws {
          _ = try await ledger.products.describe(
            Product(
              id: "coins", validFrom: .now, type: .consumable, entitlements: [],
              displayName: "\(number) coins"))
          // Dates are whole milliseconds.
          try await Task.sleep(for: .milliseconds(3))
          let (made, audit) = try await ledger.auditor.checkpoint(age: .zero)
          #expect(made?.number == number, "\(audit.differences)")
        }
        #expect(try await keeper.keep(from: ledger.auditor, at: .now) == nil)
        try await checkpoint(1)
        #expect(try await keeper.keep(from: ledger.auditor, at: .now) == nil)
        #expect(try await keeper.keep(from: ledger.auditor, at: .now) == nil)
        try await checkpoint(2)
        try await checkpoint(3)
        #expect(try await keeper.keep(from: ledger.auditor, at: .now) == nil)
        let lines = try String(contentsOf: file, encoding: .utf8).split(separator: "\n")
        let kept = try lines.map { try JSONDecoder().decode(Checkpoint.self, from: Data($0.utf8)) }
        #expect(kept.map(\.number) == [1, 2, 3])
        #expect(try await ledger.auditor.audit(against: kept).differences == [])

        // A line that was cut off.
        try Data("{\"number\":".utf8).write(to: file)
        #expect(
          try await keeper.keep(from: ledger.auditor, at: .now)?.contains("can't be written")
            == true)
        let nowhere = CheckpointKeeper.file("/nowhere/checkpoints")
        #expect(
          try await nowhere.keep(from: ledger.auditor, at: .now)?.contains("can't be written")
            == true)
      }
    }
  }
}
