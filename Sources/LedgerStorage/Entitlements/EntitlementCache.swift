package import CoreMetrics
import JSONText
package import Logging
import Postgres
import Subscriptions
import Synchronization

/// Cached answers to reads, none older than the database's own answer.
///
/// All are right as of one snapshot, the *known* one. Each batch of reads asks for the accounts
/// that changed since (`account_change`, written by triggers in the commit of the change), late
/// commits included, and answers from memory only after those were dropped: a read that began after
/// a commit never misses it, on any number of servers.
///
/// Everything is dropped where the changes are incomplete: on another server, after a crash, a
/// failover or a restored backup (see `account_change_log`), and if unseen changes were trimmed.
package final class EntitlementCache: Sendable {
  /// More changes at once drop everything.
  private static let mostChanges = 10_000
  /// How long reads do without, where the changes can't be read.
  private static let pause: Duration = .seconds(60)

  package static let smallestLimit = AnswerStore.smallestLimit

  struct Inquiry: Sendable {
    /// The accounts that are not kept, whose rows have to be read.
    let missing: [String]
    /// Nil: none yet.
    fileprivate let known: TransactionSnapshot?
    fileprivate let generation: Int

    /// Selects the changes since the known snapshot; sent after the rows, to see those in between.
    var changes: SQL { EntitlementCache.changes(since: known?.text) }
  }

  /// The right of one batch to answers as of its changes.
  struct Ticket: Sendable {
    fileprivate let generation: Int
    /// The number of its changes; 0 if its rows may be older than the known snapshot.
    fileprivate let number: Int
  }

  private struct Answer: Sendable {
    let log: String
    let snapshot: TransactionSnapshot
    /// Whether no changes since were trimmed.
    let isComplete: Bool
    /// Nil for all accounts.
    let changed: [String?]

    /// - Returns: Nil if there is no log.
    init?(_ rows: Rows) throws {
      guard
        let (log, text, isComplete, changed) = try rows.decodeFirst(
          String.self, String.self, Bool.self, [String?].self)
      else { return nil }
      guard let snapshot = TransactionSnapshot(text) else { throw DecodingFault.malformed }
      (self.log, self.snapshot) = (log, snapshot)
      (self.isComplete, self.changed) = (isComplete, changed)
    }

    var isAboutAll: Bool { changed.count > mostChanges || changed.contains { $0 == nil } }
  }

  private enum Mode {
    case off(until: ContinuousClock.Instant)
    case starting, on
  }

  private enum Outcome {
    case settled(Ticket?)
    /// Everything is to be dropped, once the catalogue is at least as new as the answer.
    case outdated(counter: Counter)
  }

  private struct State {
    var mode = Mode.off(until: .now)
    var answers: AnswerStore
    /// The server's history that the known snapshot belongs to.
    var log: String?
    /// All answers are right as of it.
    var known: TransactionSnapshot?
    /// Incremented when everything is dropped.
    var generation = 0
    /// The number of changes that were applied, in this order.
    var number = 0
    /// The number of each account's last change; rows read before it are not kept.
    var changedAt: [AccountID: Int] = [:]
    /// Rows read before this one are not kept: of older ones `changedAt` is forgotten.
    var remembersFrom = 0

    mutating func drop() -> Int {
      generation += 1
      changedAt = [:]
      return answers.removeAll()
    }
  }

  private let ledger: Ledger
  private let refreshCatalogue: @Sendable () async throws -> Void
  private let logger: Logger
  private let metrics: ReadCacheMetrics
  private let state: Mutex<State>

  /// - Parameter limit: The bytes that the answers may take, at least ``smallestLimit``.
  package init(
    limit: Int, ledger: Ledger, catalogue: CatalogueCache, logger: Logger,
    metrics: any MetricsFactory = MetricsSystem.factory
  ) {
    self.ledger = ledger
    refreshCatalogue = catalogue.refresh
    self.logger = logger
    self.metrics = ReadCacheMetrics(metrics)
    state = Mutex(State(answers: AnswerStore(limit: limit)))
  }

  /// Batches reads that may be answered from memory.
  var batcher: HoldingBatcher { HoldingBatcher(database: ledger.database, cache: self) }

  // MARK: A batch

  /// The question of a batch; nil while nothing is kept.
  func inquiry(for accountIDs: [String]) -> Inquiry? {
    let (inquiry, begins) = state.withLock { state -> (Inquiry?, Bool) in
      switch state.mode {
      case .on:
        let missing = accountIDs.filter { !state.answers.contains($0) }
        return (Inquiry(missing: missing, known: state.known, generation: state.generation), false)
      case .off(let until) where until <= .now:
        state.mode = .starting
        return (nil, true)
      case .off, .starting: return (nil, false)
      }
    }
    if begins { begin() }
    if let inquiry {
      metrics.misses.increment(by: inquiry.missing.count)
      metrics.hits.increment(by: accountIDs.count - inquiry.missing.count)
    }
    return inquiry
  }

  /// Applies the changes that a batch found.
  ///
  /// - Parameter deliver: Called once, usually at once; without a ticket, only rows may answer.
  func settle(
    _ rows: Rows, _ inquiry: Inquiry, then deliver: @escaping @Sendable (Ticket?) -> Void
  ) {
    let answer: Answer
    do {
      guard let found = try Answer(rows) else {
        // It was reset by a crash, for example.
        turnOff(until: .now)
        return deliver(nil)
      }
      answer = found
    } catch {
      refuse(error)
      return deliver(nil)
    }
    switch state.withLock({ apply(answer, inquiry, &$0) }) {
    case .settled(let ticket): deliver(ticket)
    case .outdated(let counter):
      // Until the catalogue is read, the known snapshot stays, so every batch comes here.
      Task { [self] in
        do {
          try await refreshCatalogue()
          deliver(state.withLock { dropAll(at: answer, inquiry, counter, &$0) })
        } catch {
          deliver(nil)
        }
      }
    }
  }

  private func apply(_ answer: Answer, _ inquiry: Inquiry, _ state: inout State) -> Outcome {
    guard answer.log == state.log, let known = state.known else {
      return .outdated(counter: metrics.otherHistory)
    }
    guard inquiry.generation == state.generation else { return .settled(nil) }
    guard answer.isComplete else { return .outdated(counter: metrics.otherHistory) }
    if answer.isAboutAll { return .outdated(counter: metrics.catalogue) }
    // Answers of several connections may arrive in another order.
    guard answer.snapshot.includes(known) else {
      return .settled(Ticket(generation: state.generation, number: 0))
    }
    state.known = answer.snapshot
    state.number += 1
    if !answer.changed.isEmpty { drop(answer.changed.compactMap(\.self), &state) }
    return .settled(Ticket(generation: state.generation, number: state.number))
  }

  private func drop(_ accountIDs: [String], _ state: inout State) {
    if state.changedAt.count > Self.mostChanges {
      state.changedAt = [:]
      state.remembersFrom = state.number
    }
    var dropped = 0
    for id in accountIDs {
      if state.answers.remove(id) { dropped += 1 }
      state.changedAt[AccountID(id)] = state.number
    }
    metrics.changed.increment(by: dropped)
  }

  private func dropAll(
    at answer: Answer, _ inquiry: Inquiry, _ counter: Counter, _ state: inout State
  ) -> Ticket? {
    // Another batch may have done so.
    guard answer.log != state.log || inquiry.generation == state.generation else { return nil }
    counter.increment(by: state.drop())
    (state.log, state.known) = (answer.log, answer.snapshot)
    return Ticket(generation: state.generation, number: 0)
  }

  // MARK: One account

  /// Writes the entitlements of an account, if they are kept.
  func write(
    _ accountID: String, at moment: Timestamp, _ ticket: Ticket, to json: inout JSONWriter
  ) -> Bool {
    state.withLock { state in
      state.generation == ticket.generation
        && json.write { state.answers.append(answerOf: accountID, at: moment, to: &$0) }
    }
  }

  /// Keeps the entitlements of an account, unless they may have changed since they were read.
  func keep(
    _ answer: ArraySlice<UInt8>, of accountID: String, validFor validity: Range<Timestamp>,
    _ ticket: Ticket
  ) {
    let (size, evicted) = state.withLock { state -> (Int, Int) in
      guard state.generation == ticket.generation, state.remembersFrom < ticket.number,
        state.changedAt[AccountID(accountID)].map({ $0 < ticket.number }) ?? true
      else { return (state.answers.size, 0) }
      let before = state.answers.evicted
      state.answers.insert(answer, of: accountID, validFor: validity)
      return (state.answers.size, state.answers.evicted - before)
    }
    metrics.bytes.set(size)
    if evicted > 0 { metrics.evicted.increment(by: evicted) }
  }

  // MARK: Turning it on and off

  /// Turns it off for a while, because the database refuses the question.
  func refuse(_ error: any Error) {
    logger.warning(
      "Entitlements are not kept in memory for a while", metadata: ["error": "\(error)"])
    turnOff(until: .now + Self.pause)
  }

  private func turnOff(until moment: ContinuousClock.Instant) {
    state.withLock { state in
      metrics.otherHistory.increment(by: state.drop())
      (state.mode, state.log, state.known) = (.off(until: moment), nil, nil)
    }
    metrics.bytes.set(0)
  }

  private func begin() {
    ledger.database.batch(
      [Maintenance.beginAccountChanges, "SELECT log_id FROM tenure.account_change_log"]
    ) { [self] result in
      switch result.map({ !$0[1].isEmpty }) {
      case .success(true): state.withLock { $0.mode = .on }
      case .success(false):
        logger.notice(
          "Entitlements are not kept in memory: the database lacks the triggers for it, as on Citus"
        )
        turnOff(until: .now + Self.pause)
      case .failure(let error): refuse(error)
      }
    }
  }

  /// Selects the log's identity, the current snapshot, and the changes that another did not see.
  ///
  /// The server's start and the database tell copies of the same log apart.
  fileprivate static func changes(since snapshot: String?) -> SQL {
    let since: SQL = "coalesce((\(snapshot))::pg_snapshot, pg_current_snapshot())"
    return """
      SELECT concat_ws(' ', l.log_id, l.tableoid, extract(epoch FROM pg_postmaster_start_time()),
          (SELECT oid FROM pg_database WHERE datname = current_database())),
        pg_current_snapshot()::text, pg_snapshot_xmin(\(since)) >= l.trimmed_to,
        ARRAY(
          SELECT account_id FROM tenure.account_change
          -- The upper bound tells the planner that they are few.
          WHERE xid >= pg_snapshot_xmax(\(since)) AND xid < '18446744073709551615'
          UNION ALL
          SELECT account_id FROM tenure.account_change
          WHERE xid = ANY(ARRAY(SELECT pg_snapshot_xip(\(since))))
          LIMIT \(unescaped: String(mostChanges + 1)))
      FROM tenure.account_change_log AS l
      """
  }
}

/// A snapshot of PostgreSQL's transactions, as `pg_snapshot` writes it: `xmin:xmax:xip,xip`.
struct TransactionSnapshot: Hashable, Sendable {
  let text: String
  /// It saw no transaction from this one on.
  private let end: UInt64
  /// The number of those before it that it did not see either.
  private let running: Int

  init?(_ text: String) {
    let parts = text.split(separator: ":", omittingEmptySubsequences: false)
    guard parts.count == 3, let end = UInt64(parts[1]) else { return nil }
    (self.text, self.end) = (text, end)
    running = parts[2].split(separator: ",").count
  }

  /// Whether it saw all that another of its server saw; of two, one did: transactions only end.
  func includes(_ other: TransactionSnapshot) -> Bool {
    (end, other.running) >= (other.end, running)
  }
}

final class ReadCacheMetrics: Sendable {
  let hits, misses: Counter
  /// Dropped because the account changed.
  let changed: Counter
  /// Dropped because the catalogue changed.
  let catalogue: Counter
  /// Dropped because the changes since are not known.
  let otherHistory: Counter
  /// Dropped to make room.
  let evicted: Counter
  let bytes: Meter

  init(_ factory: any MetricsFactory) {
    func reads(_ outcome: String) -> Counter {
      Counter(
        label: "tenure_read_cache_reads_total", dimensions: [("outcome", outcome)],
        factory: factory)
    }
    func dropped(_ reason: String) -> Counter {
      Counter(
        label: "tenure_read_cache_dropped_total", dimensions: [("reason", reason)],
        factory: factory)
    }
    (hits, misses) = (reads("hit"), reads("miss"))
    (changed, catalogue) = (dropped("changed"), dropped("catalogue"))
    (otherHistory, evicted) = (dropped("history"), dropped("evicted"))
    bytes = Meter(label: "tenure_read_cache_bytes", factory: factory)
  }
}
