import Foundation
import LedgerStorage
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

@Suite("tenure jobs")
struct JobsCommandTests {
  /// Runs a test with a parked notification.
  private func withParkedJob(
    _ test:
      @Sendable (
        Ledger, _ run: @Sendable ([String]) async throws -> ChildProcess.Outcome
      ) async throws -> Void
  ) async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      _ = try await ledger.notifications.store(
        NewNotification(id: "n1", version: .two, receivedAt: .now, body: "a.b.c"),
        processAt: .now)
      let jobs = try await ledger.jobs.claimJobs(
        limits: [.notifications: 1], worker: "w", at: .now, lease: .seconds(20))
      for job in jobs {
        _ = try await ledger.jobs.discard(job, because: "It can't be read.", at: .now)
      }
      try await test(ledger) { arguments in
        try await withTemporaryDirectory { directory in
          try await ChildProcess.run(
            try TenureProgram.executable, ["jobs"] + arguments,
            environment: ["DATABASE_URL": database.uri], in: directory)
        }
      }
    }
  }

  @Test("shows what was given up and why, and starts it again")
  func startsAgain() async throws {
    try await withParkedJob { ledger, run in
      let list = try await run([])
      #expect(list.status == 0, "\(list.errors)")
      #expect(list.output.contains(/process_notification +notifications +0 +0 +0 +1 +0/))
      #expect(list.output.contains("It can't be read."))
      let id = try #require(try await ledger.jobs.discardedJobs(limit: 1).first?.id)
      let shown = try await run(["show", "\(id)"])
      #expect(shown.output.contains(/state +parked/), "\(shown.output)\(shown.errors)")
      #expect(try await run(["show", "n1"]).output == shown.output)

      let unexplained = try await run(["retry", "\(id)", "--reason", ""])
      #expect(unexplained.status != 0)
      #expect(unexplained.errors.contains("1 to 1000 characters"), "\(unexplained.errors)")
      let again = try await run(
        ["retry", "\(id)", "--reason", "It can be read now.", "--by", "ops"])
      #expect(again.output == "retried  1\n", "\(again.errors)")
      #expect(try await ledger.jobs.jobs(named: "n1", at: .now).map(\.state) == [.due])
      let nothing = try await run(["retry", "--all"])
      #expect(nothing.status == 0)
      #expect(nothing.output == "retried  0\n")
      let actions = try await ledger.administration.administratorActions(limit: 10)
      #expect(actions.map(\.action) == ["retry_jobs"])
      #expect(actions.first?.administrator == "cli:ops")
      #expect(actions.first?.reason == "It can be read now.")
    }
  }

  @Test("starts again by kind, and says what it does not understand")
  func kinds() async throws {
    try await withParkedJob { ledger, run in
      // swift-format-ignore
      let wrong: [([String], String)] = [
        (["retry"],                                "--kind"),
        (["retry", "1", "--all"],                  "--kind"),
        (["retry", "--kind", "no_such_kind"],      "process_notification"),
        (["list", "--kind", "no_such_kind"],       "process_notification"),
        (["retry", "n2"],                          "no job"),
        (["show", "n2"],                           "n2"),
      ]
      for (arguments, named) in wrong {
        let outcome = try await run(arguments)
        #expect(outcome.status != 0, "\(arguments)")
        #expect(outcome.output.isEmpty, "\(arguments)")
        #expect(outcome.errors.contains(named), "\(arguments): \(outcome.errors)")
      }
      let others = try await run(["retry", "--kind", "verify_submission"])
      #expect(others.output == "retried  0\n")
      let all = try await run(["retry", "--kind", "process_notification"])
      #expect(all.output == "retried  1\n", "\(all.errors)")
      // A reason is optional.
      let actions = try await ledger.administration.administratorActions(limit: 10)
      #expect(actions.map(\.reason) == [nil])
      #expect(actions.first?.administrator.hasPrefix("cli") == true)
    }
  }
}
