import Foundation
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import LedgerStorage

struct JobTests {
  /// Runs a test with a submission whose job is due at the start.
  private func withJob(
    _ test: @Sendable (Ledger, Submission) async throws -> Void
  ) async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      let submission = try await ledger.submissions.store(
        ledger.submissions.new(
          id: UUID(), accountID: "4711", receivedAt: start, payload: .receipt("receipt"),
          transactionID: nil, orderID: nil, isRestore: false, bundleID: nil,
          retryAt: start))
      try await test(ledger, submission)
    }
  }

  private func holder(_ ledger: Ledger) async throws -> String? {
    try await ledger.database.query("SELECT locked_by FROM tenure.job").decodeFirst(String?.self)
      ?? nil
  }

  @Test func `a late worker leaves alone what another has claimed since`() async throws {
    try await withJob { ledger, submission in
      let late = try #require(
        try await ledger.claimJobs(limit: 1, worker: "a", at: start, lease: .seconds(60)).first)
      #expect(late.createdAt == start)
      let later = start + .minutes(2)
      let job = try #require(
        try await ledger.claimJobs(limit: 1, worker: "b", at: later, lease: .seconds(60)).first)

      try await ledger.jobs.release(late, until: later, because: "late")
      try await ledger.jobs.complete(late)
      #expect(try await !ledger.jobs.discard(late, because: "late", at: later))
      let problem = SubmissionProblem(code: "apple_unavailable", detail: "late")
      for worker in ["a", nil] {
        try await ledger.submissions.postpone(
          submission, until: later, because: problem, exchanges: [], worker: worker,
          terms: .everything, at: later)
      }
      #expect(try await holder(ledger) == "b")

      try await ledger.jobs.release(job, until: later, because: "in time")
      #expect(try await holder(ledger) == nil)
      let again = try #require(
        try await ledger.claimJobs(limit: 1, worker: "b", at: later, lease: .seconds(60)).first)
      try await ledger.jobs.complete(again)
      let left = try await ledger.database.query("SELECT count(*) FROM tenure.job")
      #expect(try left.decodeOnly(Int.self) == 0)
    }
  }

  @Test func `a parked job is not claimed, and its submission has no next attempt`() async throws {
    try await withJob { ledger, submission in
      let job = try #require(
        try await ledger.claimJobs(limit: 1, worker: "a", at: start, lease: .seconds(60)).first)
      let reason = "why\u{0}" + String(repeating: "y", count: 2000)
      #expect(try await ledger.jobs.discard(job, because: reason, at: start))
      let later = start + .days(1)
      #expect(
        try await ledger.claimJobs(limit: 1, worker: "a", at: later, lease: .seconds(60)).isEmpty)
      #expect(try await ledger.submissions.submission(submission.id)?.retryAt == nil)
      let error = try await ledger.database.query("SELECT last_error FROM tenure.job")
      #expect(try error.decodeOnly(String.self).hasPrefix("whyyy"))

      #expect(try await ledger.jobs.restartJobs(.allDiscarded, at: later) == 1)
      #expect(try await ledger.submissions.submission(submission.id)?.retryAt == later)
      let restarted = try #require(
        try await ledger.claimJobs(limit: 1, worker: "a", at: later, lease: .seconds(60)).first)
      #expect(restarted.key == job.key)
      #expect(restarted.createdAt == later)
      #expect(restarted.attempts == 1)
    }
  }
}
