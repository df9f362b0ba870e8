import Foundation
import JSONText
import Postgres
package import Subscriptions

/// Events on their way to the webhook.
///
/// Each is in the stream of its account or original transaction, which one job delivers in order.
package struct WebhookQueue: LedgerStore {
  package let core: LedgerCore

  /// The events that become deliveries in one transaction, which locks the feed.
  package static let pushingBatch = 1000

  /// Creates deliveries of new events, with the jobs of their streams, and returns their number.
  ///
  /// The first call creates none: events from before webhooks were turned on are not delivered.
  ///
  /// - Returns: The number of deliveries; if it is ``pushingBatch``, there may be more.
  package func pushEvents(at now: Timestamp) async throws -> Int {
    let end = try await events.placeEvents()
    // Read without a lock, because there is rarely a new event.
    let pushed = try await database.query("SELECT pushed_to FROM tenure.feed")
      .decodeOnly(Int64?.self)
    if let pushed, pushed >= end { return 0 }
    let count = try await database.withTransaction { transaction in
      try await transaction.commit(with: ["SELECT FROM tenure.feed FOR UPDATE", push(at: now)])[1]
        .decodeOnly(Int.self)
    }
    if count > 0 { notifier.notify(.jobs) }
    return count
  }

  private func push(at now: Timestamp) -> SQL {
    let job = Job.Key.deliverEvents(stream: "")
    // An existing job keeps the time of its next try; a running one runs again.
    return """
      WITH new AS (
        SELECT e.event_id, e.position, \(SQL.eventStream) AS stream
        FROM tenure.feed AS f
        CROSS JOIN LATERAL (
          SELECT event_id, position, account_key, data FROM tenure.event
          WHERE position > f.pushed_to
          ORDER BY position LIMIT \(Self.pushingBatch)
        ) AS e
      ), delivery AS (
        INSERT INTO tenure.webhook_delivery (event_id, stream, position, due_since)
        SELECT event_id, stream, position, \(now) FROM new
        ON CONFLICT (event_id) DO NOTHING
      ), job AS (
        INSERT INTO tenure.job AS j (kind, subject, queue, run_at, created_at)
        -- Citus adds the identity column to this list, so DISTINCT is applied in a subquery.
        SELECT \(job.kind), stream, \(job.queue), \(now), \(now)
        FROM (SELECT DISTINCT stream FROM new) AS streams ORDER BY stream
        ON CONFLICT (kind, subject) DO UPDATE SET generation = j.generation + 1
        WHERE j.locked_by IS NOT NULL
      )
      UPDATE tenure.feed AS f
      SET pushed_to = coalesce((SELECT max(position) FROM new), \(SQL.feedEnd))
      RETURNING (SELECT count(*) FROM new)
      """
  }

  /// Deletes the delivery that was made, and reads the next one of its stream.
  ///
  /// Without one, or when pausing, the job ends in the same commit.
  ///
  /// - Parameter attempt: The attempt that delivered it, for the log.
  /// - Returns: Nil: the job has ended or is another worker's.
  package func nextDelivery(
    _ job: Job, after delivered: WebhookDelivery? = nil, attempt: WebhookAttempt? = nil,
    isPausing: Bool = false, at now: Timestamp
  ) async throws -> WebhookDelivery? {
    let stream = job.subject
    return try await database.withTransaction { transaction in
      let results = try await transaction.batch(
        [
          "DELETE FROM tenure.webhook_delivery WHERE event_id = \(delivered?.eventID)",
          // New deliveries of the stream wait for this lock until the job has ended.
          """
          SELECT 1 FROM tenure.job WHERE job_id = \(job.id) AND locked_by = \(job.worker)
          FOR UPDATE
          """,
          """
          SELECT d.event_id, d.attempts, d.due_since, \(SQL.eventInFeed)
          FROM tenure.webhook_delivery AS d
          JOIN tenure.event AS e ON e.event_id = d.event_id
          WHERE d.stream = \(stream) AND d.parked_at IS NULL
          ORDER BY d.position LIMIT 1
          """,
          // All events of an account's stream belong to the account.
          """
          SELECT account_id FROM tenure.account_by_key WHERE account_key = \(UUID(uuidString: stream))
          """,
        ] + (attempt.map { [$0.insert] } ?? []))
      guard results[1].count == 1 else { return nil }
      guard
        let (id, attempts, dueSince, beginning, _, data) = try results[2].decodeFirst(
          Int64.self, Int.self, Timestamp.self, String.self, AccountKey?.self,
          CompressedText.self)
      else {
        try await transaction.commit(with: job.completion)
        return nil
      }
      guard !isPausing else {
        try await transaction.commit(with: job.repetition(at: now, now: now))
        return nil
      }
      let account = try results[3].decodeFirst(String.self)
      return WebhookDelivery(
        eventID: id, stream: stream, attempts: attempts, dueSince: dueSince,
        body: FeedPage.event(beginning, of: account, data.text))
    }
  }

  /// Records a failed delivery, and schedules the next try of its stream.
  ///
  /// - Parameter isLast: Whether it is given up, so that the stream continues with the next.
  package func postpone(
    _ delivery: WebhookDelivery, of job: Job, because reason: String, failures: Int,
    attempt: WebhookAttempt? = nil, until retryAt: Timestamp, isLast: Bool, at now: Timestamp
  ) async throws {
    _ = try await database.batch(
      [
        """
        UPDATE tenure.webhook_delivery SET attempts = attempts + 1,
          last_error = \(reason.storedSentence), parked_at = \(isLast ? now : nil)
        WHERE event_id = \(delivery.eventID) AND parked_at IS NULL AND EXISTS (
          SELECT FROM tenure.job WHERE job_id = \(job.id) AND locked_by = \(job.worker))
        """,
        // Deliveries added to the stream since the claim wait, too.
        """
        UPDATE tenure.job SET run_at = \(retryAt), attempts = \(failures), created_at = \(now),
          last_error = \(reason.storedSentence), locked_until = NULL, locked_by = NULL
        WHERE job_id = \(job.id) AND locked_by = \(job.worker)
        """,
      ] + (attempt.map { [$0.insert] } ?? []))
  }

  // MARK: Administration

  /// Reads the deliveries of which attempts are kept, by their latest attempt, latest first.
  ///
  /// - Parameter hasFailed: Selects those whose latest attempt failed, or the others; nil: all.
  package func deliveries(
    hasFailed: Bool? = nil, type: String? = nil, before last: (at: Timestamp, event: Int64)? = nil,
    limit: Int
  ) async throws -> [LoggedDelivery] {
    let rest =
      last.map { "(a.attempted_at, a.event_id) < (\($0.at), \($0.event))" as SQL } ?? "true"
    let outcome = hasFailed.map { "(a.failure IS NOT NULL) = \($0)" as SQL } ?? "true"
    let kind = type.map { "coalesce(e.type, \(WebhookAttempt.test)) = \($0)" as SQL } ?? "true"
    // Each test event is a delivery of its own.
    let rows = try await database.query(
      """
      SELECT a.event_id, a.attempted_at, e.type, \(SQL.eventInFeed), j.run_at
      FROM tenure.webhook_attempt AS a
      LEFT JOIN tenure.event AS e ON e.event_id = a.event_id
      LEFT JOIN tenure.webhook_delivery AS d ON d.event_id = a.event_id AND d.parked_at IS NULL
      LEFT JOIN tenure.job AS j
        ON j.kind = \(Job.Key.deliverEvents(stream: "").kind) AND j.subject = d.stream
      WHERE \(rest) AND \(outcome) AND \(kind) AND (a.event_id = 0 OR NOT EXISTS (
        SELECT FROM tenure.webhook_attempt AS later WHERE later.event_id = a.event_id
          AND (later.attempted_at, later.slot) > (a.attempted_at, a.slot)))
      ORDER BY a.attempted_at DESC, a.event_id DESC LIMIT \(limit)
      """
    ).decode(
      Int64.self, Timestamp.self, String?.self, String?.self, AccountKey?.self,
      CompressedText?.self, Timestamp?.self)
    let attempts = try await database.query(
      """
      SELECT event_id, attempted_at, took_ms, failure FROM tenure.webhook_attempt
      WHERE event_id = ANY (\(rows.map(\.0))) ORDER BY attempted_at DESC, slot DESC
      """
    ).decode(Int64.self, Timestamp.self, Int.self, String?.self).map {
      WebhookAttempt(eventID: $0, at: $1, took: .milliseconds($2), failure: $3)
    }
    let accounts = try await ownership.accountIDs(of: Set(rows.compactMap(\.4)))
    return rows.map { id, at, type, beginning, account, data, retryAt in
      let account = account.flatMap { accounts[$0] }
      return (
        attempts.filter { $0.eventID == id && (id != 0 || $0.at == at) }, type, account,
        beginning.map { FeedPage.event($0, of: account, data?.text) }, retryAt
      )
    }
  }

  /// Adds an attempt to the log that belongs to no delivery.
  package func log(_ attempt: WebhookAttempt) async throws {
    _ = try await database.query(attempt.insert)
  }

  /// Delivers an event again, at once and before the others of its stream.
  package func redeliver(
    _ id: Int64, by administrator: Administrator? = nil, at now: Timestamp
  ) async throws -> Redelivery {
    try await events.placeEvents()
    return try await database.withTransaction { transaction in
      let isOn = try await transaction.query("SELECT pushed_to IS NOT NULL FROM tenure.feed")
        .decodeOnly(Bool.self)
      guard isOn else { return .webhooksOff }
      let results = try await transaction.batch([
        "SELECT account_key FROM tenure.event WHERE event_id = \(id)",
        """
        INSERT INTO tenure.webhook_delivery AS d (event_id, stream, position, due_since)
        SELECT event_id, \(SQL.eventStream), position, \(now) FROM tenure.event AS e
        WHERE event_id = \(id) AND position IS NOT NULL
        ON CONFLICT (event_id) DO UPDATE SET attempts = 0, due_since = excluded.due_since,
          parked_at = NULL, last_error = NULL
        RETURNING d.stream
        """,
      ])
      guard let account = try results[0].decode(AccountKey?.self).first,
        let stream = try results[1].decode(String.self).first
      else { return .unknownEvent }
      let names = try await ownership.names(of: Set([account].compactMap(\.self)), in: transaction)
      let action = administrator.map {
        NewAdministratorAction(
          action: .redeliverEvent, subject: "\(id)", administrator: $0, account: account,
          names: names)
      }
      announce([.jobs], after: transaction)
      try await transaction.commit(
        with: [Job.schedule(.deliverEvents(stream: stream), runAt: now, at: now)]
          + (action.map { [$0.insert(at: now)] } ?? []))
      return .scheduled
    }
  }

  /// Delivers a batch of given-up events again.
  package func redeliverParked(
    _ events: [Int64]? = nil, by administrator: Administrator? = nil, at now: Timestamp
  ) async throws -> Int {
    try await database.withTransaction { transaction in
      let count = try await transaction.query(Self.pushParkedAgain(events, at: now))
        .decodeOnly(Int.self)
      guard count > 0 else { return 0 }
      announce([.jobs], after: transaction)
      guard let administrator else { return count }
      let subject = events.map { $0.map(String.init).joined(separator: " ") } ?? "parked"
      let action = administrator.action(.redeliverParkedEvents, on: subject) {
        $0.member("events", count)
      }
      try await transaction.commit(with: [action.insert(at: now)])
      return count
    }
  }

  private static func pushParkedAgain(_ events: [Int64]?, at now: Timestamp) -> SQL {
    let job = Job.Key.deliverEvents(stream: "")
    let chosen = events.map { "event_id = ANY (\($0))" as SQL } ?? "true"
    return """
      WITH again AS (
        UPDATE tenure.webhook_delivery SET attempts = 0, due_since = \(now), parked_at = NULL,
          last_error = NULL
        WHERE event_id IN (
          SELECT event_id FROM tenure.webhook_delivery
          WHERE parked_at IS NOT NULL AND \(chosen)
          ORDER BY position LIMIT \(Self.pushingBatch)
          FOR UPDATE SKIP LOCKED)
        RETURNING stream
      ), job AS (
        INSERT INTO tenure.job (kind, subject, queue, run_at, created_at)
        SELECT \(job.kind), stream, \(job.queue), \(now), \(now)
        FROM (SELECT DISTINCT stream FROM again) AS streams ORDER BY stream
        ON CONFLICT (kind, subject) DO UPDATE SET \(Job.reset)
      )
      SELECT count(*) FROM again
      """
  }

  package func webhookStatus() async throws -> WebhookStatus {
    try await database.query(
      """
      SELECT (SELECT pushed_to IS NOT NULL FROM tenure.feed),
        count(*) FILTER (WHERE parked_at IS NULL), min(due_since) FILTER (WHERE parked_at IS NULL),
        count(*) FILTER (WHERE parked_at IS NULL AND attempts > 0), count(parked_at)
      FROM tenure.webhook_delivery
      """
    ).decodeOnly(Bool.self, Int.self, Timestamp?.self, Int.self, Int.self)
  }

  /// Lists given-up deliveries in feed order.
  package func parkedDeliveries(after last: Int64? = nil, limit: Int) async throws
    -> [ParkedDelivery]
  {
    let start = last ?? 0
    let rows = try await database.query(
      """
      SELECT d.event_id, d.position, e.type, e.account_key, d.attempts, d.parked_at, d.last_error
      FROM tenure.webhook_delivery AS d
      JOIN tenure.event AS e ON e.event_id = d.event_id
      WHERE d.parked_at IS NOT NULL AND d.position > \(start)
      ORDER BY d.position LIMIT \(limit)
      """
    ).decode(
      Int64.self, Int64.self, String.self, AccountKey?.self, Int.self, Timestamp.self, String.self)
    let accounts = try await ownership.accountIDs(of: Set(rows.compactMap(\.3)))
    return rows.map { ($0, $1, $2, $3.flatMap { accounts[$0] }, $4, $5, $6) }
  }
}

extension SQL {
  /// The stream of an event `e`, within which events are delivered in order.
  fileprivate static let eventStream: SQL = """
    coalesce(
      e.account_key::text,
      'line/' || (convert_from(e.data, 'UTF8')::json ->> 'environment') || '/'
        || (convert_from(e.data, 'UTF8')::json ->> 'original_transaction_id'),
      'event/' || e.event_id)
    """
}

package struct WebhookDelivery: Hashable, Sendable {
  package let eventID: Int64
  package let stream: String
  package let attempts: Int
  /// The start of the retry window.
  package let dueSince: Timestamp
  package let body: String

  /// The retry window: a receiver that breaks on a Friday can be fixed on Monday.
  package static let patience: Duration = .days(3)
}

/// The attempts to deliver an event, latest first, with its type, account and body as far as it is
/// kept, and the time of the next attempt.
package typealias LoggedDelivery = (
  attempts: [WebhookAttempt], type: String?, accountID: String?, body: String?, retryAt: Timestamp?
)

/// An attempt to deliver an event; the latest 1,000 are kept.
package struct WebhookAttempt: Hashable, Sendable {
  /// The type of test events, whose ID is 0.
  package static let test = "test"

  package let eventID: Int64
  package let at: Timestamp
  package let took: Duration
  /// The reason as a sentence without the URL; nil: delivered.
  package let failure: String?

  package init(eventID: Int64, at: Timestamp, took: Duration, failure: String?) {
    (self.eventID, self.at, self.took, self.failure) = (eventID, at, took, failure)
  }

  fileprivate var insert: SQL {
    """
    INSERT INTO tenure.webhook_attempt (event_id, attempted_at, took_ms, failure)
    VALUES (\(eventID), \(at), \(Int(took.inMilliseconds)), \(failure?.storedSentence))
    ON CONFLICT (slot) DO UPDATE SET event_id = excluded.event_id,
      attempted_at = excluded.attempted_at, took_ms = excluded.took_ms, failure = excluded.failure
    """
  }
}

/// A given-up delivery; without an account its event concerns a charge without an owner.
package typealias ParkedDelivery = (
  eventID: Int64, position: Int64, type: String, accountID: String?, attempts: Int,
  parkedAt: Timestamp, reason: String
)

/// Whether there ever was a webhook, and deliveries by state; failing: waiting after a failure.
package typealias WebhookStatus = (
  isOn: Bool, waiting: Int, oldestDueSince: Timestamp?, failing: Int, parked: Int
)

/// The outcome of a request to deliver an event again.
package enum Redelivery: Hashable, Sendable {
  case scheduled
  /// The event never existed, or is older than the retention.
  case unknownEvent
  /// No worker was ever given a webhook.
  case webhooksOff
}
