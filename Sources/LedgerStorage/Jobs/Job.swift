package import Foundation
import Postgres
package import Subscriptions

/// Something that is still to be done.
package struct Job: Hashable, Sendable {
  /// The closed set of what workers do.
  package enum Task: Hashable, Sendable {
    /// Take up a submission that is still open: mostly, ask Apple again.
    case verifySubmission(UUID)
    /// Process a notification that was stored.
    case processNotification(String)
    /// Ask Apple how a line stands. It comes again for as long as there is something to learn.
    case pollLine(LineID)
    /// Compare Apple's notification history with what arrived. It comes again every day.
    case compareNotifications(bundleID: String, Environment)
    /// See what time has changed for an account, and tell it.
    case tellAccount(AccountKey)
    /// Let an order expire that nobody has paid for.
    case expireOrder(UUID)
    /// Push the events of a stream to the webhook, in their order.
    case deliverEvents(stream: String)
    /// Go through all accounts and lines, and see to it that what follows from the ledger is there:
    /// after the catalogue or a setting changed, and after an upgrade.
    case survey
    /// Delete events that are older than the retention. It comes again every hour.
    case trimEvents
    /// Fold what recordings changed of the journal's sums. It comes again every minute.
    case foldMovements
    /// Go on placing the charges of an account with the one that it was merged into.
    case mergeAccount(AccountKey)
    /// Age out raw bodies that are older than their retention. It comes again every day.
    case ageOut
    /// Tell Apple to whom a line belongs.
    case writeOwnership(LineID)
    /// Tell Apple what became of a purchase, as a notification asks.
    case answerConsumption(Environment, notificationID: String)
  }

  /// What waits for each other: none of a lane's jobs takes the place of another lane's.
  package enum Lane: String, CaseIterable, Sendable {
    case submissions
    case notifications
    /// What has to be done at its moment: access that ends, orders that expire.
    case clock
    case polls
    case sandboxPolls = "sandbox_polls"
    case webhooks
    case upkeep
    /// What Apple is told: slower than what it is asked, for nobody waits for it.
    case tellings
    case sandboxTellings = "sandbox_tellings"
  }

  package let id: Int64
  package let task: Task
  /// How often it was begun, this time included.
  package let attempts: Int
  /// Who has claimed it.
  package let worker: String
  /// What was to be done when it was claimed: if that has changed since, it is not done.
  package let generation: Int
  /// From when on there is patience with its failures: when it was put into the queue, was due or
  /// was started again after it was given up.
  package let createdAt: Timestamp
}

extension Job.Task {
  /// What a task is, whatever it is about; under this name it is stored and told.
  package enum Kind: String, CaseIterable, Sendable {
    case verifySubmission = "verify_submission"
    case processNotification = "process_notification"
    case pollLine = "poll_line"
    case compareNotifications = "compare_notifications"
    case tellAccount = "tell_account"
    case expireOrder = "expire_order"
    case deliverEvents = "deliver_events"
    case survey
    case trimEvents = "trim_events"
    case foldMovements = "fold_movements"
    case mergeAccount = "merge_account"
    case ageOut = "age_out"
    case writeOwnership = "write_ownership"
    case answerConsumption = "answer_consumption"
  }

  package var kind: Kind {
    switch self {
    case .verifySubmission: .verifySubmission
    case .processNotification: .processNotification
    case .pollLine: .pollLine
    case .compareNotifications: .compareNotifications
    case .tellAccount: .tellAccount
    case .expireOrder: .expireOrder
    case .deliverEvents: .deliverEvents
    case .survey: .survey
    case .trimEvents: .trimEvents
    case .foldMovements: .foldMovements
    case .mergeAccount: .mergeAccount
    case .ageOut: .ageOut
    case .writeOwnership: .writeOwnership
    case .answerConsumption: .answerConsumption
    }
  }

  /// What it is about; one job of a kind for each.
  package var subject: String {
    switch self {
    case .verifySubmission(let id): id.uuidString.lowercased()
    case .processNotification(let id): id
    case .pollLine(let line), .writeOwnership(let line):
      "\(line.environment.rawValue)/\(line.originalTransactionID.rawValue)"
    case .compareNotifications(let bundleID, let environment):
      "\(environment.rawValue)/\(bundleID)"
    case .answerConsumption(let environment, let notificationID):
      "\(environment.rawValue)/\(notificationID)"
    case .tellAccount(let key), .mergeAccount(let key): key.rawValue.uuidString.lowercased()
    case .expireOrder(let id): id.uuidString.lowercased()
    case .deliverEvents(let stream): stream
    case .survey, .trimEvents, .foldMovements, .ageOut: "all"
    }
  }

  package var lane: Job.Lane {
    switch self {
    case .verifySubmission: .submissions
    case .processNotification: .notifications
    case .pollLine(let line): line.environment == .production ? .polls : .sandboxPolls
    case .tellAccount, .expireOrder: .clock
    case .deliverEvents: .webhooks
    case .compareNotifications, .survey, .trimEvents, .foldMovements, .mergeAccount, .ageOut:
      .upkeep
    case .writeOwnership(let line):
      line.environment == .production ? .tellings : .sandboxTellings
    case .answerConsumption(let environment, _):
      environment == .production ? .tellings : .sandboxTellings
    }
  }

  /// Nil for what no version of this program could have stored.
  package init?(kind: String, subject: String) {
    /// The two parts of a subject that begins with an environment.
    var parts: (environment: Environment, rest: String)? {
      guard let slash = subject.firstIndex(of: "/"),
        let environment = Environment(rawValue: String(subject[..<slash]))
      else { return nil }
      return (environment, String(subject[subject.index(after: slash)...]))
    }
    switch Kind(rawValue: kind) {
    case .verifySubmission:
      guard let id = UUID(uuidString: subject) else { return nil }
      self = .verifySubmission(id)
    case .processNotification: self = .processNotification(subject)
    case .pollLine:
      guard let parts else { return nil }
      self = .pollLine(LineID(parts.environment, OriginalTransactionID(rawValue: parts.rest)))
    case .compareNotifications:
      guard let parts else { return nil }
      self = .compareNotifications(bundleID: parts.rest, parts.environment)
    case .tellAccount:
      guard let key = UUID(uuidString: subject) else { return nil }
      self = .tellAccount(AccountKey(rawValue: key))
    case .expireOrder:
      guard let id = UUID(uuidString: subject) else { return nil }
      self = .expireOrder(id)
    case .deliverEvents: self = .deliverEvents(stream: subject)
    case .survey: self = .survey
    case .trimEvents: self = .trimEvents
    case .foldMovements: self = .foldMovements
    case .mergeAccount:
      guard let key = UUID(uuidString: subject) else { return nil }
      self = .mergeAccount(AccountKey(rawValue: key))
    case .ageOut: self = .ageOut
    case .writeOwnership:
      guard let parts else { return nil }
      self = .writeOwnership(LineID(parts.environment, OriginalTransactionID(rawValue: parts.rest)))
    case .answerConsumption:
      guard let parts else { return nil }
      self = .answerConsumption(parts.environment, notificationID: parts.rest)
    case nil: return nil
    }
  }
}

extension Job {
  /// Puts a job into the queue; one that is there already stays as it is.
  static func insert(
    _ task: Task, runAt: Timestamp, priority: Int = 0, at now: Timestamp
  ) -> SQL {
    """
    INSERT INTO tenure.job (kind, subject, lane, priority, run_at, created_at)
    VALUES (\(task.kind), \(task.subject), \(task.lane), \(priority), \(runAt),
      \(max(runAt, now)))
    ON CONFLICT (kind, subject) DO NOTHING
    """
  }

  /// Puts a job into the queue, or gives the one that is there another time.
  ///
  /// A worker that is at it finds that it has to be done again.
  static func schedule(
    _ task: Task, runAt: Timestamp, priority: Int = 0, at now: Timestamp
  ) -> SQL {
    """
    INSERT INTO tenure.job (kind, subject, lane, priority, run_at, created_at)
    VALUES (\(task.kind), \(task.subject), \(task.lane), \(priority), \(runAt),
      \(max(runAt, now)))
    ON CONFLICT (kind, subject) DO UPDATE SET \(anew)
    """
  }

  /// What becomes of a job that is in the queue already and is to be done at another time.
  static let anew: SQL = """
    run_at = excluded.run_at, priority = excluded.priority, generation = tenure.job.generation + 1,
    attempts = 0, parked_at = NULL, last_error = NULL, created_at = excluded.created_at
    """

  static func delete(_ task: Task) -> SQL {
    "DELETE FROM tenure.job WHERE kind = \(task.kind) AND subject = \(task.subject)"
  }

  /// Ends a job that its worker has done; see ``Swift/Array/completion``.
  var completion: [SQL] { [self].completion }

  /// Ends a job that its worker has done, and that is to be done again at a time.
  ///
  /// Should another time have been given to it since it was claimed, that one holds.
  func repetition(at runAt: Timestamp, priority: Int = 0, now: Timestamp) -> [SQL] {
    [
      """
      UPDATE tenure.job SET run_at = \(runAt), priority = \(priority), attempts = 0,
        created_at = \(max(runAt, now)), last_error = NULL, locked_until = NULL, locked_by = NULL
      WHERE job_id = \(id) AND locked_by = \(worker) AND generation = \(generation)
      """,
      unlock,
    ]
  }

  /// Gives up a job until somebody starts it again, unless another worker has claimed it, or
  /// something else is to be done since.
  ///
  /// Returns the job's id if it did so.
  func park(because reason: String, at now: Timestamp) -> SQL {
    """
    UPDATE tenure.job SET parked_at = \(now), locked_until = NULL, locked_by = NULL,
      last_error = \(reason.storedSentence)
    WHERE job_id = \(id) AND (locked_by IS NULL OR locked_by = \(worker))
      AND generation = \(generation)
    RETURNING job_id
    """
  }

  /// Gives up a job that its worker has done in vain; what is to be done again since, is.
  func parking(because reason: String, at now: Timestamp) -> [SQL] {
    [park(because: reason, at: now), unlock]
  }

  /// Frees a job that its worker has done, and that something else has given another time.
  var unlock: SQL { [self].unlock }

  /// Gives a job back to the queue, to be done later.
  ///
  /// Only for the worker that has claimed it, or where nobody has if that is nil: whoever comes
  /// late must not free what another has claimed since.
  static func reschedule(
    _ task: Task, of worker: String?, at runAt: Timestamp, because reason: String
  ) -> SQL {
    """
    UPDATE tenure.job SET run_at = \(runAt), locked_until = NULL, locked_by = NULL,
      last_error = \(reason.storedSentence)
    WHERE kind = \(task.kind) AND subject = \(task.subject)
      AND locked_by IS NOT DISTINCT FROM \(worker)
    """
  }
}

extension [Job] {
  /// Ends jobs that one worker has done.
  ///
  /// If something else was to be done since one was claimed, that one is in the queue again
  /// instead; if another worker has claimed it, it is that one's.
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

  /// Frees jobs that one worker has done, and that something else has given another time.
  fileprivate var unlock: SQL {
    """
    UPDATE tenure.job SET locked_until = NULL, locked_by = NULL, attempts = 0, last_error = NULL
    WHERE job_id = ANY (\(map(\.id))) AND locked_by = \(first?.worker)
    """
  }
}
