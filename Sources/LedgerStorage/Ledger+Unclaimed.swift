import Postgres
package import Subscriptions

/// What Apple says and nobody submits: evidence without a claim.
extension Ledger {
  /// What recording something that nobody claims came to.
  package struct UnclaimedRecording: Sendable {
    /// The families of lines that it is about, as they are now, with what changed.
    package let recording: Recording
    /// False where everything was known.
    package let isNews: Bool
  }

  /// Records what Apple answered to a poll: evidence, decisions, holdings and orders, all in one
  /// database transaction.
  ///
  /// - Parameters:
  ///   - evidence: What was verified.
  ///   - id: Names the poll in the entries' source.
  ///   - revision: How far the transaction history was read by it, of which line's customer; nil
  ///     where none was.
  ///   - now: The recording date.
  ///   - terms: By what it is judged what accounts may use.
  /// - Returns: What it changed.
  /// - Throws: What the database says.
  package func record(
    _ evidence: [Evidence], polledAs id: String, upTo revision: HistoryRevision? = nil,
    at now: Timestamp, terms: AccessTerms
  ) async throws -> UnclaimedRecording {
    try await database.withTransaction { transaction in
      let locked = try await lock(linesOf: evidence, in: transaction).lines
      let (recording, writes, isNews) = try await recordUnclaimed(
        evidence, from: EntrySource(.poll, id: id), on: locked, at: now,
        terms: terms, in: transaction)
      try await transaction.commit(with: writes + (revision.map { [$0.upsert(at: now)] } ?? []))
      return UnclaimedRecording(recording: recording, isNews: isNews)
    }
  }

  /// The last revision of Apple's transaction history that was read with a line's id; nil if none
  /// was.
  package func historyRevision(of line: LineID) async throws -> String? {
    try await database.query(
      """
      SELECT revision FROM tenure.history_revision
      WHERE environment = \(line.environment)
        AND original_transaction_id = \(line.originalTransactionID)
        AND history = 'transactions'
      """
    ).decodeFirst(String.self)
  }

  /// Records evidence on lines that were locked, inside a transaction, and lets the charges that
  /// get an owner by it fulfil orders.
  ///
  /// - Parameters:
  ///   - evidence: What to record.
  ///   - source: Where it comes from.
  ///   - locked: The lines that it is about.
  ///   - now: The recording date, unless an entry of a line is as late already.
  ///   - terms: By what it is judged what accounts may use.
  ///   - transaction: The database transaction.
  /// - Returns: The families as they are now, the statements that write all of it, and whether any
  ///   of it is news.
  /// - Throws: What the database says.
  func recordUnclaimed(
    _ evidence: [Evidence], from source: EntrySource, on locked: LockedLines, at now: Timestamp,
    terms: AccessTerms, in transaction: Transaction
  ) async throws -> (recording: Recording, writes: [SQL], isNews: Bool) {
    let (recording, writes) = try await record(
      Arrival(evidence: evidence, source: source), on: locked, at: now, in: transaction)
    var orders = OrderMatching(recording: recording, terms: terms, now: now)
    try await orders.matchDecided(in: self, transaction)
    let consequences = try await consequences(
      of: recording, orders: orders.changes, terms: terms, at: now, in: transaction)
    return (recording, writes + orders.statements + consequences, !writes.isEmpty)
  }
}

/// How far Apple's transaction history was read.
package struct HistoryRevision: Hashable, Sendable {
  /// The one that Apple was asked with.
  package var line: LineID
  /// Apple's word for it.
  package var revision: String

  package init(line: LineID, revision: String) {
    self.line = line
    self.revision = revision
  }

  /// Of two polls at once the later one to commit stays: at worst something is read twice.
  fileprivate func upsert(at now: Timestamp) -> SQL {
    """
    INSERT INTO tenure.history_revision (environment, original_transaction_id, history, revision,
      polled_at)
    VALUES (\(line.environment), \(line.originalTransactionID), 'transactions', \(revision),
      \(now))
    ON CONFLICT (environment, original_transaction_id, history)
    DO UPDATE SET revision = EXCLUDED.revision, polled_at = EXCLUDED.polled_at
    """
  }
}
