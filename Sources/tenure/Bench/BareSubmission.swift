import Foundation
import LedgerStorage
import Postgres
import Subscriptions

/// The limit of ``SubmissionBenchmark``: the statements that one submission sends, with values made
/// up, in as few round trips as there can be, and nothing of ours in between.
///
/// A test compares the rows that it leaves behind with those of a submission that was really taken.
struct BareSubmission: Sendable {
  let database: ConnectionPool
  let appStore: PreparedAppStore

  /// - Throws: `PostgresError`.
  @Sendable
  func perform(_ sample: SampleSubmission) async throws {
    let statements = BareStatements(
      sample, answer: appStore.answer(about: sample), at: .now)
    try await database.batch(statements.store)
    try await database.withTransaction { transaction in
      try await transaction.batch(statements.load)
      try await transaction.commit(with: statements.write + statements.answer)
    }
  }
}
