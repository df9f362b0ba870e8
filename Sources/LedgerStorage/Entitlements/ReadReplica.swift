package import CoreMetrics
package import Logging
package import Postgres
import Synchronization

/// A standby that answers reads in the primary's stead, as long as it is known to be current
/// enough.
///
/// How current it is follows from two numbers and this process's clock. Again and again the primary
/// is asked how far its log goes; what was committed before the question is in the log up to there.
/// The standby says with each answer how much of the log it had applied by then, and so has all
/// that was committed before the latest question whose answer it has reached. Nobody's clock is
/// compared with another's, nothing depends on which of several standbys has answered, and a
/// standby that is cut off falls behind like a slow one.
package final class ReadReplica: Sendable {
  /// How often the primary and the standby are asked how far they are.
  private static let interval: Duration = .milliseconds(250)
  /// Longer than a read takes, and as long as anybody should wait for it before the primary is
  /// asked after all.
  private static let deadline: Duration = .seconds(1)
  /// The most connections to the standby: reads share them.
  package static let connectionLimit = 2
  /// How long the URI may lead to a server that is no standby before it is followed anew.
  private static let detourLimit: Duration = .seconds(10)

  /// How far a standby has applied the log; NULL from a server that is none.
  ///
  /// After a failover it names the old timeline until it has noted the new one on its disk, some
  /// minutes later at the most: until then the primary answers.
  private static let position: SQL = """
    SELECT CASE WHEN pg_is_in_recovery()
      THEN (pg_last_wal_replay_lsn() - '0/0'::pg_lsn)::bigint END,
      greatest(c.timeline_id, r.min_recovery_end_timeline)
    FROM pg_control_checkpoint() AS c, pg_control_recovery() AS r
    """
  /// How far the primary's log goes, as far as commits have been confirmed.
  private static let end: SQL = """
    SELECT (l.lsn - '0/0'::pg_lsn)::bigint,
      ('x' || left(pg_walfile_name(l.lsn), 8))::bit(32)::integer
    FROM pg_current_wal_flush_lsn() AS l (lsn)
    """

  private struct State {
    var progress: ReplicaProgress
    /// Follows the URI; another one after a detour.
    var pool: ConnectionPool
    var reader: HoldingReader
    var noStandbySince: ContinuousClock.Instant?
    var isUsed = false
  }

  private let configuration: ConnectionPool.Configuration
  private let primary: ConnectionPool
  private let changes: RecentChanges
  private let logger: Logger
  private let age: Meter
  private let state: Mutex<State>

  /// Uses no standby before it is run.
  ///
  /// - Parameters:
  ///   - configuration: How to reach it, or any of several.
  ///   - primary: What it follows.
  ///   - changes: Of what this process has changed, so that its callers read it.
  ///   - staleness: How old an answer may be.
  ///   - logger: Told when it is used and when not.
  ///   - metrics: Shows how old what it has may be.
  package init(
    configuration: ConnectionPool.Configuration, primary: ConnectionPool,
    changes: RecentChanges, staleness: Duration, logger: Logger,
    metrics: any MetricsFactory = MetricsSystem.factory
  ) {
    changes.remember(for: staleness)
    self.changes = changes
    var configuration = configuration
    configuration.acquireTimeout = Self.deadline
    configuration.connectionLimit = Self.connectionLimit
    self.configuration = configuration
    self.primary = primary
    self.logger = logger
    age = Meter(label: "tenure_replica_age_seconds", factory: metrics)
    age.set(Double.infinity)
    let pool = ConnectionPool(configuration: configuration, logger: logger)
    state = Mutex(
      State(
        progress: ReplicaProgress(staleness: staleness), pool: pool, reader: Self.reader(pool)))
  }

  private static func reader(_ pool: ConnectionPool) -> HoldingReader {
    HoldingReader(standby: pool, position: position, deadline: deadline)
  }

  /// For each account, whether the standby may be asked.
  package func mayAnswer(for accountIDs: [String]) -> [Bool] {
    let (now, changed) = (ContinuousClock.now, changes.latest(of: accountIDs))
    return state.withLock { state in
      changed.map { state.progress.isKnown(until: state.progress.needed(since: [$0], at: now)) }
    }
  }

  /// Reads what accounts hold, unless what the standby has turns out to be too old.
  ///
  /// - Parameters:
  ///   - accountIDs: Accounts for which it may be asked.
  ///   - completion: As for ``HoldingReader/read(_:completion:)``; nil: ask the primary.
  func read(
    _ accountIDs: [String], completion: @escaping @Sendable (HoldingRows?) -> Void
  ) {
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

  /// The same for a task that waits; nil also where the standby may not be asked.
  func rows(of accountIDs: [String]) async -> HoldingRows? {
    guard mayAnswer(for: accountIDs).allSatisfy(\.self) else { return nil }
    return await withCheckedContinuation { continuation in
      read(accountIDs) { continuation.resume(returning: $0) }
    }
  }

  /// Follows the primary and the standby until it is cancelled.
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
    // None where the server does not answer; of one that does, nil where it is no standby.
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
    case true?: logger.notice("Reads are answered by the replica")
    case false?: logger.warning("Reads are answered by the primary: the replica is behind or away")
    case nil: break
    }
    await old?.close()
  }
}

extension LogPosition {
  /// Reads what a server answers to the question how far it has applied the log; nil: it is no
  /// standby.
  static func positions(from rows: Rows) throws -> [LogPosition?] {
    try rows.decode(Int64?.self, Int32.self).map { bytes, timeline in
      bytes.map { LogPosition(bytes: $0, timeline: timeline) }
    }
  }
}

/// A place in the log of PostgreSQL.
struct LogPosition: Hashable, Sendable {
  /// Bytes from its beginning.
  var bytes: Int64
  /// The history that it is a place in: each failover begins another one, in which the same number
  /// is another place.
  var timeline: Int32
}

/// What a standby is known to have, and what reads of it have to have; without any I/O.
struct ReplicaProgress: Sendable {
  typealias Instant = ContinuousClock.Instant

  /// How far the primary's log went when it was asked: what was committed before is in it.
  private struct Question {
    var at: Instant
    var end: LogPosition
  }

  private let staleness: Duration
  /// The oldest first; those that no answer needs any more are dropped.
  private var questions: [Question] = []
  /// Whatever was committed before this the standby has; nil: nothing is known of it.
  private(set) var knownUntil: Instant?

  init(staleness: Duration) {
    self.staleness = staleness
  }

  /// The primary was asked, and its log went so far.
  mutating func asked(at moment: Instant, end: LogPosition) {
    questions.append(Question(at: moment, end: end))
    // All but the last one of those that are too old to be of use.
    while questions.count > 1, moment - questions[1].at > staleness { questions.removeFirst() }
  }

  /// The standby has applied the log so far; nil: it has not answered, or is none.
  ///
  /// One that is left behind in an older history may be far ahead in that: it has nothing of this
  /// one.
  mutating func applied(_ position: LogPosition?) {
    knownUntil = position.flatMap { position in
      questions.last { $0.end.timeline == position.timeline && $0.end.bytes <= position.bytes }?.at
    }
  }

  /// Whether what the standby is known to have is new enough for anybody.
  func isCurrent(at now: Instant) -> Bool { isKnown(until: now - staleness) }

  /// Until when the standby has to know of commits, to be asked about what was changed then.
  func needed(since changes: [Instant?], at now: Instant) -> Instant {
    changes.compactMap(\.self).reduce(now - staleness, max)
  }

  func isKnown(until moment: Instant) -> Bool { knownUntil.map { $0 >= moment } ?? false }

  /// How old what the standby has may be; nil: nothing is known of it.
  func age(at now: Instant) -> Duration? { knownUntil.map { now - $0 } }
}
