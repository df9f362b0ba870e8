import Foundation
import Postgres
package import Subscriptions

extension Ledger {
  /// Tells accounts what time has changed: access that ended or began.
  ///
  /// What is told and the ends of the jobs are one commit, so that it is told exactly once; a job
  /// comes again when time changes something next.
  ///
  /// - Parameters:
  ///   - jobs: Claimed by one worker; the task of each is ``Job/Task/tellAccount(_:)``.
  ///   - terms: By what it is judged what accounts may use.
  ///   - now: The moment.
  /// - Throws: What the database says.
  package func tell(_ jobs: [Job], terms: AccessTerms, at now: Timestamp) async throws {
    let keys = jobs.map { job in
      guard case .tellAccount(let key) = job.task else {
        preconditionFailure("The job is to tell an account.")
      }
      return key
    }
    let channels = try await database.withTransaction { transaction in
      let told = try await lockTold(Set(keys), in: transaction)
        .map { AccountNews($0, terms: terms, at: now) }
      let nextChanges = Dictionary(
        uniqueKeysWithValues: told.compactMap { news in news.nextChange.map { (news.key, $0) } })
      let ended = zip(jobs, keys).filter { nextChanges[$1] == nil }.map(\.0)
      let ends = zip(jobs, keys).flatMap { job, key in
        nextChanges[key].map { job.repetition(at: $0, now: now) } ?? []
      }
      let consequences = Consequences(told, rescheduling: [], at: now)
      try await transaction.commit(with: consequences.statements + ended.completion + ends)
      return consequences.channels
    }
    bell.ring(channels)
  }
}
