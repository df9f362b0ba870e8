import Foundation
import Postgres
package import Subscriptions

extension Ledger {
  /// Tells an account what time has changed: access that ended or began.
  ///
  /// What is told and the end of the job are one commit, so that it is told exactly once; the job
  /// comes again when time changes something next.
  ///
  /// - Parameters:
  ///   - job: Its task is ``Job/Task/tellAccount(_:)``.
  ///   - terms: By what it is judged what accounts may use.
  ///   - now: The moment.
  /// - Throws: What the database says.
  package func tell(_ job: Job, terms: AccessTerms, at now: Timestamp) async throws {
    guard case .tellAccount(let key) = job.task else {
      preconditionFailure("The job is to tell an account.")
    }
    let channels = try await database.withTransaction { transaction in
      let told = try await lockTold([key], in: transaction)
        .map { AccountNews($0, terms: terms, at: now) }
      let consequences = Consequences(told, rescheduling: [], at: now)
      let end =
        told.first?.nextChange.map { job.repetition(at: $0, now: now) } ?? job.completion
      try await transaction.commit(with: consequences.statements + end)
      return consequences.channels
    }
    bell.ring(channels)
  }
}
