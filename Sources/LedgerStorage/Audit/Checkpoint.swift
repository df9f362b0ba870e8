import Crypto
import Foundation
package import JSONText
import Postgres
package import Subscriptions

/// A mark over all chains' ends, naming the one before; a copy elsewhere shows later changes.
package struct Checkpoint: Hashable, Sendable {
  /// From 1, without gaps.
  package var number: Int
  /// Covers the entries that were stored before this moment, by the database's clock.
  package var storedBefore: Timestamp
  package var chains: Int
  package var entries: Int
  /// The root of the ``HashTree`` over the chains' last entries.
  package var heads: [UInt8]
  /// The digest of the checkpoint before; zeros for the first.
  package var previous: [UInt8]
  package var digest: [UInt8]

  static let zeros = [UInt8](repeating: 0, count: SHA256.byteCount)

  init(number: Int, storedBefore: Timestamp, _ ends: ChainEnds, previous: [UInt8]) {
    self.init(
      number: number, storedBefore: storedBefore, chains: ends.chains, entries: ends.entries,
      heads: ends.root, previous: previous, digest: [])
    digest = expectedDigest
  }

  fileprivate init(
    number: Int, storedBefore: Timestamp, chains: Int, entries: Int, heads: [UInt8],
    previous: [UInt8], digest: [UInt8]
  ) {
    (self.number, self.storedBefore, self.chains) = (number, storedBefore, chains)
    (self.entries, self.heads, self.previous) = (entries, heads, previous)
    self.digest = digest
  }

  package var expectedDigest: [UInt8] {
    SHA256.chained(
      [
        String(number), storedBefore.description, String(chains), String(entries),
        heads.hexadecimal,
      ], after: previous)
  }

  func matches(_ ends: ChainEnds) -> Bool {
    (chains, entries) == (ends.chains, ends.entries) && heads == ends.root
  }
}

extension Checkpoint: JSONObjectWritable {
  package func writeMembers(to json: inout JSONWriter) {
    json.member("number", number)
    json.member("stored_before", storedBefore)
    json.member("chains", chains)
    json.member("entries", entries)
    json.member("heads", heads.hexadecimal)
    json.member("previous", previous.hexadecimal)
    json.member("digest", digest.hexadecimal)
  }

  /// As one line of JSON.
  package var text: String {
    var json = JSONWriter(capacity: 512)
    write(to: &json)
    return json.text
  }
}

extension Checkpoint: Decodable {
  private enum Key: String, CodingKey {
    case number
    case storedBefore = "stored_before"
    case chains, entries, heads, previous, digest
  }

  package init(from decoder: any Decoder) throws {
    let values = try decoder.container(keyedBy: Key.self)
    func digest(_ key: Key) throws -> [UInt8] {
      guard let digest = [UInt8](hexadecimal: try values.decode(String.self, forKey: key)) else {
        throw DecodingFault.unknownValue
      }
      return digest
    }
    guard let moment = Timestamp(rfc3339: try values.decode(String.self, forKey: .storedBefore))
    else { throw DecodingFault.unknownValue }
    self.init(
      number: try values.decode(Int.self, forKey: .number), storedBefore: moment,
      chains: try values.decode(Int.self, forKey: .chains),
      entries: try values.decode(Int.self, forKey: .entries), heads: try digest(.heads),
      previous: try digest(.previous), digest: try digest(.digest))
  }
}

extension [UInt8] {
  /// Reads two hexadecimal digits for each byte.
  init?(hexadecimal text: String) {
    let digits = Array<UInt8>(text.utf8).map { Character(Unicode.Scalar($0)).hexDigitValue }
    guard digits.count.isMultiple(of: 2), !digits.contains(nil) else { return nil }
    self = stride(from: 0, to: digits.count, by: 2).compactMap { index in
      guard let high = digits[index], let low = digits[index + 1] else { return nil }
      return UInt8(high * 16 + low)
    }
  }
}

/// A hash tree over texts in order (RFC 6962), in the memory of one hash a level.
struct HashTree: Sendable {
  private var nodes: [(level: Int, hash: [UInt8], isTracked: Bool)] = []
  /// The hashes next to the tracked text's, from the leaves to the root.
  private(set) var path: [(isLeft: Bool, hash: [UInt8])] = []

  static func leaf(_ text: String) -> [UInt8] { Array(SHA256.hash(data: [0] + Array(text.utf8))) }

  static func node(_ left: [UInt8], _ right: [UInt8]) -> [UInt8] {
    Array(SHA256.hash(data: [1] + left + right))
  }

  mutating func add(_ text: String, isTracked: Bool) {
    nodes.append((0, Self.leaf(text), isTracked))
    while nodes.count > 1, nodes[nodes.count - 2].level == nodes[nodes.count - 1].level { join() }
  }

  mutating func root() -> [UInt8] {
    while nodes.count > 1 { join() }
    return nodes.first?.hash ?? Array(SHA256.hash(data: []))
  }

  private mutating func join() {
    let right = nodes.removeLast()
    let left = nodes.removeLast()
    if left.isTracked { path.append((false, right.hash)) }
    if right.isTracked { path.append((true, left.hash)) }
    nodes.append(
      (left.level + 1, Self.node(left.hash, right.hash), left.isTracked || right.isTracked))
  }
}

/// The ends of all chains: of original transactions by their names' bytes, then of accounts.
struct ChainEnds: Sendable {
  private(set) var chains = 0
  private(set) var entries = 0
  private(set) var root: [UInt8] = []
  /// Proves the tracked chain's end.
  private(set) var path: [(isLeft: Bool, hash: [UInt8])] = []
  private var tree = HashTree()

  /// The text that stands for the end of a chain.
  static func text(_ chain: String, _ number: Int, _ hash: [UInt8]) -> String {
    "\(chain):\(number):\(hash.hexadecimal)"
  }

  fileprivate mutating func add(_ chain: String, _ number: Int, _ hash: [UInt8], isTracked: Bool) {
    chains += 1
    entries += number
    tree.add(Self.text(chain, number, hash), isTracked: isTracked)
  }

  fileprivate mutating func complete() {
    root = tree.root()
    path = tree.path
  }
}

extension LedgerAuditor {
  private static let headsAtOnce = 5000

  /// Reads the ends of all chains as of a moment.
  ///
  /// - Parameter tracked: An original transaction whose path to the root is wanted.
  func ends(before moment: Timestamp, tracking tracked: OriginalTransactionKey? = nil) async throws
    -> ChainEnds
  {
    var ends = ChainEnds()
    try await forEachEnd(
      of: """
        SELECT environment, original_transaction_id, head_number, head_hash,
          head_stored_at < \(moment)
        FROM tenure.original_transaction WHERE head_number > 0
        ORDER BY environment COLLATE "C", original_transaction_id COLLATE "C"
        """, as: OriginalTransactionID.self
    ) { younger in
      """
      SELECT DISTINCT ON (environment, original_transaction_id) environment,
        original_transaction_id, number, hash
      FROM tenure.ledger_entry
      WHERE environment IN ('production', 'sandbox') AND original_transaction_id = ANY(\(younger))
        AND stored_at < \(moment)
      ORDER BY environment, original_transaction_id, number DESC
      """
    } _: { environment, id, number, hash in
      let line = Environment(rawValue: environment).map { OriginalTransactionKey($0, id) }
      ends.add(
        "\(environment)/\(id.rawValue)", number, hash, isTracked: tracked != nil && line == tracked)
    }
    try await forEachEnd(
      of: """
        SELECT 'account', account_key, head_number, head_hash, head_stored_at < \(moment)
        FROM tenure.account_chain WHERE head_number > 0
        ORDER BY account_key
        """, as: AccountKey.self
    ) { younger in
      """
      SELECT DISTINCT ON (account_key) 'account', account_key, number, hash
      FROM tenure.account_entry
      WHERE account_key = ANY(\(younger)) AND stored_at < \(moment)
      ORDER BY account_key, number DESC
      """
    } _: { kind, key, number, hash in
      ends.add("\(kind)/\(key.rawValue.text)", number, hash, isTracked: false)
    }
    ends.complete()
    return ends
  }

  /// Reads the heads of chains, and the earlier entries of those that are too young.
  private func forEachEnd<ID: PostgresDecodable & PostgresEncodable & Hashable & Sendable>(
    of heads: SQL, as: ID.Type, before earlier: ([ID]) -> SQL,
    _ body: (String, ID, Int, [UInt8]) -> Void
  ) async throws {
    let cursor = try await database.openCursor(
      for: heads, rowsAtOnce: Self.headsAtOnce, idleTimeout: Self.auditDeadline,
      deadline: Self.auditDeadline)
    while let rows = try await cursor.next() {
      let heads = try rows.decode(String.self, ID.self, Int.self, [UInt8].self, Bool.self)
      let younger = heads.filter { !$0.4 }.map(\.1)
      var ends: [ID: [String: (Int, [UInt8])]] = [:]
      if !younger.isEmpty {
        let found = try await database.query(earlier(younger), deadline: Self.auditDeadline)
        for (kind, id, number, hash) in try found.decode(
          String.self, ID.self, Int.self, [UInt8].self)
        {
          ends[id, default: [:]][kind] = (number, hash)
        }
      }
      for (kind, id, number, hash, isOld) in heads {
        if isOld {
          body(kind, id, number, hash)
        } else if let (number, hash) = ends[id]?[kind] {
          body(kind, id, number, hash)
        }
      }
    }
    await cursor.close()
  }

  package func checkpoints(before number: Int = .max, limit: Int) async throws -> [Checkpoint] {
    try await runner.query(
      """
      SELECT number, stored_before, chains, entries, heads, previous, digest
      FROM tenure.ledger_checkpoint WHERE number < \(number)
      ORDER BY number DESC LIMIT \(limit)
      """
    ).decode(into: Checkpoint.init(number:storedBefore:chains:entries:heads:previous:digest:))
  }

  /// Compares the ledger with its checkpoints and those kept elsewhere.
  ///
  /// Clean chains only grow, so their ends are compared with the latest checkpoint alone.
  func checkCheckpoints(against kept: [Checkpoint], _ audit: inout LedgerAudit) async throws {
    let stored = try await checkpoints(limit: .max).reversed()
    audit.checkpoints = stored.count
    var previous = Checkpoint.zeros
    for (index, checkpoint) in stored.enumerated() {
      if checkpoint.number != index + 1 || checkpoint.previous != previous
        || checkpoint.digest != checkpoint.expectedDigest
      {
        audit.report(
          .head, nil, "checkpoint \(checkpoint.number) does not follow from the one before")
      }
      previous = checkpoint.digest
    }
    let known = Dictionary(stored.map { ($0.number, $0) }) { first, _ in first }
    for kept in kept where known[kept.number] != kept {
      audit.report(.head, nil, "checkpoint \(kept.number) is not the one that was kept elsewhere")
    }
    let latest = Set([stored.last, kept.max { $0.number < $1.number }].compactMap(\.self))
    for checkpoint in latest.sorted(by: { $0.number < $1.number })
    where try await !checkpoint.matches(ends(before: checkpoint.storedBefore)) {
      audit.report(
        .head, nil,
        "of the \(checkpoint.entries) entries stored before \(checkpoint.storedBefore), which "
          + "checkpoint \(checkpoint.number) covers, some were removed or changed")
    }
  }

  /// Stores a checkpoint if it covers more than the latest one, which it follows.
  func insertCheckpoint(age: Duration) async throws -> Checkpoint? {
    let moment =
      try await database.query("SELECT date_trunc('milliseconds', now())")
      .decodeOnly(Timestamp.self) - age
    let ends = try await ends(before: moment)
    let latest = try await checkpoints(limit: 1).first
    guard ends.entries > latest?.entries ?? 0 else { return nil }
    let checkpoint = Checkpoint(
      number: (latest?.number ?? 0) + 1, storedBefore: moment, ends,
      previous: latest?.digest ?? Checkpoint.zeros)
    // Of two programs that make one at once, one does.
    let inserted = try await database.execute(
      """
      INSERT INTO tenure.ledger_checkpoint (number, stored_before, chains, entries, heads, previous,
        digest)
      VALUES (\(checkpoint.number), \(checkpoint.storedBefore), \(checkpoint.chains),
        \(checkpoint.entries), \(checkpoint.heads), \(checkpoint.previous), \(checkpoint.digest))
      ON CONFLICT (number) DO NOTHING
      """)
    return inserted == 0 ? nil : checkpoint
  }

  /// Verifies what is new since the latest checkpoint, and leaves the next one.
  ///
  /// - Returns: The checkpoint, unless nothing is new, and the differences, which prevent it.
  package func checkpoint(age: Duration = Self.checkpointAge) async throws -> (
    checkpoint: Checkpoint?, audit: LedgerAudit
  ) {
    var audit = LedgerAudit()
    let since = try await checkpoints(limit: 1).first?.storedBefore
    let isNew: SQL =
      since.map { "head_stored_at >= \($0)" }
      ?? "head_number > 0 AND head_stored_at < now() - \(age.inMilliseconds) * interval '1 ms'"
    let news = try await database.batch([
      "SELECT 1 FROM tenure.original_transaction WHERE \(isNew) LIMIT 1",
      "SELECT 1 FROM tenure.account_chain WHERE \(isNew) LIMIT 1",
    ])
    guard news.contains(where: { !$0.isEmpty }) else { return (nil, audit) }
    let catalogue = try await maintenance.settledCatalogue()
    try await checkCheckpoints(against: [], &audit)
    try await forEachPage(after: nil, storedSince: since, reporting: { _ in }) { page in
      for found in try await inParts(page, { try await audits(of: $0, catalogue: catalogue) })
        .joined()
      {
        audit.add(found.audit)
      }
    }
    try await auditAccounts(storedSince: since, &audit)
    return (audit.isClean ? try await insertCheckpoint(age: age) : nil, audit)
  }
}

extension LedgerAuditor {
  /// Schedules the job that makes the next checkpoint.
  package func repeatCheckpoint(_ job: Job, in interval: Duration, at now: Timestamp) async throws {
    _ = try await database.batch(job.repetition(at: now + interval, now: now))
  }
}
