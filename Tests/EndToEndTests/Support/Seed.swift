import Foundation

/// The seed of a test that leaves something to chance.
enum Seed {
  /// The environment's `TENURE_TEST_SEED`, to see a failure again, or a fresh one.
  static func chosen() -> UInt64 {
    ProcessInfo.processInfo.environment["TENURE_TEST_SEED"].flatMap(UInt64.init)
      ?? .random(in: 0...UInt64(UInt32.max))
  }
}
