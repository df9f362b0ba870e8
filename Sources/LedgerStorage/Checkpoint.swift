import Postgres
import Subscriptions

/// A mark over all chains: how many entries had been recorded before a moment, and the exclusive or
/// of their hashes.
struct Checkpoint: Sendable {
  struct Sum: Hashable, Sendable {
    var entries = 0
    var digest = [UInt8](repeating: 0, count: 32)

    mutating func add(_ hash: [UInt8]) {
      entries += 1
      for index in digest.indices where index < hash.count { digest[index] ^= hash[index] }
    }
  }

  var recordedBefore: Timestamp
  /// What was there when the mark was made; nil for one that is being made.
  var recorded: Sum?
  /// What is there now.
  var counted = Sum()

  init(recordedBefore: Timestamp, recorded: Sum? = nil) {
    self.recordedBefore = recordedBefore
    self.recorded = recorded
  }
}

extension [Checkpoint] {
  /// Counts an entry towards every mark that it is under.
  mutating func count(_ entry: StoredEntry) {
    for index in indices where entry.recordedAt < self[index].recordedBefore {
      self[index].counted.add(entry.hash)
    }
  }
}

extension Ledger {
  /// How many of the latest checkpoints an audit looks at.
  private static let checkpointLimit = 10

  func checkpoints() async throws -> [Checkpoint] {
    try await database.query(
      """
      SELECT recorded_before, entries, digest FROM tenure.ledger_checkpoint
      ORDER BY checkpoint_id DESC LIMIT \(Self.checkpointLimit)
      """
    ).decode(Timestamp.self, Int.self, [UInt8].self).reversed().map {
      Checkpoint(recordedBefore: $0, recorded: Checkpoint.Sum(entries: $1, digest: $2))
    }
  }

  /// Stores a mark, unless it marks no more than the one before.
  func insert(_ mark: Checkpoint, after previous: Checkpoint?) async throws {
    guard mark.counted.entries > previous?.recorded?.entries ?? 0 else { return }
    _ = try await database.execute(
      """
      INSERT INTO tenure.ledger_checkpoint (recorded_before, entries, digest)
      VALUES (\(mark.recordedBefore), \(mark.counted.entries), \(mark.counted.digest))
      """)
  }
}
