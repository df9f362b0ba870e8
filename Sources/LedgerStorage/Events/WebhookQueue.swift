import Foundation
import JSONText
import Postgres
package import Subscriptions

/// The pushing of events.
///
/// What follows in the feed becomes deliveries, each in a stream: those of one account, or of one
/// line whose charge nobody owns. A stream has one job, which makes its deliveries in order.
extension Ledger {
  /// How many events become deliveries at once: few enough that the feed is not locked for long.
  package static let pushingBatch = 1000

  /// Makes deliveries of the events that are new in the feed, and jobs of their streams.
  ///
  /// The first time it makes none: what was before webhooks were turned on is not pushed.
  ///
  /// - Parameter now: From when on the deliveries are due.
  /// - Returns: How many there are; ``pushingBatch``: there may be more to do.
  /// - Throws: What the database says.
  package func pushEvents(at now: Timestamp) async throws -> Int {
    let end = try await placeEvents()
    // Without a lock: mostly, there is nothing new.
    let pushed = try await database.query("SELECT pushed_to FROM tenure.feed")
      .decodeOnly(Int64?.self)
    if let pushed, pushed >= end { return 0 }
    let count = try await database.withTransaction { transaction in
      try await transaction.commit(with: ["SELECT FROM tenure.feed FOR UPDATE", push(at: now)])[1]
        .decodeOnly(Int.self)
    }
    if count > 0 { bell.ring(.jobs) }
    return count
  }

  private func push(at now: Timestamp) -> SQL {
    let task = Job.Task.deliverEvents(stream: "")
    // A stream whose job is there already keeps the time at which it is tried again; a worker that
    // is at it finds that there is more to do.
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
        INSERT INTO tenure.job AS j (kind, subject, lane, run_at, created_at)
        -- Citus adds the identity column to this list, so the streams are made distinct below it.
        SELECT \(task.kind), stream, \(task.lane), \(now), \(now)
        FROM (SELECT DISTINCT stream FROM new) AS streams ORDER BY stream
        ON CONFLICT (kind, subject) DO UPDATE SET generation = j.generation + 1
      )
      UPDATE tenure.feed SET pushed_to = coalesce((SELECT max(position) FROM new), position)
      RETURNING (SELECT count(*) FROM new)
      """
  }

  /// Takes the next delivery of a stream, after noting that the one before was made.
  ///
  /// Where there is none, or the job is to pause, it ends in the same commit.
  ///
  /// - Parameters:
  ///   - job: The stream's, claimed.
  ///   - delivered: What was made since; nil at first.
  ///   - isPausing: Whether to leave the rest for the next time.
  ///   - now: When the rest is due then.
  /// - Returns: The next; nil: the job has ended, or another worker has it.
  /// - Throws: What the database says.
  package func nextDelivery(
    _ job: Job, after delivered: WebhookDelivery? = nil, isPausing: Bool = false,
    at now: Timestamp
  ) async throws -> WebhookDelivery? {
    let stream = job.task.subject
    return try await database.withTransaction { transaction in
      let results = try await transaction.batch([
        "DELETE FROM tenure.webhook_delivery WHERE event_id = \(delivered?.eventID)",
        // Whoever makes new deliveries of the stream waits here until the job has ended.
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
        // Of an account's stream each event is the account's.
        """
        SELECT account_id FROM tenure.account_by_key WHERE account_key = \(UUID(uuidString: stream))
        """,
      ])
      guard results[1].count == 1 else { return nil }
      guard
        let (id, attempts, dueSince, beginning, _, data) = try results[2].decodeFirst(
          Int64.self, Int.self, Timestamp.self, String.self, AccountKey?.self, String.self)
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
        body: FeedPage.event(beginning, of: account, data))
    }
  }

  /// Notes that a delivery failed, and lets its stream wait.
  ///
  /// - Parameters:
  ///   - delivery: What was tried.
  ///   - job: Its stream's, claimed.
  ///   - reason: Why it failed.
  ///   - failures: How often the stream has failed in a row.
  ///   - retryAt: When it is tried again.
  ///   - isLast: Whether this delivery is given up, so that the stream goes on with the next.
  ///   - now: When it failed.
  /// - Throws: What the database says.
  package func postpone(
    _ delivery: WebhookDelivery, of job: Job, because reason: String, failures: Int,
    until retryAt: Timestamp, isLast: Bool, at now: Timestamp
  ) async throws {
    _ = try await database.batch([
      """
      UPDATE tenure.webhook_delivery SET attempts = attempts + 1,
        last_error = \(reason.storedSentence), parked_at = \(isLast ? now : nil)
      WHERE event_id = \(delivery.eventID) AND parked_at IS NULL AND EXISTS (
        SELECT FROM tenure.job WHERE job_id = \(job.id) AND locked_by = \(job.worker))
      """,
      // Whatever was added to the stream since it was claimed waits as well.
      """
      UPDATE tenure.job SET run_at = \(retryAt), attempts = \(failures), created_at = \(now),
        last_error = \(reason.storedSentence), locked_until = NULL, locked_by = NULL
      WHERE job_id = \(job.id) AND locked_by = \(job.worker)
      """,
    ])
  }

  // MARK: Looking after it

  /// Pushes an event again, whether it was delivered, waits, or was given up.
  ///
  /// It goes ahead of whatever waits of its stream, which is tried at once.
  ///
  /// - Parameters:
  ///   - id: The event.
  ///   - administrator: Who asks for it; nil: nobody of whom there is to be a record.
  ///   - now: From when on it is due.
  /// - Returns: Whether it will be pushed.
  /// - Throws: What the database says.
  package func redeliver(
    _ id: Int64, by administrator: Administrator? = nil, at now: Timestamp
  ) async throws -> Redelivery {
    try await placeEvents()
    let redelivery: Redelivery = try await database.withTransaction { transaction in
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
      guard
        let account = try results[0].decode(AccountKey?.self).first,
        let stream = try results[1].decode(String.self).first
      else { return .unknownEvent }
      let names = try await names(of: Set([account].compactMap(\.self)), in: transaction)
      let act = administrator.map {
        NewAct(
          action: .redeliverEvent, subject: "\(id)", administrator: $0, account: account,
          names: names)
      }
      try await transaction.commit(
        with: [Job.schedule(.deliverEvents(stream: stream), runAt: now, at: now)]
          + (act.map { [$0.insert(at: now)] } ?? []))
      return .scheduled
    }
    if redelivery == .scheduled { bell.ring(.jobs) }
    return redelivery
  }

  /// Pushes what was given up again, as much as goes into one commit.
  ///
  /// - Parameters:
  ///   - events: Only these; nil: all.
  ///   - administrator: Who asks for it; nil: nobody of whom there is to be a record.
  ///   - now: From when on it is due.
  /// - Returns: How many there were; 0: there are none left.
  /// - Throws: What the database says.
  package func redeliverParked(
    _ events: [Int64]? = nil, by administrator: Administrator? = nil, at now: Timestamp
  ) async throws -> Int {
    let count = try await database.withTransaction { transaction in
      let count = try await transaction.query(Self.pushParkedAgain(events, at: now))
        .decodeOnly(Int.self)
      guard count > 0, let administrator else { return count }
      let act = NewAct(
        action: .redeliverParkedEvents,
        subject: events.map { $0.map(String.init).joined(separator: " ") } ?? "parked",
        administrator: administrator,
        data: NewAct.data { $0.member("events", count) })
      try await transaction.commit(with: [act.insert(at: now)])
      return count
    }
    if count > 0 { bell.ring(.jobs) }
    return count
  }

  private static func pushParkedAgain(_ events: [Int64]?, at now: Timestamp) -> SQL {
    let task = Job.Task.deliverEvents(stream: "")
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
        INSERT INTO tenure.job (kind, subject, lane, run_at, created_at)
        SELECT \(task.kind), stream, \(task.lane), \(now), \(now)
        FROM (SELECT DISTINCT stream FROM again) AS streams ORDER BY stream
        ON CONFLICT (kind, subject) DO UPDATE SET \(Job.anew)
      )
      SELECT count(*) FROM again
      """
  }

  /// How far the pushing of events is behind, and what it has given up.
  package func webhookStanding() async throws -> WebhookStanding {
    let (isOn, waiting, oldest, failing, parked) = try await database.query(
      """
      SELECT (SELECT pushed_to IS NOT NULL FROM tenure.feed),
        count(*) FILTER (WHERE parked_at IS NULL), min(due_since) FILTER (WHERE parked_at IS NULL),
        count(*) FILTER (WHERE parked_at IS NULL AND attempts > 0), count(parked_at)
      FROM tenure.webhook_delivery
      """
    ).decodeOnly(Bool.self, Int.self, Timestamp?.self, Int.self, Int.self)
    return WebhookStanding(
      isOn: isOn, waiting: waiting, oldestDueSince: oldest, failing: failing, parked: parked)
  }

  /// What was given up, the earliest event first.
  ///
  /// - Parameters:
  ///   - last: Only those behind this place in the feed; nil: from the first one on.
  ///   - limit: How many at the most.
  /// - Returns: The deliveries.
  /// - Throws: What the database says.
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
    let accounts = try await accountIDs(of: Set(rows.compactMap(\.3)))
    return rows.map {
      ParkedDelivery(
        eventID: $0, position: $1, type: $2, accountID: $3.flatMap { accounts[$0] }, attempts: $4,
        parkedAt: $5, reason: $6)
    }
  }
}

extension SQL {
  /// The stream of an event `e`: whatever keeps its order to it.
  fileprivate static let eventStream: SQL = """
    coalesce(
      e.account_key::text,
      'line/' || (e.data::json ->> 'environment') || '/'
        || (e.data::json ->> 'original_transaction_id'),
      'event/' || e.event_id)
    """
}

/// An event that is still to be pushed to the webhook, or was given up.
package struct WebhookDelivery: Hashable, Sendable {
  package let eventID: Int64
  /// Deliveries of a stream are made in their order, one after the other.
  package let stream: String
  /// How often it has failed.
  package let attempts: Int
  /// From when on patience counts.
  package let dueSince: Timestamp
  /// The event as the feed tells it, in JSON.
  package let body: String

  /// After this time an event is given up: a receiver that breaks on a Friday is mended on Monday.
  package static let patience: Duration = .days(3)
}

/// A delivery that was given up, for those who look after it.
package struct ParkedDelivery: Hashable, Sendable {
  package let eventID: Int64
  /// Its place in the feed.
  package let position: Int64
  package let type: String
  /// Nil: it concerns a charge that nobody owns.
  package let accountID: String?
  package let attempts: Int
  package let parkedAt: Timestamp
  package let reason: String
}

/// How the pushing of events stands.
package struct WebhookStanding: Hashable, Sendable {
  /// Whether any event was ever to be pushed.
  package let isOn: Bool
  package let waiting: Int
  /// Since when the oldest of those that wait is due.
  package let oldestDueSince: Timestamp?
  /// How many of those that wait have failed before.
  package let failing: Int
  package let parked: Int
}

/// What came of a request to push an event again.
package enum Redelivery: Hashable, Sendable {
  /// It will be pushed, ahead of whatever waits of its stream.
  case scheduled
  /// There is no such event, or it is older than the retention.
  case unknownEvent
  /// No worker was ever given a webhook.
  case webhooksOff
}
