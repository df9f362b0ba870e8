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
  /// - Returns: The jobs that are still to be done, one by one: of several accounts none is waited
  ///   for, since whoever has locked it may wait for another of them.
  /// - Throws: What the database says.
  package func tell(
    _ jobs: [Job], terms: AccessTerms, at now: Timestamp
  ) async throws -> [Job] {
    let keys = jobs.map { job in
      guard case .tellAccount(let key) = job.task else {
        preconditionFailure("The job is to tell an account.")
      }
      return key
    }
    let (left, channels) = try await database.withTransaction { transaction in
      let (told, busy) = try await lockTold(
        Set(keys), waits: jobs.count == 1, in: transaction)
      let news = told.map { AccountNews($0, terms: terms, at: now) }
      let nextChanges = Dictionary(
        uniqueKeysWithValues: news.compactMap { news in news.nextChange.map { (news.key, $0) } })
      let consequences = Consequences(news, rescheduling: [], at: now)
      var (statements, ended, left) = (consequences.statements, [Job](), [Job]())
      for (job, key) in zip(jobs, keys) {
        if busy.contains(key) {
          left.append(job)
        } else if let next = nextChanges[key] {
          statements += job.repetition(at: next, now: now)
        } else {
          ended.append(job)
        }
      }
      try await transaction.commit(with: statements + ended.completion)
      return (left, consequences.channels)
    }
    bell.ring(channels)
    return left
  }
}
