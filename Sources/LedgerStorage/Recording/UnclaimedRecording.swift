import Postgres
package import Subscriptions

/// Recordings of evidence that no account claims.
extension Ledger {
  package struct UnclaimedRecording: Sendable {
    package let recording: Recording
    /// False where everything was known.
    package var isNews: Bool { recording.isNews }
    /// The number of original transactions, each with those that Apple links, on which a charge, an
    /// owner, a refund or the renewal changed.
    package var changedFamilies: Int { recording.distinctFamilies.count(where: \.isChanged) }
  }

  /// Records an answer of Apple's to a poll, in one database transaction.
  ///
  /// - Parameters:
  ///   - id: The poll, as the source of the entries.
  ///   - asked: The original transaction that Apple was asked about, which is scheduled again and
  ///     whose job ends; nil where it was none.
  ///   - revision: How far a customer's history was read; nil where none was.
  package func record(
    _ evidence: [Evidence], polledAs id: String, about asked: AskedLine? = nil,
    upTo revision: HistoryRevision? = nil, at now: Timestamp, terms: AccessTerms
  ) async throws -> UnclaimedRecording {
    let arrival = Arrival(evidence: evidence, source: EntrySource(.poll, id: id))
    let (recording, channels) = try await database.withTransaction { transaction in
      let recording = try await load(arrival, in: transaction).decide(arrival, at: now)
      let plan = try await plan(recording, terms: terms, at: now, in: transaction)
      var statements = plan.statements + (revision.map { [$0.upsert(at: now)] } ?? [])
      if let asked {
        statements += LineSource(bundleID: asked.bundleID).upsert(for: evidence)
        statements += try await replanning(asked, after: recording, at: now, in: transaction)
      }
      try await transaction.commit(with: statements)
      return (recording, plan.channels)
    }
    bell.ring(channels)
    metrics.count(recording)
    return UnclaimedRecording(recording: recording)
  }

  /// The last revision of one of Apple's histories that was read with a line's id; nil if none was.
  package func historyRevision(
    of line: LineID, in history: HistoryRevision.History = .transactions
  ) async throws -> String? {
    try await database.query(
      """
      SELECT revision FROM tenure.history_revision
      WHERE environment = \(line.environment)
        AND original_transaction_id = \(line.originalTransactionID)
        AND history = \(history)
      """
    ).decodeFirst(String.self)
  }

}

/// How far one of Apple's histories was read.
package struct HistoryRevision: Hashable, Sendable {
  /// The histories that have revisions.
  package enum History: String, Sendable {
    /// Everything that a customer bought.
    case transactions
    /// What of it was refunded or revoked.
    case refunds
  }

  package var history: History
  /// The one that Apple was asked with.
  package var line: LineID
  /// Apple's word for it.
  package var revision: String

  package init(_ history: History = .transactions, line: LineID, revision: String) {
    self.history = history
    self.line = line
    self.revision = revision
  }

  /// Of two polls at once the later one to commit stays: at worst something is read twice.
  fileprivate func upsert(at now: Timestamp) -> SQL {
    """
    INSERT INTO tenure.history_revision (environment, original_transaction_id, history, revision,
      polled_at)
    VALUES (\(line.environment), \(line.originalTransactionID), \(history), \(revision),
      \(now))
    ON CONFLICT (environment, original_transaction_id, history)
    DO UPDATE SET revision = EXCLUDED.revision, polled_at = EXCLUDED.polled_at
    """
  }
}

extension HistoryRevision.History: PostgresEncodable {}

extension RecordedFamily {
  /// Whether anything but the date of Apple's word is otherwise than before.
  fileprivate var isChanged: Bool {
    guard !entries.isEmpty else { return false }
    if !changes.isEmpty || !revocationChanges.isEmpty { return true }
    var summary = LineSummary(line: line, rule: rule)
    var known = LineSummary(line: before.line, rule: before.rule)
    (summary.statusAsOf, known.statusAsOf) = (nil, nil)
    return summary != known
  }
}
