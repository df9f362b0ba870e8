import Foundation
import Postgres
package import Subscriptions

/// The inbox: what Apple sends without being asked.
extension Ledger {
  /// Stores a notification durably, unless it is stored already.
  ///
  /// - Parameters:
  ///   - new: What arrived.
  ///   - processAt: When a worker takes it up, unless it is processed before; nil: there is nothing
  ///     in it to process.
  /// - Returns: False if it is a repetition.
  /// - Throws: What the database says.
  package func store(_ new: NewNotification, processAt: Timestamp?) async throws -> Bool {
    let outcome = processAt == nil ? NotificationOutcome.nothingToRecord : nil
    if let environment = new.environment { notificationMemory.note(environment) }
    let insert: SQL = """
      INSERT INTO tenure.notification (notification_id, version, received_at, body,
        notification_type, subtype, environment, bundle_id, original_transaction_id,
        transaction_id, signed_at, arrival, processed_at, outcome)
      VALUES (\(new.id), \(new.version.rawValue), \(new.receivedAt), \(new.body),
        \(new.notificationType), \(new.subtype), \(new.environment), \(new.bundleID),
        \(new.originalTransactionID), \(new.transactionID), \(new.signedAt),
        \(new.arrival), \(outcome == nil ? nil : new.receivedAt), \(outcome))
      ON CONFLICT (notification_id) DO NOTHING
      """
    guard let processAt else { return try await database.execute(insert) > 0 }
    let key = Job.Key.processNotification(new.id)
    // A repetition of what is processed gets no job.
    let results = try await database.batch([
      insert,
      """
      INSERT INTO tenure.job (kind, subject, queue, run_at, created_at)
      SELECT \(key.kind), notification_id, \(key.queue), \(processAt), \(new.receivedAt)
      FROM tenure.notification WHERE notification_id = \(new.id) AND processed_at IS NULL
      ON CONFLICT (kind, subject) DO NOTHING
      """,
    ])
    bell.ring(forJobAt: processAt, now: new.receivedAt)
    return results[0].affectedRows > 0
  }

  /// Finds a notification; nil if there is none of this id.
  package func notification(_ id: String) async throws -> StoredNotification? {
    let rows = try await database.query(
      """
      SELECT version, received_at, coalesce(body, ''), notification_type, bundle_id, attempts,
        outcome, problem
      FROM tenure.notification WHERE notification_id = \(id)
      """)
    guard
      let (version, receivedAt, body, type, bundleID, attempts, outcome, problem) =
        try rows.decodeFirst(
          Int.self, Timestamp.self, String.self, String?.self, String?.self, Int.self,
          NotificationOutcome?.self, String?.self)
    else { return nil }
    guard let version = NotificationVersion(rawValue: version) else {
      preconditionFailure("The table has no other versions.")
    }
    return StoredNotification(
      id: id, version: version, receivedAt: receivedAt, body: body, notificationType: type,
      bundleID: bundleID, attempts: attempts, outcome: outcome, problem: problem)
  }

  /// The exchanges with Apple about the receipt in a notification, in order.
  package func exchanges(ofNotification id: String) async throws -> [SubmissionExchange] {
    try await database.query(
      """
      SELECT \(SubmissionExchange.columns)
      FROM tenure.notification_exchange WHERE notification_id = \(id) ORDER BY number
      """
    ).decodeExchanges()
  }

  /// What Apple answered about it, where that is so short that it can be a status alone.
  package func shortAnswers(toNotification id: String) async throws
    -> [(askedAt: Timestamp, answer: [UInt8])]
  {
    try await database.query(
      """
      SELECT asked_at, answer FROM tenure.notification_exchange
      WHERE notification_id = \(id) AND octet_length(answer) <= 10000
      """
    ).decode(Timestamp.self, [UInt8].self).map { (askedAt: $0, answer: $1) }
  }

  /// What a verified notification is recorded with.
  package struct VerifiedNotification: Sendable {
    package var id: String
    package var evidence: [Evidence]
    /// The app that it is about, and the receipt in it, if there is one.
    package var source: LineSource
    /// When auto-renew is said to have been switched off; used if the evidence bears it out.
    package var switchOff: ReportedSwitchOff?
    /// The exchanges with Apple that the evidence is from; none where Apple signed it.
    package var exchanges: [SubmissionExchange]
    /// What was wrong with it all the same.
    package var problem: String?
    /// The line of the purchase that it asks about, where Apple wants to know what became of one.
    package var asksAbout: LineID?

    package init(
      id: String, evidence: [Evidence], source: LineSource = LineSource(bundleID: nil),
      switchOff: ReportedSwitchOff? = nil,
      exchanges: [SubmissionExchange] = [], problem: String? = nil, asksAbout: LineID? = nil
    ) {
      self.id = id
      self.evidence = evidence
      self.source = source
      self.switchOff = switchOff
      self.exchanges = exchanges
      self.problem = problem
      self.asksAbout = asksAbout
    }
  }

  /// What processing a notification changed.
  package struct ProcessedNotification: Sendable {
    package let outcome: NotificationOutcome
    package let recording: Recording
  }

  /// Records a verified notification: evidence, decisions, holdings, orders, and that it is
  /// processed, all in one database transaction.
  ///
  /// The inbox's row is locked first, so that it is done once, however many processes are at it.
  ///
  /// - Parameters:
  ///   - verified: What it says.
  ///   - now: The recording date.
  ///   - terms: By what it is judged what accounts may use.
  /// - Returns: What came of it; nil if it was processed before, by another process.
  /// - Throws: What the database says.
  package func process(
    _ verified: VerifiedNotification, at now: Timestamp,
    terms: AccessTerms
  ) async throws -> ProcessedNotification? {
    // Two round trips: everything that is read, then everything that is written.
    let processed = try await database.withTransaction { transaction -> ProcessedNotification? in
      var (locked, before, _) = try await lock(
        linesOf: verified.evidence, before: NotificationStanding.lock(verified.id),
        in: transaction)
      guard let standing = try NotificationStanding(from: before) else {
        await transaction.rollBack()
        return nil
      }
      if let switchOff = verified.switchOff, let evidence = locked.evidence(of: switchOff) {
        locked.evidence.append(evidence)
      }
      var (recording, writes, isNews) = try await recordUnclaimed(
        verified.evidence, from: EntrySource(.notification, id: verified.id), on: locked, at: now,
        terms: terms, in: transaction)
      let tellings = consumptionTellings(of: verified, at: now)
      if !tellings.isEmpty { recording.channels.insert(.jobs) }
      let outcome: NotificationOutcome =
        verified.evidence.isEmpty ? .nothingToRecord : isNews ? .recorded : .known
      try await transaction.commit(
        with: writes + verified.source.upsert(for: verified.evidence)
          + Self.insert(
            verified.exchanges, ofNotification: verified.id, after: standing.lastExchange)
          + Self.close(verified.id, as: outcome, because: verified.problem, at: now) + tellings)
      return ProcessedNotification(outcome: outcome, recording: recording)
    }
    if let processed {
      bell.ring(processed.recording.channels)
      metrics.count(processed.recording)
    }
    return processed
  }

  /// Records that Apple does not vouch for the receipt in a notification.
  package func rejectNotification(
    _ id: String, because problem: String, exchanges: [SubmissionExchange], at now: Timestamp
  ) async throws {
    try await updateNotification(id, exchanges: exchanges) {
      Self.close(id, as: .rejected, because: problem, at: now)
    }
  }

  /// Records that Apple could not be asked about a notification, and when it will be asked again.
  ///
  /// `worker` has claimed the notification's job; nil: nobody has. Who has looks for its next job
  /// by itself.
  package func postponeNotification(
    _ id: String, until retryAt: Timestamp, because problem: String,
    exchanges: [SubmissionExchange], worker: String?
  ) async throws {
    try await updateNotification(id, exchanges: exchanges) {
      [
        """
        UPDATE tenure.notification SET attempts = attempts + 1, problem = \(problem.storedSentence)
        WHERE notification_id = \(id)
        """,
        Job.reschedule(.processNotification(id), of: worker, at: retryAt, because: problem),
      ]
    }
  }

  /// Changes a notification, unless it was processed meanwhile.
  private func updateNotification(
    _ id: String, exchanges: [SubmissionExchange], with statements: @Sendable () -> [SQL]
  ) async throws {
    try await database.withTransaction { transaction in
      let results = try await transaction.batch(NotificationStanding.lock(id))
      guard let standing = try NotificationStanding(from: results) else { return }
      try await transaction.commit(
        with: Self.insert(exchanges, ofNotification: id, after: standing.lastExchange)
          + statements())
    }
  }

  // MARK: Statements

  /// Marks a notification as processed, and takes its job out of the queue.
  private static func close(
    _ id: String, as outcome: NotificationOutcome, because problem: String?, at now: Timestamp
  ) -> [SQL] {
    [
      """
      UPDATE tenure.notification SET processed_at = \(now), outcome = \(outcome),
        attempts = attempts + 1, problem = \(problem?.storedSentence)
      WHERE notification_id = \(id)
      """,
      Job.delete(.processNotification(id)),
    ]
  }

  private static func insert(
    _ exchanges: [SubmissionExchange], ofNotification id: String, after lastNumber: Int
  ) -> [SQL] {
    exchanges.enumerated().map { index, exchange in
      """
      INSERT INTO tenure.notification_exchange (notification_id, number, endpoint, asked_at,
        duration_ms, http_status, answer, fault)
      VALUES (\(id), \(lastNumber + index + 1), \(exchange.endpoint), \(exchange.askedAt),
        \(exchange.duration.inMilliseconds), \(exchange.httpStatus), \(exchange.answer),
        \(exchange.fault))
      """
    }
  }
}

/// A notification that is still to be processed, by whoever holds its lock.
private struct NotificationStanding {
  /// The number of its last exchange; 0 for none.
  var lastExchange: Int

  /// The statements that lock a notification and then read it; ``init(from:)`` reads their results.
  static func lock(_ id: String) -> [SQL] {
    [
      """
      SELECT processed_at IS NOT NULL FROM tenure.notification WHERE notification_id = \(id)
      FOR UPDATE
      """,
      """
      SELECT coalesce(max(number), 0) FROM tenure.notification_exchange
      WHERE notification_id = \(id)
      """,
    ]
  }

  /// Nil if there is no such notification, or it is processed.
  init?(from results: [Rows]) throws {
    guard let isProcessed = try results[0].decodeFirst(Bool.self), !isProcessed else { return nil }
    lastExchange = try results[1].decodeOnly(Int.self)
  }
}

extension LockedLines {
  /// The evidence that a reported date makes once the rest is recorded; nil where it makes none.
  fileprivate func evidence(of report: ReportedSwitchOff) -> Evidence? {
    guard let family = families.first(where: { $0.members[report.line] != nil }) else {
      return nil
    }
    var line = family.line
    let known = evidence.filter { family.members[$0.line] != nil }
    // The entries are not kept: so their date does not matter.
    _ = line.record(known, at: family.lastRecordedAt ?? report.at)
    return line.evidence(of: report)
  }
}
