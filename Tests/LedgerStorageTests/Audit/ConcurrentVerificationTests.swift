import Foundation
import Postgres
import Subscriptions
import Testing

@testable import LedgerStorage

/// A server and a worker, or two workers, ask Apple about one submission at the same time: each has
/// read it before the other wrote.
@Suite("One submission, verified by two processes")
struct ConcurrentVerificationTests {
  private let waiting = SubmissionProblem(code: "apple_unavailable", detail: "No answer came.")

  @Test("keeps every answer of Apple's, in any order of writing")
  func exchanges() async throws {
    try await withLedger { ledger in
      let submission = try await ledger.store(by: "anna", on: 0.1)
      try await ledger.submissions.postpone(
        submission, until: day(0.2), because: waiting, exchanges: [exchange("none")], worker: nil,
        terms: .everything,
        at: day(0.1))
      let recorded = try await ledger.verify(
        submission, [charge("1", on: 0)], claiming: [key("1")], on: 0.3,
        exchanges: [exchange("redirected"), exchange("decisive")])
      #expect(recorded != nil)
      #expect(try await ledger.answers(to: submission) == ["none", "redirected", "decisive"])
      #expect(try await ledger.submissions.submission(submission.id)?.attempts == 2)
    }
  }

  @Test("a rejection gives way to Apple's answer for the receipt")
  func rejectedThenVerified() async throws {
    try await withLedger { ledger in
      let submission = try await ledger.store(by: "anna", on: 0.1)
      try await ledger.submissions.reject(
        submission, because: SubmissionProblem(code: "receipt_rejected", detail: "21003"),
        exchanges: [exchange("refused")], terms: .everything, at: day(0.2))
      let recorded = try await ledger.verify(
        submission, [charge("1", on: 0)], claiming: [key("1")], on: 0.3,
        exchanges: [exchange("verified")])
      #expect(recorded != nil)
      let stored = try await ledger.submissions.submission(submission.id)
      #expect(stored?.status == .verified)
      #expect(stored?.problem == nil)
      #expect(try await ledger.owner(of: "1") == "anna")
      #expect(try await ledger.answers(to: submission) == ["refused", "verified"])
    }
  }

  @Test("a later rejection or failure changes nothing, and its exchange is kept")
  func verifiedThenRejected() async throws {
    try await withLedger { ledger in
      let submission = try await ledger.store(by: "anna", on: 0.1)
      try await ledger.verify(submission, [charge("1", on: 0)], claiming: [key("1")], on: 0.2)
      try await ledger.submissions.reject(
        submission, because: SubmissionProblem(code: "receipt_rejected", detail: "21003"),
        exchanges: [exchange("refused")], terms: .everything, at: day(0.3))
      try await ledger.submissions.postpone(
        submission, until: day(0.5), because: waiting, exchanges: [exchange("none")], worker: nil,
        terms: .everything,
        at: day(0.4))
      let stored = try await ledger.submissions.submission(submission.id)
      #expect(stored?.status == .verified)
      #expect(stored?.isOpen == false)
      #expect(try await ledger.answers(to: submission) == ["refused", "none"])
    }
  }

  @Test("the second verification is evidence and no claim, and the first answer stands")
  func verifiedTwice() async throws {
    try await withLedger { ledger in
      let submission = try await ledger.store(by: "anna", on: 0.1)
      let first = try await ledger.verify(
        submission, [charge("1", on: 0)], claiming: [key("1")], on: 0.2,
        exchanges: [exchange("first")])
      #expect(first != nil)
      let second = try await ledger.verify(
        submission,
        [charge("1", on: 0), charge("7", on: 0, line: OriginalTransactionKey(.production, "7"))],
        claiming: [key("7", line: OriginalTransactionKey(.production, "7"))], on: 0.3,
        exchanges: [exchange("second")])
      #expect(second == nil)
      let outcome = try #require(try await ledger.submissions.submission(submission.id)?.outcome)
      let answer = try JSONDecoder().decode(SubmissionOutcome.self, from: Data(outcome.utf8))
      #expect(answer.selected == [key("1")] && answer.newlyOwned == [key("1")])
      #expect(try await ledger.answers(to: submission) == ["first", "second"])
      // It is known and unclaimed.
      let original = try #require(
        try await ledger.ownership.original(of: OriginalTransactionKey(.production, "7")))
      #expect(original.rule.charges.count == 1)
      #expect(
        try await ledger.owner(of: "7", line: OriginalTransactionKey(.production, "7")) == nil)
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("a transaction that is looked for again is, though the submission was rejected before")
  func rejectedThenLookingAgain() async throws {
    try await withLedger { ledger in
      let submission = try await ledger.store(by: "anna", on: 0.1)
      try await ledger.submissions.reject(
        submission, because: SubmissionProblem(code: "receipt_rejected", detail: "21003"),
        exchanges: [], terms: .everything, at: day(0.2))
      let recorded = try await ledger.submissions.record(
        SubmissionStore.VerifiedSubmission(
          submission: submission, source: .receipt, environment: .production,
          evidence: [charge("1", on: 0)], selected: [], exchanges: [], lookAgainAt: day(0.4)),
        at: day(0.3), terms: .everything)
      #expect(recorded != nil)
      let jobs = try await ledger.claimJobs(
        limit: 10, worker: "w", at: day(0.4), lease: .seconds(60))
      #expect(jobs.map(\.key) == [.verifySubmission(submission.id)])
    }
  }
}

extension Ledger {
  fileprivate func answers(to submission: Submission) async throws -> [String] {
    try await submissions.exchanges(of: submission.id).map {
      String(decoding: $0.answer ?? [], as: UTF8.self)
    }
  }
}
