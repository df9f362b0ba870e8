import Foundation
import Postgres
package import Subscriptions

package struct NotificationStore: LedgerStore {
  package let core: LedgerCore

  /// Stores a notification durably; false for a duplicate.
  ///
  /// - Parameter processAt: When a worker processes it unless it was processed before; nil if there
  ///   is nothing to process.
  package func store(_ new: NewNotification, processAt: Timestamp?) async throws -> Bool {
    let body = Self.body(of: new)
    if let environment = new.environment { notificationMemory.note(environment) }
    let insert = Self.insert(
      new, body, as: processAt == nil ? .nothingToRecord : nil, at: new.receivedAt)
    let isNew = try await database.withTransaction { transaction in
      let isNew = try await transaction.batch([body.store, insert])[1].affectedRows > 0
      // A duplicate has its job already, or was processed.
      if isNew, let processAt {
        try await transaction.commit(with: [
          Job.insert(.processNotification(new.id), runAt: processAt, at: new.receivedAt)
        ])
      }
      return isNew
    }
    if let processAt { notifier.notify(forJobAt: processAt, now: new.receivedAt) }
    if !isNew {
      // Apple may have signed the duplicate again: its body would belong to no notification.
      _ = try await database.query("SELECT tenure.delete_bodies(\([body.digest]))")
    }
    return isNew
  }

  package func notification(_ id: String) async throws -> StoredNotification? {
    let row = try await database.query(
      """
      SELECT version, received_at, body_sha256, notification_type, bundle_id, attempts, outcome,
        problem
      FROM tenure.notification WHERE notification_id = \(id)
      """
    ).decodeFirst(
      NotificationVersion.self, Timestamp.self, [UInt8].self, String?.self, String?.self,
      Int.self, NotificationOutcome?.self, String?.self)
    guard let (version, receivedAt, digest, type, bundleID, attempts, outcome, problem) = row else {
      return nil
    }
    return StoredNotification(
      id: id, version: version, receivedAt: receivedAt,
      body: try await database.body(digest)?.text ?? "", notificationType: type,
      bundleID: bundleID, attempts: attempts, outcome: outcome, problem: problem)
  }

  package func exchanges(ofNotification id: String) async throws -> [SubmissionExchange] {
    try await ExchangeLog.of(notification: id).exchanges(in: database)
  }

  package func shortAnswers(toNotification id: String) async throws -> [ShortAnswer] {
    try await ExchangeLog.of(notification: id).shortAnswers(in: database)
  }

  package struct VerifiedNotification: Sendable {
    package var id: String
    package var evidence: [Evidence]
    /// The notification's app and receipt.
    package var source: PollTarget
    /// The reported date on which auto-renew was turned off; used if the evidence confirms it.
    package var switchOff: AutoRenewOffDate?
    /// The exchanges with Apple that returned the evidence; empty if Apple signed it.
    package var exchanges: [SubmissionExchange]
    /// A problem that did not prevent verification.
    package var problem: String?
    /// The original transaction of a consumption request.
    package var asksAbout: OriginalTransactionKey?

    package init(
      id: String, evidence: [Evidence], source: PollTarget = PollTarget(bundleID: nil),
      switchOff: AutoRenewOffDate? = nil, exchanges: [SubmissionExchange] = [],
      problem: String? = nil, asksAbout: OriginalTransactionKey? = nil
    ) {
      (self.id, self.evidence, self.source, self.switchOff) = (id, evidence, source, switchOff)
      (self.exchanges, self.problem, self.asksAbout) = (exchanges, problem, asksAbout)
    }
  }

  /// Records a verified notification's evidence and its consequences, and marks it as processed.
  ///
  /// Locks it first, so that concurrent processes record it once.
  ///
  /// - Parameter new: One that has just arrived, stored in the same transaction; nil: it is stored.
  /// - Returns: Nil if another process has processed or stored it.
  package func process(
    _ verified: VerifiedNotification, storing new: NewNotification? = nil, at now: Timestamp,
    terms: AccessTerms
  ) async throws -> (outcome: NotificationOutcome, recording: Recording)? {
    let exchanges = verified.exchanges.map(NewExchange.init)
    let body = new.map(Self.body)
    // Two round trips: all reads, then all writes.
    return try await database.withTransaction { transaction in
      var (originals, evidence, attempts, isStored) = try await recorder.lock(
        linesOf: verified.evidence,
        before: new == nil ? Self.lock(verified.id) : Query([]).map { 0 },
        after: new == nil ? Query([]).map { false } : Self.isStored(verified.id), in: transaction)
      guard let attempts, !isStored else {
        await transaction.rollBack()
        return nil
      }
      if let report = verified.switchOff,
        let original = originals.first(where: { $0.members[report.line] != nil }),
        let status = original.line.evidence(
          of: report, knowing: evidence.filter { original.members[$0.line] != nil })
      {
        evidence.append(status)
      }
      let arrival = EvidenceBatch(
        evidence: evidence, source: EntrySource(.notification, id: verified.id))
      let recording = try await recorder.load(arrival, on: originals, in: transaction)
        .decide(at: now)
      let plan = try await recorder.plan(recording, terms: terms, at: now, in: transaction)
      let writeBackJobs = writeBacks.consumptionWriteBacks(of: verified, at: now)
      let exchanges = try await ExchangeLog.of(notification: verified.id).insert(
        exchanges, after: attempts, in: transaction)
      let outcome: NotificationOutcome =
        verified.evidence.isEmpty ? .nothingToRecord : recording.isChanged ? .recorded : .known
      announce(
        plan.channels.union(writeBackJobs.isEmpty ? [] : [.jobs]), recording, after: transaction)
      if let environment = new?.environment {
        transaction.afterCommit { [notificationMemory] in notificationMemory.note(environment) }
      }
      try await transaction.commit(
        with: plan.statements + verified.source.upsert(for: verified.evidence)
          + exchanges
          + (new.flatMap { new in body.map { Self.store(new, $0, as: outcome, at: now) } }
            ?? Self.close(verified.id, as: outcome, because: verified.problem, at: now))
          + writeBackJobs)
      return (outcome, recording)
    }
  }

  /// Marks a notification as rejected: Apple did not verify its receipt.
  package func rejectNotification(
    _ id: String, because problem: String, exchanges: [SubmissionExchange], at now: Timestamp
  ) async throws {
    try await updateNotification(id, exchanges: exchanges) {
      Self.close(id, as: .rejected, because: problem, at: now)
    }
  }

  /// Postpones a notification that could not be verified with Apple.
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

  /// Updates a notification unless it was processed concurrently.
  private func updateNotification(
    _ id: String, exchanges: [SubmissionExchange], with statements: @Sendable () -> [SQL]
  ) async throws {
    let exchanges = exchanges.map(NewExchange.init)
    try await database.withTransaction { transaction in
      guard let attempts = try await transaction.read(Self.lock(id)) else { return }
      let exchanges = try await ExchangeLog.of(notification: id).insert(
        exchanges, after: attempts, in: transaction)
      try await transaction.commit(with: exchanges + statements())
    }
  }

  // MARK: Statements

  private static func body(of new: NewNotification) -> NewBody {
    NewBody(Array(new.body.utf8), at: new.receivedAt, leavingOut: new.chains.map(ChainHeader.init))
  }

  private static func store(
    _ new: NewNotification, _ body: NewBody, as outcome: NotificationOutcome, at now: Timestamp
  ) -> [SQL] {
    [body.store, insert(new, body, as: outcome, at: now, attempts: 1)]
  }

  private static func insert(
    _ new: NewNotification, _ body: NewBody, as outcome: NotificationOutcome?, at now: Timestamp,
    attempts: Int = 0
  ) -> SQL {
    """
    INSERT INTO tenure.notification (notification_id, version, received_at, body_sha256,
      notification_type, subtype, environment, bundle_id, original_transaction_id,
      transaction_id, signed_at, arrival, processed_at, outcome, attempts)
    VALUES (\(new.id), \(new.version.rawValue), \(new.receivedAt), \(body.digest),
      \(new.notificationType), \(new.subtype), \(new.environment), \(new.bundleID),
      \(new.originalTransactionID), \(new.transactionID), \(new.signedAt),
      \(new.arrival), \(outcome == nil ? nil : now), \(outcome), \(attempts))
    ON CONFLICT (notification_id) DO NOTHING
    """
  }

  private static func isStored(_ id: String) -> Query<Bool> {
    Query("SELECT FROM tenure.notification WHERE notification_id = \(id)") { $0.count > 0 }
  }

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

  /// Locks a notification and reads its attempts; nil if it is unknown or processed.
  private static func lock(_ id: String) -> Query<Int?> {
    Query(
      """
      SELECT processed_at IS NOT NULL, attempts FROM tenure.notification
      WHERE notification_id = \(id)
      FOR UPDATE
      """
    ) {
      try $0.decodeFirst(Bool.self, Int.self).flatMap { isProcessed, attempts in
        isProcessed ? nil : attempts
      }
    }
  }
}
