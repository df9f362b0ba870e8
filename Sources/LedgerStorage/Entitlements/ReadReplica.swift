package import CoreMetrics
package import Logging
package import Postgres
import Synchronization

/// A standby that answers reads while it is known to be current enough.
///
/// The primary is polled for the end of its log; an answer of the standby has the position that it
/// had applied, so it includes all commits before the latest poll whose position it has reached. No
/// two clocks are compared, and a standby that is cut off ages like a slow one.
package final class ReadReplica: Sendable {
  /// Interval of polling the primary and the standby for their log positions.
  private static let interval: Duration = .milliseconds(250)
  /// More than a read takes, and short enough to fall back to the primary afterwards.
  private static let deadline: Duration = .seconds(1)
  /// Connections to the standby at most; reads share them.
  package static let connectionLimit = 2
  /// The time for which the URI may lead to a primary before a new pool resolves it again.
  private static let detourLimit: Duration = .seconds(10)

  /// The log position that a standby has applied; NULL from a primary.
  ///
  /// After a failover it reports the old timeline for a few minutes, and the primary answers.
  private static let position: SQL = """
    SELECT CASE WHEN pg_is_in_recovery()
      THEN (pg_last_wal_replay_lsn() - '0/0'::pg_lsn)::bigint END,
      greatest(c.timeline_id, r.min_recovery_end_timeline)
    FROM pg_control_checkpoint() AS c, pg_control_recovery() AS r
    """
  /// The position up to which the primary's log is flushed, which includes all confirmed commits.
  private static let end: SQL = """
    SELECT (l.lsn - '0/0'::pg_lsn)::bigint,
      ('x' || left(pg_walfile_name(l.lsn), 8))::bit(32)::integer
    FROM pg_current_wal_flush_lsn() AS l (lsn)
    """

  private struct State {
    var progress: ReplicaProgress
    /// Replaced after ``detourLimit``, to resolve the URI again.
    var pool: ConnectionPool
    var reader: HoldingBatcher
    var noStandbySince: ContinuousClock.Instant?
    var isUsed = false
  }

  private let configuration: ConnectionPool.Configuration
  private let primary: ConnectionPool
  private let changes: RecentWrites
  private let logger: Logger
  private let age: Meter
  private let state: Mutex<State>

  /// Creates a replica that answers, once ``run()`` follows it, from data of this `staleness`.
  ///
  /// - Parameter changes: This process's writes, so that its callers read their own.
  package init(
    configuration: ConnectionPool.Configuration, primary: ConnectionPool, changes: RecentWrites,
    staleness: Duration, logger: Logger, metrics: any MetricsFactory = MetricsSystem.factory
  ) {
    changes.remember(for: staleness)
    self.changes = changes
    var configuration = configuration
    configuration.acquireTimeout = Self.deadline
    configuration.connectionLimit = Self.connectionLimit
    (self.configuration, self.primary, self.logger) = (configuration, primary, logger)
    age = Meter(label: "tenure_replica_age_seconds", factory: metrics)
    age.set(Double.infinity)
    let pool = ConnectionPool(configuration: configuration, logger: logger)
    state = Mutex(
      State(progress: ReplicaProgress(staleness: staleness), pool: pool, reader: Self.reader(pool)))
  }

  private static func reader(_ pool: ConnectionPool) -> HoldingBatcher {
    HoldingBatcher(database: pool, position: position, deadline: deadline)
  }

  /// Whether the standby may answer, for each account.
  package func mayAnswer(for accountIDs: [String]) -> [Bool] {
    let (now, changed) = (ContinuousClock.now, changes.latest(of: accountIDs))
    return state.withLock { state in
      changed.map { state.progress.isKnown(until: state.progress.needed(since: [$0], at: now)) }
    }
  }

  /// Reads holdings that ``mayAnswer(for:)`` allows; nil: the standby is too old, ask the primary.
  func read(_ accountIDs: [String], completion: @escaping @Sendable (HoldingRows?) -> Void) {
    let changed = changes.latest(of: accountIDs)
    let (reader, needed) = state.withLock { state in
      (state.reader, state.progress.needed(since: changed, at: .now))
    }
    reader.read(accountIDs) { [self] result in
      let rows = try? result.get()
      let isCurrent = state.withLock { state in
        state.progress.applied(rows?.position)
        return state.progress.isKnown(until: needed)
      }
      completion(isCurrent ? rows : nil)
    }
  }

  /// Reads holdings; nil if the primary has to be asked.
  func rows(of accountIDs: [String]) async -> HoldingRows? {
    guard mayAnswer(for: accountIDs).allSatisfy(\.self) else { return nil }
    return await withCheckedContinuation { continuation in
      read(accountIDs) { continuation.resume(returning: $0) }
    }
  }

  package func run() async {
    while !Task.isCancelled {
      await look()
      try? await Task.sleep(for: Self.interval)
    }
  }

  private func look() async {
    let askedAt = ContinuousClock.now
    let end = try? await primary.query(Self.end, deadline: Self.deadline)
      .decodeOnly(Int64.self, Int32.self)
    let pool = state.withLock { state in
      if let end {
        state.progress.asked(at: askedAt, end: LogPosition(bytes: end.0, timeline: end.1))
      }
      return state.pool
    }
    // `found` is nil if the server doesn't answer; its position is nil if it is no standby.
    let found = try? LogPosition.positions(
      from: await pool.query(Self.position, deadline: Self.deadline))
    let now = ContinuousClock.now
    let (change, old, age) = state.withLock { state in
      let position = found?.first ?? nil
      state.progress.applied(position)
      let isDetour = found != nil && position == nil
      state.noStandbySince = isDetour ? state.noStandbySince ?? now : nil
      var old: ConnectionPool?
      if let since = state.noStandbySince, now - since > Self.detourLimit {
        old = state.pool
        state.pool = ConnectionPool(configuration: configuration, logger: logger)
        state.reader = Self.reader(state.pool)
        state.noStandbySince = nil
      }
      let isUsed = state.progress.isCurrent(at: now)
      defer { state.isUsed = isUsed }
      return (isUsed == state.isUsed ? nil : isUsed, old, state.progress.age(at: now))
    }
    self.age.set(age.map { $0 / .seconds(1) } ?? .infinity)
    switch change {
    case true?: logger.notice("Reads use the replica")
    case false?: logger.warning("Reads use the primary: the replica is behind or unreachable")
    case nil: break
    }
    await old?.close()
  }
}

extension LogPosition {
  /// Decodes the answer to ``ReadReplica``'s query; nil if the server is not a standby.
  static func positions(from rows: Rows) throws -> [LogPosition?] {
    try rows.decode(Int64?.self, Int32.self).map { bytes, timeline in
      bytes.map { LogPosition(bytes: $0, timeline: timeline) }
    }
  }
}

/// A position in PostgreSQL's write-ahead log.
struct LogPosition: Hashable, Sendable {
  var bytes: Int64
  /// The timeline: each failover begins a new one, on which the same byte position differs.
  var timeline: Int32
}

/// The state that a standby is known to include, and that reads require; without any I/O.
struct ReplicaProgress: Sendable {
  typealias Instant = ContinuousClock.Instant

  /// The end of the primary's log when polled; it contains everything committed before.
  private struct Question {
    var at: Instant
    var end: LogPosition
  }

  private let staleness: Duration
  private var questions: [Question] = []
  /// The standby includes everything committed before this; nil if unknown.
  private(set) var knownUntil: Instant?

  init(staleness: Duration) {
    self.staleness = staleness
  }

  mutating func asked(at moment: Instant, end: LogPosition) {
    questions.append(Question(at: moment, end: end))
    // Keep only the last of the questions that are older than the staleness.
    while questions.count > 1, moment - questions[1].at > staleness { questions.removeFirst() }
  }

  /// Notes the applied position (nil: no standby answered); other timelines don't count.
  mutating func applied(_ position: LogPosition?) {
    knownUntil = position.flatMap { position in
      questions.last { $0.end.timeline == position.timeline && $0.end.bytes <= position.bytes }?.at
    }
  }

  /// Whether the standby may answer for accounts that weren't changed recently.
  func isCurrent(at now: Instant) -> Bool { isKnown(until: now - staleness) }

  /// The time up to which the standby must include commits, given when accounts were changed.
  func needed(since changes: [Instant?], at now: Instant) -> Instant {
    changes.compactMap(\.self).reduce(now - staleness, max)
  }

  func isKnown(until moment: Instant) -> Bool { knownUntil.map { $0 >= moment } ?? false }

  /// The maximum age of the standby's data; nil if unknown.
  func age(at now: Instant) -> Duration? { knownUntil.map { now - $0 } }
}
