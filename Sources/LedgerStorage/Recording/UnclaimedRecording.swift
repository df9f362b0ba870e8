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
    /// On how many lines or families of lines something is otherwise than before: a charge, an
    /// owner, a refund, or how it goes on.
    package var changedFamilies: Int { recording.distinctFamilies.count(where: \.isChanged) }
  }

  /// Records what Apple answered to a poll: evidence, decisions, holdings and orders, all in one
  /// database transaction.
  ///
  /// - Parameters:
  ///   - evidence: What was verified.
  ///   - id: Names the poll in the entries' source.
  ///   - asked: What Apple was asked about, whose plan is made anew and whose job ends with it; nil
  ///     where it was no line.
  ///   - revision: How far a history was read by it, of which line's customer; nil where none was.
  ///   - now: The recording date.
  ///   - terms: By what it is judged what accounts may use.
  /// - Returns: What it changed.
  /// - Throws: What the database says.
  package func record(
    _ evidence: [Evidence], polledAs id: String, about asked: AskedLine? = nil,
    upTo revision: HistoryRevision? = nil, at now: Timestamp, terms: AccessTerms
  ) async throws -> UnclaimedRecording {
    let recorded = try await database.withTransaction { transaction in
      let locked = try await lock(linesOf: evidence, in: transaction).lines
      let (recording, writes, isNews) = try await recordUnclaimed(
        evidence, from: EntrySource(.poll, id: id), on: locked, at: now,
        terms: terms, in: transaction)
      var statements = writes + (revision.map { [$0.upsert(at: now)] } ?? [])
      if let asked {
        statements += LineSource(bundleID: asked.bundleID).upsert(for: evidence)
        statements += try await replanning(asked, after: recording, at: now, in: transaction)
      }
      try await transaction.commit(with: statements)
      return UnclaimedRecording(recording: recording, isNews: isNews)
    }
    bell.ring(recorded.recording.channels)
    metrics.count(recorded.recording)
    return recorded
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
    var (recording, writes) = try await record(
      Arrival(evidence: evidence, source: source), on: locked, catalogue: terms.catalogue, at: now,
      in: transaction)
    var orders = OrderMatching(recording: recording, terms: terms, now: now)
    try await orders.matchDecided(in: self, transaction)
    let consequences = try await consequences(
      of: recording, orders: orders.changes, terms: terms, at: now, in: transaction)
    recording.channels = consequences.channels
    let isNews = !writes.isEmpty
    writes += orders.statements + consequences.statements
    return (recording, writes, isNews)
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
