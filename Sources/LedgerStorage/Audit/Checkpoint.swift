import Postgres
import Subscriptions

/// A mark over all chains: the number of entries stored before a moment, and the exclusive or of
/// their hashes.
struct Checkpoint: Sendable {
  struct Sum: Hashable, Sendable {
    var entries = 0
    var digest = [UInt8](repeating: 0, count: 32)

    mutating func add(_ hash: [UInt8]) {
      entries += 1
      for index in digest.indices where index < hash.count { digest[index] ^= hash[index] }
    }
  }

  /// By the database's clock.
  var storedBefore: Timestamp
  /// The sum when the mark was made; nil for a new one.
  var recorded: Sum?
  /// The sum now.
  var counted = Sum()
}

extension LedgerAuditor {
  /// The number of latest checkpoints that an audit compares.
  private static let checkpointLimit = 10
  private static let checkpointPage = 5000

  /// Reads the latest checkpoints, oldest first, and a new one to be counted.
  ///
  /// - Parameter age: Younger entries may belong to an open transaction, and are not counted.
  func checkpoints(age: Duration) async throws -> [Checkpoint] {
    let results = try await database.batch([
      """
      SELECT stored_before, entries, digest FROM tenure.ledger_checkpoint
      ORDER BY checkpoint_id DESC LIMIT \(Self.checkpointLimit)
      """,
      "SELECT now()",
    ])
    return try results[0].decode(Timestamp.self, Int.self, [UInt8].self).reversed().map {
      Checkpoint(storedBefore: $0, recorded: Checkpoint.Sum(entries: $1, digest: $2))
    } + [Checkpoint(storedBefore: try results[1].decodeOnly(Timestamp.self) - age)]
  }

  /// Counts every entry once, for every mark that covers it.
  ///
  /// Separate from the audit of original transactions, which reads those linked in the meantime
  /// twice.
  func count(_ marks: inout [Checkpoint]) async throws -> Int {
    var total = 0
    var last: (line: OriginalTransactionKey, number: Int)?
    while true {
      let page = try await database.query(
        """
        SELECT environment, original_transaction_id, number, stored_at, hash
        FROM tenure.ledger_entry
        WHERE (environment, original_transaction_id, number)
          > (\(last?.line.environment.rawValue ?? ""),
            \(last?.line.originalTransactionID.rawValue ?? ""), \(last?.number ?? 0))
        ORDER BY environment, original_transaction_id, number
        LIMIT \(Self.checkpointPage)
        """, deadline: Self.auditDeadline
      ).decode(
        Environment.self, OriginalTransactionID.self, Int.self, Timestamp.self, [UInt8].self)
      guard let end = page.last else { return total }
      last = (OriginalTransactionKey(end.0, end.1), end.2)
      total += page.count
      for (_, _, _, storedAt, hash) in page {
        for index in marks.indices where storedAt < marks[index].storedBefore {
          marks[index].counted.add(hash)
        }
      }
    }
  }

  /// Stores a mark if it covers more entries than the one before.
  func insert(_ mark: Checkpoint, after previous: Checkpoint?) async throws {
    guard mark.counted.entries > previous?.recorded?.entries ?? 0 else { return }
    _ = try await database.execute(
      """
      INSERT INTO tenure.ledger_checkpoint (stored_before, entries, digest)
      VALUES (\(mark.storedBefore), \(mark.counted.entries), \(mark.counted.digest))
      """)
  }
}
