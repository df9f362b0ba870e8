import Foundation
import Postgres
import Subscriptions

extension Ledger {
  /// What a recording tells, for the feed: written in the same commit as what it tells of.
  ///
  /// Every account that is told something, or that something is taken from or given to, is locked:
  /// so the events of one account are in one order, and what an event says of entitlements is what
  /// differs from the event before it.
  ///
  /// - Parameters:
  ///   - recording: What was recorded, with what was known before.
  ///   - orders: What became of orders by it.
  ///   - terms: By what it is judged what accounts may use.
  ///   - now: The recording date.
  ///   - known: Accounts that were locked and read already, as they are after the recording.
  ///   - transaction: The database transaction, which has locked the lines.
  /// - Returns: The statements that write it; none where nothing changed.
  /// - Throws: What the database says.
  func news(
    of recording: Recording, orders: [OrderChange], terms: AccessTerms, at now: Timestamp,
    knowing known: [ToldAccount] = [], in transaction: Transaction
  ) async throws -> Consequences {
    let news = RecordingNews(recording, orders: orders, at: now)
    let wanted = news.accounts.union(known.filter(\.hasChangedGrants).map(\.key))
    guard !wanted.isEmpty || !news.events.isEmpty else { return Consequences() }

    var accounts = known.filter { wanted.contains($0.key) }
    let others = wanted.subtracting(known.map(\.key))
    if !others.isEmpty {
      let (told, gone) = try await lockTold(others, knowing: news.names, in: transaction)
      // Somebody was erased since the names were read. On the line nothing was known of the account
      // (it holds a token that Apple has just named), so that the erasure did not wait for it.
      guard gone.isEmpty else {
        throw PostgresError.overtaken("an account was erased while something was recorded for it")
      }
      accounts += told.map {
        var account = $0
        account.apply(recording)
        return account
      }
    }
    changes.note(accounts.map(\.id), in: transaction)
    let told = accounts.sorted { $0.key < $1.key }.map { AccountNews($0, terms: terms, at: now) }
    return Consequences(
      telling: news.events(with: told), told,
      rescheduling: told.filter { news.holders.contains($0.key) || $0.changesWhatIsTold },
      at: now)
  }

  /// Locks accounts and reads what they hold and were told; erased ones are left out.
  ///
  /// - Parameters:
  ///   - keys: The accounts.
  ///   - names: The account ids that are known already, of accounts that are not erased.
  ///   - waits: Whether to wait for those that somebody else has locked; else they are left out.
  ///   - transaction: The database transaction.
  /// - Returns: The accounts by their keys, and those that somebody else has locked.
  /// - Throws: What the database says.
  func lockTold(
    _ keys: Set<AccountKey>, knowing names: [AccountKey: String] = [:], waits: Bool = true,
    in transaction: Transaction
  ) async throws -> (told: [ToldAccount], busy: Set<AccountKey>) {
    var names = names.filter { keys.contains($0.key) }
    let unknown = keys.subtracting(names.keys)
    if !unknown.isEmpty {
      let accounts = try KnownAccount.accounts(
        from: await transaction.query(KnownAccount.select(unknown)))
      names.merge(accounts.filter { $0.value.erasedAt == nil }.mapValues(\.id)) { $1 }
    }
    guard !names.isEmpty else { return ([], []) }
    let locks = ToldAccount.lock(names.values, waits: waits)
    let results = try await transaction.batch(locks + ToldAccount.select(Array(names.values)))
    let locked = Set(
      try results.prefix(locks.count).flatMap { try $0.decode(String.self) }
        .map(AccountID.init))
    let busy = names.filter { !locked.contains(AccountID($0.value)) }
    let told = try ToldAccount.accounts(
      names.filter { busy[$0.key] == nil }, from: results.suffix(ToldAccount.statementCount))
    return (told, Set(busy.keys))
  }
}

/// What follows from a recording: the statements that write it, and of what there is news then.
struct Consequences: Sendable {
  var statements: [SQL] = []
  /// To be rung after the commit.
  var channels: Set<Bell.Channel> = []

  init() {}

  /// - Parameters:
  ///   - events: What is told beside what changed of entitlements.
  ///   - news: What changed of entitlements.
  ///   - rescheduled: Those whose next change by time may be another than before.
  ///   - now: The moment.
  init(
    telling events: [LedgerEvent] = [], _ news: [AccountNews],
    rescheduling rescheduled: [AccountNews],
    at now: Timestamp
  ) {
    let events = events + news.flatMap(\.events)
    statements =
      EventRow.insert(events) + AccountNews.write(news)
      + rescheduled.flatMap { $0.schedule(at: now) }
    if !events.isEmpty { channels.insert(.events) }
    if rescheduled.compactMap(\.nextChange).contains(where: { $0 < now + Bell.longestSilence }) {
      channels.insert(.jobs)
    }
  }

  static func + (lhs: Consequences, rhs: [SQL]) -> Consequences {
    var sum = lhs
    sum.statements += rhs
    return sum
  }
}

extension Bell {
  /// Tells whoever listens to any of them.
  func ring(_ channels: Set<Channel>) {
    for channel in channels { ring(channel) }
  }
}
