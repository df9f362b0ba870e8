package import Foundation
import JSONText
import Postgres
package import Subscriptions

/// A job that a worker has claimed.
///
/// A job is written in the commit of the data from which it follows. How each kind runs is defined
/// in BackgroundJobs.
package struct Job: Hashable, Sendable {
  /// The kinds of jobs, by their names in the table and in metrics.
  package enum Kind: String, CaseIterable, Sendable {
    case verifySubmission = "verify_submission"
    case processNotification = "process_notification"
    case pollStatus = "poll_status"
    case compareNotifications = "compare_notifications"
    case publishEntitlements = "publish_entitlements"
    case expireOrder = "expire_order"
    case deliverEvents = "deliver_events"
    case reconcile
    case pruneEvents = "prune_events"
    case rollUpMovements = "roll_up_movements"
    case mergeAccount = "merge_account"
    case prunePayloads = "prune_payloads"
    case setAppAccountToken = "set_app_account_token"
    case sendConsumption = "send_consumption"
    case trimAccountChanges = "trim_account_changes"
    case makeCheckpoint = "make_checkpoint"
  }

  /// Queues with separate concurrency limits, so that one kind of work can't starve another.
  package enum Queue: String, CaseIterable, Sendable {
    case submissions
    case notifications
    /// Deadlines: access that ends, orders that expire.
    case clock
    case polls
    case sandboxPolls = "sandbox_polls"
    case webhooks
    case maintenance
    case writeBack = "write_back"
    case sandboxWriteBack = "sandbox_write_back"

    /// The name of the hourly budget of requests to Apple that its jobs share; nil: no limit.
    package var rateBudget: String? {
      switch self {
      case .polls: "polls/production"
      case .sandboxPolls: "polls/sandbox"
      case .writeBack: "write_back/production"
      case .sandboxWriteBack: "write_back/sandbox"
      case .submissions, .notifications, .clock, .webhooks, .maintenance: nil
      }
    }
  }

  /// The identity of a job, one of a kind for each subject, and its queue.
  package struct Key: Hashable, Sendable {
    package let kind: Kind
    package let subject: String
    package let queue: Queue
  }

  package let id: Int64
  package let key: Key
  /// The number of runs since it was enqueued, completed or retried by hand, this one included.
  package let attempts: Int
  package let worker: String
  /// Incremented when the job is scheduled again; a run completes only the generation it claimed.
  package let generation: Int
  /// The start of the retry window: when it was enqueued, due or retried by hand.
  package let createdAt: Timestamp

  package var kind: Kind { key.kind }
  package var subject: String { key.subject }
  package var queue: Queue { key.queue }
}

// MARK: Subjects

extension Job.Key {
  package static let reconcile = Self(.reconcile, in: .maintenance)
  package static let pruneEvents = Self(.pruneEvents, in: .maintenance)
  package static let rollUpMovements = Self(.rollUpMovements, in: .maintenance)
  package static let prunePayloads = Self(.prunePayloads, in: .maintenance)
  package static let trimAccountChanges = Self(.trimAccountChanges, in: .maintenance)
  package static let makeCheckpoint = Self(.makeCheckpoint, in: .maintenance)

  package static func verifySubmission(_ id: UUID) -> Self {
    Self(.verifySubmission, id, in: .submissions)
  }

  package static func processNotification(_ id: String) -> Self {
    Self(.processNotification, id, in: .notifications)
  }

  package static func pollStatus(_ line: OriginalTransactionKey) -> Self {
    Self(.pollStatus, line.subject, in: line.environment == .production ? .polls : .sandboxPolls)
  }

  package static func compareNotifications(bundleID: String, _ environment: Environment) -> Self {
    Self(.compareNotifications, "\(environment.rawValue)/\(bundleID)", in: .maintenance)
  }

  package static func publishEntitlements(_ account: AccountKey) -> Self {
    Self(.publishEntitlements, account.rawValue, in: .clock)
  }

  package static func expireOrder(_ id: UUID) -> Self {
    Self(.expireOrder, id, in: .clock)
  }

  package static func deliverEvents(stream: String) -> Self {
    Self(.deliverEvents, stream, in: .webhooks)
  }

  package static func mergeAccount(_ account: AccountKey) -> Self {
    Self(.mergeAccount, account.rawValue, in: .maintenance)
  }

  package static func setAppAccountToken(_ line: OriginalTransactionKey) -> Self {
    Self(.setAppAccountToken, line.subject, in: writeBack(line.environment))
  }

  package static func sendConsumption(_ environment: Environment, notificationID: String) -> Self {
    Self(
      .sendConsumption, "\(environment.rawValue)/\(notificationID)", in: writeBack(environment))
  }

  private static func writeBack(_ environment: Environment) -> Job.Queue {
    environment == .production ? .writeBack : .sandboxWriteBack
  }

  private init(_ kind: Job.Kind, _ subject: String = "all", in queue: Job.Queue) {
    self.init(kind: kind, subject: subject, queue: queue)
  }

  private init(_ kind: Job.Kind, _ id: UUID, in queue: Job.Queue) {
    self.init(kind: kind, subject: id.text, queue: queue)
  }
}

extension Job {
  package var subjectID: UUID {
    get throws { try Self.known(UUID(uuidString: subject)) }
  }

  package var originalTransaction: OriginalTransactionKey {
    get throws { try Self.known(OriginalTransactionKey(subject: subject)) }
  }

  /// The two parts of a subject `environment/name`.
  package var scope: (environment: Environment, name: String) {
    get throws { try Self.known(Self.parts(of: subject)) }
  }

  private static func known<Value>(_ value: Value?) throws -> Value {
    guard let value else { throw DecodingFault.unknownValue }
    return value
  }

  fileprivate static func parts(of subject: String) -> (environment: Environment, name: String)? {
    let parts = subject.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
    guard parts.count == 2, let environment = Environment(rawValue: String(parts[0]))
    else { return nil }
    return (environment, String(parts[1]))
  }
}

extension OriginalTransactionKey {
  /// The subject of jobs about it.
  package var subject: String { "\(environment.rawValue)/\(originalTransactionID.rawValue)" }

  package init?(subject: String) {
    guard let (environment, id) = Job.parts(of: subject) else { return nil }
    self.init(environment, OriginalTransactionID(rawValue: id))
  }
}

// MARK: Statements

extension Job {
  /// Enqueues a job; one that exists stays as it is.
  static func insert(_ key: Key, runAt: Timestamp, priority: Int = 0, at now: Timestamp) -> SQL {
    "\(enqueue(key, runAt: runAt, priority: priority, at: now)) DO NOTHING"
  }

  /// Enqueues a job, or moves the existing one to another time.
  ///
  /// A job that is running runs again afterwards. One that already waits for this time is not
  /// written.
  ///
  /// - Parameters:
  ///   - worker: The worker whose claim ends with this statement.
  ///   - condition: Whether an existing job is moved.
  static func schedule(
    _ key: Key, runAt: Timestamp, priority: Int = 0, at now: Timestamp,
    endingClaimOf worker: String? = nil, ifExisting condition: SQL = differs
  ) -> SQL {
    """
    \(enqueue(key, runAt: runAt, priority: priority, at: now)) DO UPDATE SET \(reset)
    \(worker.map(releaseClaim) ?? "") WHERE \(condition)
    """
  }

  private static func enqueue(
    _ key: Key, runAt: Timestamp, priority: Int, at now: Timestamp
  ) -> SQL {
    """
    INSERT INTO tenure.job (kind, subject, queue, priority, run_at, created_at)
    VALUES (\(key.kind), \(key.subject), \(key.queue), \(priority), \(runAt), \(max(runAt, now)))
    ON CONFLICT (kind, subject)
    """
  }

  /// The assignments that reschedule an existing job.
  static let reset: SQL = """
    run_at = excluded.run_at, priority = excluded.priority, generation = tenure.job.generation + 1,
    attempts = 0, discarded_at = NULL, last_error = NULL, created_at = excluded.created_at
    """

  static let differs: SQL = """
    tenure.job.locked_until IS NOT NULL OR tenure.job.discarded_at IS NOT NULL
      OR (tenure.job.run_at, tenure.job.priority, tenure.job.attempts, tenure.job.last_error)
        IS DISTINCT FROM (excluded.run_at, excluded.priority, 0, NULL)
    """

  private static func releaseClaim(of worker: String) -> SQL {
    """
    , locked_until = CASE WHEN tenure.job.locked_by = \(worker) THEN NULL
      ELSE tenure.job.locked_until END,
    locked_by = nullif(tenure.job.locked_by, \(worker))
    """
  }

  static func delete(_ key: Key) -> SQL {
    "DELETE FROM tenure.job WHERE kind = \(key.kind) AND subject = \(key.subject)"
  }

  /// Completes the job; see ``Swift/Array/completion``.
  var completion: [SQL] { [self].completion }

  /// Completes a run of a job that recurs; a `run_at` set after the claim is kept.
  func repetition(at runAt: Timestamp, priority: Int = 0, now: Timestamp) -> [SQL] {
    let isUnchanged: SQL = "generation = \(generation)"
    return [
      """
      UPDATE tenure.job SET attempts = 0, last_error = NULL, locked_until = NULL, locked_by = NULL,
        run_at = CASE WHEN \(isUnchanged) THEN \(runAt) ELSE run_at END,
        priority = CASE WHEN \(isUnchanged) THEN \(priority) ELSE priority END,
        created_at = CASE WHEN \(isUnchanged) THEN \(max(runAt, now)) ELSE created_at END
      WHERE job_id = \(id) AND locked_by = \(worker)
      """
    ]
  }

  /// Discards the job and returns its ID, unless another worker has it or it was scheduled again.
  func discard(because reason: String, at now: Timestamp) -> SQL {
    """
    UPDATE tenure.job SET discarded_at = \(now), locked_until = NULL, locked_by = NULL,
      last_error = \(reason.storedSentence)
    WHERE job_id = \(id) AND (locked_by IS NULL OR locked_by = \(worker))
      AND generation = \(generation)
    RETURNING job_id
    """
  }

  /// Ends a run by discarding the job; it stays enqueued if it was scheduled again.
  func discarding(because reason: String, at now: Timestamp) -> [SQL] {
    [discard(because: reason, at: now), [self].unlock]
  }

  /// Returns a job claimed by `worker`, or with nil an unclaimed one, to its queue until later.
  static func reschedule(
    _ key: Key, of worker: String?, at runAt: Timestamp, because reason: String
  ) -> SQL {
    """
    UPDATE tenure.job SET run_at = \(runAt), locked_until = NULL, locked_by = NULL,
      last_error = \(reason.storedSentence)
    WHERE kind = \(key.kind) AND subject = \(key.subject)
      AND locked_by IS NOT DISTINCT FROM \(worker)
    """
  }
}

extension [Job] {
  /// Completes jobs of one worker; one that was scheduled again is returned to its queue.
  var completion: [SQL] {
    guard let worker = first?.worker else { return [] }
    return [
      """
      DELETE FROM tenure.job AS j
      USING unnest(\(map(\.id)), \(map(\.generation))) AS done (job_id, generation)
      WHERE j.job_id = ANY (\(map(\.id))) AND j.job_id = done.job_id
        AND j.generation = done.generation AND j.locked_by = \(worker)
      """,
      unlock,
    ]
  }

  /// Returns jobs that were scheduled again to their queues.
  fileprivate var unlock: SQL {
    """
    UPDATE tenure.job SET locked_until = NULL, locked_by = NULL, attempts = 0, last_error = NULL
    WHERE job_id = ANY (\(map(\.id))) AND locked_by = \(first?.worker)
    """
  }
}
