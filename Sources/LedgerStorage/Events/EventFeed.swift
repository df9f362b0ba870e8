import JSONText
import Postgres
import Subscriptions

package struct EventFeed: LedgerStore {
  package let core: LedgerCore

  /// The events that get positions in one transaction, for which readers wait.
  private static let placingBatch = 2000

  /// Assigns feed positions to committed events, and returns the last one.
  ///
  /// Positions are assigned by one transaction at a time and without gaps, so that a reader skips
  /// nothing. The events of an account keep their order, because they are written under its lock
  /// and IDs increase. Events of different accounts are in no particular order.
  @discardableResult
  package func placeEvents() async throws -> Int64 {
    while true {
      // min() uses an index; EXISTS can be planned as a scan of all events.
      let (isBehind, end) = try await database.query(
        """
        SELECT (SELECT min(event_id) FROM tenure.event WHERE position IS NULL) IS NOT NULL,
          \(SQL.feedEnd)
        FROM tenure.feed AS f
        """
      ).decodeOnly(Bool.self, Int64.self)
      guard isBehind else { return end }
      let (position, count) = try await database.withTransaction(isolation: .readCommitted) {
        transaction in
        try await transaction.commit(with: Self.positioning)[1].decodeOnly(Int64.self, Int.self)
      }
      // Later events are left to the next call: writers could keep this one busy forever.
      if count < Self.placingBatch { return position }
    }
  }

  /// The statements that assign positions; the second sees what is committed before the lock.
  ///
  /// The row is only locked: updates would leave as many dead versions of it.
  static let positioning: [SQL] = [
    "SELECT FROM tenure.feed FOR UPDATE",
    """
    WITH last AS (
      SELECT \(SQL.feedEnd) AS position FROM tenure.feed AS f
    ), place AS (
      SELECT event_id, row_number() OVER (ORDER BY event_id) AS number
      FROM (
        SELECT event_id FROM tenure.event WHERE position IS NULL
        ORDER BY event_id LIMIT \(placingBatch)
      ) AS next
    ), placed AS (
      UPDATE tenure.event AS e SET position = l.position + p.number
      FROM place AS p, last AS l
      WHERE e.event_id = p.event_id
      RETURNING e.position
    )
    SELECT coalesce((SELECT max(position) FROM placed), l.position), (SELECT count(*) FROM placed)
    FROM last AS l
    """,
  ]

  // MARK: Reading

  /// Assigns positions to new events and reads a page of the feed.
  package func events(after cursor: FeedCursor?, limit: Int) async throws -> FeedReading {
    try await placeEvents()
    // One statement, so that no event is deleted between the check of the cursor and the page.
    let rows = try await database.query(
      """
      SELECT f.trimmed_to, \(SQL.feedEnd), \(SQL.microseconds("s.stored_at")), e.position,
        \(SQL.microseconds("e.stored_at")), \(SQL.eventInFeed)
      FROM tenure.feed AS f
      LEFT JOIN LATERAL (
        SELECT coalesce(
          (SELECT stored_at FROM tenure.event
            WHERE position = coalesce(\(cursor?.position), f.trimmed_to)),
          CASE WHEN coalesce(\(cursor?.position), f.trimmed_to) = f.trimmed_to
            THEN f.trimmed_stored_at END) AS stored_at
      ) AS s ON true
      LEFT JOIN LATERAL (
        SELECT event_id, position, type, occurred_at, account_key, data, stored_at
        FROM tenure.event WHERE position > coalesce(\(cursor?.position), f.trimmed_to)
        ORDER BY position LIMIT \(limit)
      ) AS e ON true
      ORDER BY e.position
      """
    ).decode(
      Int64.self, Int64.self, Int64?.self, Int64?.self, Int64?.self, String?.self,
      AccountKey?.self, CompressedText?.self)
    guard let (trimmedTo, end, storedAt, _, _, _, _, _) = rows.first else {
      preconditionFailure("The feed has its row from the schema.")
    }
    let start = FeedCursor(position: cursor?.position ?? trimmedTo, storedAt: storedAt)
    guard start.position <= end else { return .cursorUnknown }
    guard start.position >= trimmedTo else { return .cursorExpired }
    if let noted = cursor?.storedAt, let storedAt, noted != storedAt { return .cursorUnknown }
    let last = rows.last.flatMap { row in
      row.3.map { FeedCursor(position: $0, storedAt: row.4) }
    }
    let accounts = try await ownership.accountIDs(of: Set(rows.compactMap(\.6)))
    let events = rows.compactMap { row in
      row.5.map { FeedPage.event($0, of: row.6.flatMap { accounts[$0] }, row.7?.text) }
    }
    return .page(FeedPage(events: events, next: last ?? start))
  }
}

package enum FeedReading: Hashable, Sendable {
  case page(FeedPage)
  /// Events after the cursor are deleted, because they are older than the retention.
  case cursorExpired
  /// The position is beyond the feed or has another event: the database was restored.
  case cursorUnknown
}

package struct FeedPage: Hashable, Sendable {
  /// Each as a JSON object, as in the HTTP API.
  package let events: [String]
  package let next: FeedCursor

  /// Writes an event as in the HTTP API, from `SQL.eventInFeed` and the account's name.
  static func event(_ beginning: String, of account: String?, _ data: String?) -> String {
    var json = JSONWriter(capacity: 512)
    json.write(json: beginning)
    account.map { json.write($0) } ?? json.null()
    return json.text + ",\"data\":" + (data ?? "null") + "}"
  }
}

extension SQL {
  /// The position of the last event in the feed `f`, which may be deleted; 0: there was none.
  static let feedEnd: SQL = """
    greatest(f.trimmed_to, (SELECT max(position) FROM tenure.event))
    """

  /// A timestamp as microseconds since 1970.
  fileprivate static func microseconds(_ moment: SQL) -> SQL {
    "(extract(epoch FROM \(moment)) * 1000000)::bigint"
  }

  /// An event `e`: the JSON before its account, the account's key (named elsewhere), its data.
  static let eventInFeed: SQL = """
    '{"id":"' || e.event_id || '","type":"' || e.type || '","occurred_at":"'
      || to_char(e.occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
      || '","account_id":', e.account_key, e.data
    """
}

/// A position in the feed, after an event.
///
/// The date distinguishes the event from others with the same position: after a restore from a
/// backup, positions are assigned again.
package struct FeedCursor: Hashable, Sendable {
  /// 0: before the first event.
  package let position: Int64
  /// When the event was stored, in microseconds since 1970; nil before the first event.
  package let storedAt: Int64?

  package init(position: Int64, storedAt: Int64? = nil) {
    self.position = position
    self.storedAt = storedAt
  }

  package init?(_ text: String) {
    let parts = text.split(separator: "-", maxSplits: 1, omittingEmptySubsequences: false)
    guard let position = Self.number(parts[0], radix: 10) else { return nil }
    if parts.count == 1 {
      guard position == 0 else { return nil }
      self.init(position: position)
    } else {
      guard let storedAt = Self.number(parts[1], radix: 36) else { return nil }
      self.init(position: position, storedAt: storedAt)
    }
  }

  package var text: String {
    storedAt.map { "\(position)-\(String($0, radix: 36))" } ?? "\(position)"
  }

  private static func number(_ text: Substring, radix: Int) -> Int64? {
    // Int64 would accept a sign.
    text.first.flatMap { $0 == "-" || $0 == "+" ? nil : Int64(text, radix: radix) }
  }
}
