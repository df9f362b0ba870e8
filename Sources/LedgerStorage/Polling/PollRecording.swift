import Postgres
package import Subscriptions

extension PollStore {
  /// Records an answer of Apple's to a poll, in one database transaction.
  ///
  /// - Parameters:
  ///   - id: The poll, as the source of the entries.
  ///   - asked: What Apple was asked about: it is scheduled again, and its job ends.
  ///   - revision: How far a customer's history was read; nil where none was.
  package func record(
    _ evidence: [Evidence], polledAs id: String, about asked: PolledOriginalTransaction? = nil,
    upTo revision: HistoryRevision? = nil, at now: Timestamp, terms: AccessTerms
  ) async throws -> Recording {
    let arrival = EvidenceBatch(evidence: evidence, source: EntrySource(.poll, id: id))
    return try await database.withTransaction { transaction in
      let recording = try await recorder.load(arrival, in: transaction).decide(at: now)
      let plan = try await recorder.plan(
        recording, terms: terms, at: now, polled: asked?.line, in: transaction)
      var statements = plan.statements + (revision.map { [$0.upsert] } ?? [])
      if let asked {
        statements += PollTarget(bundleID: asked.bundleID).upsert(for: evidence)
        statements += try await replanning(asked, after: recording, at: now, in: transaction)
      }
      announce(plan.channels, recording, after: transaction)
      try await transaction.commit(with: statements)
      return recording
    }
  }

  /// The latest revision of one of Apple's histories, read with an original transaction's id.
  package func historyRevision(
    of line: OriginalTransactionKey, in history: HistoryRevision.History = .transactions
  ) async throws -> String? {
    try await database.query(
      """
      SELECT revision FROM tenure.history_revision
      WHERE \(line.condition) AND history = \(history)
      """
    ).decodeFirst(String.self)
  }
}

/// The position up to which one of Apple's histories was read.
package struct HistoryRevision: Hashable, Sendable {
  package enum History: String, PostgresEncodable, Sendable {
    /// All purchases of a customer.
    case transactions
    /// Refunds and revocations.
    case refunds
  }

  package var history: History
  /// The original transaction that the request named.
  package var line: OriginalTransactionKey
  package var revision: String

  package init(_ history: History = .transactions, line: OriginalTransactionKey, revision: String) {
    (self.history, self.line, self.revision) = (history, line, revision)
  }

  /// The statement that stores it; of two concurrent polls the last commit wins.
  fileprivate var upsert: SQL {
    """
    INSERT INTO tenure.history_revision AS known (environment, original_transaction_id, history,
      revision)
    VALUES (\(line.environment), \(line.originalTransactionID), \(history), \(revision))
    ON CONFLICT (environment, original_transaction_id, history)
    DO UPDATE SET revision = excluded.revision WHERE known.revision <> excluded.revision
    """
  }
}

extension Recording {
  /// The original transactions (linked: one) whose charge, owner, refund or renewal changed.
  package var changedOriginals: Int { distinctOriginals.count(where: \.isChanged) }
}

extension RecordedOriginalTransaction {
  /// Whether anything but the date of Apple's status changed.
  fileprivate var isChanged: Bool {
    guard !items.isEmpty else { return false }
    if !changes.isEmpty || !revocationChanges.isEmpty { return true }
    var summary = OriginalTransactionState(line: line, rule: rule)
    var known = OriginalTransactionState(line: before.line, rule: before.rule)
    (summary.statusAsOf, known.statusAsOf) = (nil, nil)
    return summary != known
  }
}
