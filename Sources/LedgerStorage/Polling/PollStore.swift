package import Foundation
import Postgres
package import Subscriptions
import Synchronization

/// The schedule of polls, and the recording of their results.
package struct PollStore: LedgerStore {
  package let core: LedgerCore

  // MARK: Planning

  /// Schedules the next polls of the recorded original transactions, in the recording's commit.
  ///
  /// - Parameter polled: One whose next poll ``replanning(_:after:at:in:)`` schedules.
  func appointments(
    of recording: Recording, except polled: OriginalTransactionKey?, at now: Timestamp
  ) -> [SQL] {
    recording.distinctOriginals.filter { !$0.items.isEmpty && $0.isPolledByPlan }.flatMap {
      original -> [SQL] in
      let next = nextPoll(of: original, at: now)
      // One poll covers linked original transactions: Apple returns the customer's statuses.
      let isNew = original.before.members.values.allSatisfy { $0.head.number == 0 }
      let others = isNew ? [] : original.before.members.keys.sorted().filter { $0 != next?.line }
      if let polled, original.line.heads[polled] != nil {
        return others.filter { $0 != polled }.map { Job.delete(.pollStatus($0)) }
      }
      return others.map { Job.delete(.pollStatus($0)) }
        + (next.map {
          [
            Job.schedule(
              .pollStatus($0.line), runAt: $0.poll.at, priority: $0.poll.priority, at: now)
          ]
        } ?? [])
    }
  }

  /// Schedules a poll of an original transaction that has none.
  func missingAppointments(of original: RecordedOriginalTransaction, at now: Timestamp) -> [SQL] {
    guard original.isPolledByPlan, let (line, poll) = nextPoll(of: original, at: now) else {
      return []
    }
    return [
      Job.insert(.pollStatus(line), runAt: poll.at, priority: poll.priority, at: max(now, poll.at))
    ]
  }

  private func nextPoll(
    of original: RecordedOriginalTransaction, at now: Timestamp
  ) -> (line: OriginalTransactionKey, poll: PollSchedule.Appointment)? {
    guard
      let plan = PollSchedule.Subject(
        original.line, original.rule, hasNotifications: notificationMemory.contains),
      let poll = PollSchedule.next(plan, after: now)
    else { return nil }
    return (plan.id, poll)
  }

  // MARK: Asking

  package struct PollRequest: Sendable {
    package let line: OriginalTransactionKey
    /// Whether the latest charge is auto-renewable; if not, only a refund can follow.
    package let isSubscription: Bool
    package let source: PollTarget
    package let imported: ImportStore.ImportedSource?
    package let isUnknown: Bool
  }

  /// Finds the identifiers to poll an original transaction with; nil if nothing is recorded.
  package func pollRequest(_ line: OriginalTransactionKey) async throws -> PollRequest? {
    try await database.withTransaction(isolation: .repeatableRead, readOnly: true) { transaction in
      guard let original = try await transaction.originals([line], locking: false).first else {
        return nil
      }
      let latest = original.rule.charges.latestCharge
      guard latest != nil || original.line.awaitsApple else { return nil }
      let members = [line] + original.members.keys.filter { $0 != line }.sorted()
      let (imported, source) = try await transaction.read(
        ImportStore.importedSource(of: line), PollTarget.query(members))
      return PollRequest(
        line: line, isSubscription: latest?.isSubscription ?? true, source: source,
        imported: imported, isUnknown: latest == nil)
    }
  }

  /// Whether one of the latest 1000 notifications is from an environment.
  package func hasNotifications(from environment: Environment) async throws -> Bool {
    if notificationMemory.contains(environment) { return true }
    let isKnown = try await database.query(
      """
      SELECT EXISTS (
        SELECT FROM (
          SELECT environment FROM tenure.notification ORDER BY received_at DESC LIMIT 1000
        ) AS latest
        WHERE environment = \(environment))
      """
    ).decodeOnly(Bool.self)
    if isKnown { notificationMemory.note(environment) }
    return isKnown
  }

  // MARK: After the response

  /// The polled original transaction, to schedule its next poll with the recording of the response.
  package struct PolledOriginalTransaction: Sendable {
    package var line: OriginalTransactionKey
    package var bundleID: String?
    package var job: Job?

    package init(_ line: OriginalTransactionKey, of bundleID: String?, job: Job? = nil) {
      (self.line, self.bundleID, self.job) = (line, bundleID, job)
    }
  }

  /// Schedules the next poll in place of the recording's own, and ends the poll's job.
  func replanning(
    _ asked: PolledOriginalTransaction, after recording: Recording, at now: Timestamp,
    in transaction: Transaction
  ) async throws -> [SQL] {
    guard let original = recording.originals[asked.line] else {
      // Nothing was recorded and locked, so a schedule made concurrently is kept.
      guard let job = asked.job else { return [] }
      return try await ending(job, of: asked.line, at: now, in: transaction)
    }
    let plan = PollSchedule.Subject(
      original.line, original.rule, polledAt: now, hasNotifications: notificationMemory.contains)
    guard let plan, let next = PollSchedule.next(plan, after: now) else {
      if let job = asked.job, original.line.awaitsApple {
        return job.discarding(because: ImportStore.noCharge, at: now)
      }
      return [Job.delete(.pollStatus(asked.line))]
    }
    let isSame = plan.id == asked.line
    return (isSame ? [] : [Job.delete(.pollStatus(asked.line))]) + [
      Job.schedule(
        .pollStatus(plan.id), runAt: next.at, priority: next.priority, at: now,
        endingClaimOf: isSame ? asked.job?.worker : nil)
    ]
  }

  /// Ends a poll without a result, because Apple doesn't know the transaction or there is no
  /// identifier to ask with.
  ///
  /// The next poll is scheduled as for an expired subscription.
  package func passOver(_ job: Job, because reason: String, at now: Timestamp) async throws {
    let line = try job.originalTransaction
    try await database.withTransaction { transaction in
      let ending = try await ending(job, of: line, asExpired: true, at: now, in: transaction)
      try await transaction.commit(
        with: ending + [
          """
          UPDATE tenure.job SET last_error = \(reason.storedSentence)
          WHERE job_id = \(job.id) AND locked_by IS NULL AND generation = \(job.generation)
          """
        ])
    }
  }

  /// Ends the job of an unlocked original transaction and schedules its next poll.
  private func ending(
    _ job: Job, of line: OriginalTransactionKey, asExpired: Bool = false, at now: Timestamp,
    in transaction: Transaction
  ) async throws -> [SQL] {
    let original = try await transaction.originals([line], locking: false).first
    var plan = original.flatMap {
      PollSchedule.Subject(
        $0.line, $0.rule, polledAt: now, hasNotifications: notificationMemory.contains)
    }
    if asExpired {
      plan?.phase = .expired
      plan?.isRevoked = false
    }
    // Linked original transactions share one poll, that of the one with the latest charge.
    guard let plan, plan.id == line, let next = PollSchedule.next(plan, after: now) else {
      // An imported owner that Apple can't confirm needs attention.
      if original?.line.awaitsApple == true {
        return job.discarding(because: ImportStore.noCharge, at: now)
      }
      return job.completion
    }
    return job.repetition(at: next.at, priority: next.priority, now: now)
  }

  // MARK: Counting

  package func dueJobs(in queues: [Job.Queue], at now: Timestamp) async throws -> [Job.Queue: Int] {
    // By queue and priority, as in the index, so that jobs of the future are not read.
    let rows = try await database.query(
      """
      SELECT part.queue, count(*)
      FROM unnest(\(queues.map(\.rawValue))) AS part (queue)
      CROSS JOIN generate_series(0, 2) AS level (priority)
      CROSS JOIN LATERAL (
        SELECT FROM tenure.job
        WHERE job.queue = part.queue AND job.priority = level.priority AND discarded_at IS NULL
          AND run_at <= \(now) AND (locked_until IS NULL OR locked_until <= \(now))
      ) AS due
      GROUP BY part.queue
      """)
    return Dictionary(uniqueKeysWithValues: try rows.decode(Job.Queue.self, Int.self).map { $0 })
  }
}

extension RecordedOriginalTransaction {
  /// False for an unconfirmed import: its poll returns the history, a notification the renewal.
  fileprivate var isPolledByPlan: Bool { !line.awaitsApple && !before.line.awaitsApple }
}

/// The environments with notifications, in memory: if lost, it costs a poll that ends at once.
final class NotificationMemory: Sendable {
  private let environments = Mutex<Set<Environment>>([])

  func note(_ environment: Environment) {
    environments.withLock { _ = $0.insert(environment) }
  }

  func contains(_ environment: Environment) -> Bool {
    environments.withLock { $0.contains(environment) }
  }
}

/// The app and receipts with which Apple can be asked about original transactions.
package struct PollTarget: Hashable, Sendable {
  package enum Receipt: Hashable, Sendable {
    case submission(UUID)
    /// A version 1 notification, whose body contains the receipt.
    case notification(String)
  }

  /// Nil if unknown, as for imports without it.
  package var bundleID: String?
  /// Best first; any of them may have been erased or pruned.
  package var receipts: [Receipt]

  package init(bundleID: String?, receipt: Receipt? = nil) {
    self.bundleID = bundleID
    receipts = receipt.map { [$0] } ?? []
  }

  /// Stores the source for the original transactions of verified evidence.
  ///
  /// The latest receipt replaces an earlier one, unless its sender does not own the latest charge:
  /// the owner's receipt must remain when another account that submitted one is erased. Evidence
  /// without a receipt keeps the stored one. The original transactions are already locked, so
  /// concurrent recordings can't deadlock here.
  ///
  /// - Parameter others: Original transactions whose latest charge the receipt's sender doesn't
  ///   own.
  func upsert(for evidence: [Evidence], ofOthers others: Set<OriginalTransactionKey> = []) -> [SQL]
  {
    let lines = Set(evidence.map(\.line)).sorted()
    guard !lines.isEmpty, let bundleID else { return [] }
    let (submission, notification): (UUID?, String?) =
      switch receipts.first {
      case .submission(let id): (id, nil)
      case .notification(let id): (nil, id)
      case nil: (nil, nil)
      }
    func upsert(
      _ lines: [OriginalTransactionKey], settingReceipt receipt: SQL, where condition: SQL
    ) -> [SQL] {
      lines.map { line in
        """
        (\(line.environment), \(line.originalTransactionID), \(bundleID), \(submission),
          \(notification))
        """
      }.rowLists.map { rows in
        """
        INSERT INTO tenure.poll_target AS known (environment, original_transaction_id, bundle_id,
          receipt_submission_id, receipt_notification_id)
        VALUES \(rows)
        ON CONFLICT (environment, original_transaction_id)
        DO UPDATE SET bundle_id = excluded.bundle_id\(receipt)
        WHERE \(condition)
        """
      }
    }
    guard !receipts.isEmpty else {
      return upsert(
        lines, settingReceipt: "", where: "known.bundle_id IS DISTINCT FROM excluded.bundle_id")
    }
    let receipt: SQL = """
      , receipt_submission_id = excluded.receipt_submission_id,
      receipt_notification_id = excluded.receipt_notification_id
      """
    return upsert(lines.filter { !others.contains($0) }, settingReceipt: receipt, where: "true")
      + upsert(
        lines.filter(others.contains), settingReceipt: receipt,
        where: "known.receipt_submission_id IS NULL AND known.receipt_notification_id IS NULL")
  }

  /// Removes references to receipts of submissions about to be erased.
  static func forget(_ submissions: [UUID], on lines: [OriginalTransactionKey]) -> SQL {
    """
    UPDATE tenure.poll_target SET receipt_submission_id = NULL
    WHERE \(lines.condition) AND receipt_submission_id = ANY(\(submissions))
    """
  }

  /// Reads the sources of linked original transactions, the first one's first.
  ///
  /// Includes claiming submissions, the owner's first: the stored receipt may be erased.
  static func query(_ lines: [OriginalTransactionKey]) -> Query<PollTarget> {
    Query.all(
      lines.map { line in
        Query(
          Query(
            """
            SELECT bundle_id, receipt_submission_id, receipt_notification_id
            FROM tenure.poll_target WHERE \(line.condition)
            """
          ) { try $0.decodeFirst(String?.self, UUID?.self, String?.self) },
          Query(
            """
            SELECT c.submission_id
            FROM tenure.ownership_action AS c
            JOIN tenure.original_transaction AS t USING (environment, original_transaction_id)
            WHERE c.environment = \(line.environment)
              AND c.original_transaction_id = \(line.originalTransactionID)
              AND c.submission_id IS NOT NULL
            GROUP BY c.submission_id
            ORDER BY coalesce(bool_or(c.account_key = t.latest_owner_key), false) DESC,
              max(c.number) DESC
            LIMIT \(mostClaims)
            """
          ) { try $0.decode(UUID.self) })
      }
    ).map { sources in
      var target = PollTarget(bundleID: nil)
      for case ((let bundleID, let submission, let notification)?, _) in sources {
        target.bundleID = target.bundleID ?? bundleID
        if let submission { target.receipts.append(.submission(submission)) }
        if let notification { target.receipts.append(.notification(notification)) }
      }
      for claim in sources.flatMap(\.1).map(Receipt.submission)
      where !target.receipts.contains(claim) {
        target.receipts.append(claim)
      }
      return target
    }
  }

  /// Claiming submissions to consider when looking for a receipt that still exists.
  private static let mostClaims = 10
}
