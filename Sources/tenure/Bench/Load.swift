/// Work that is done so many pieces at a time, and measured.
enum Load {
  /// Does every piece of work once.
  ///
  /// - Parameters:
  ///   - items: The pieces.
  ///   - concurrency: How many are under way at a time.
  ///   - work: Does one; what it throws ends everything.
  /// - Returns: How fast it went, from the first piece's beginning to the last one's end.
  /// - Throws: What `work` throws.
  static func measure<Item: Sendable>(
    _ items: [Item], concurrency: Int, _ work: @escaping @Sendable (Item) async throws -> Void
  ) async throws -> Measurement {
    let clock = ContinuousClock()
    let start = clock.now
    let durations = try await withThrowingTaskGroup(of: [Duration].self) { group in
      for first in 0..<concurrency {
        group.addTask {
          var durations: [Duration] = []
          // The pieces are alike, so each task takes every n-th.
          for index in stride(from: first, to: items.count, by: concurrency) {
            try Task.checkCancellation()
            durations.append(try await clock.measure { try await work(items[index]) })
          }
          return durations
        }
      }
      var all: [Duration] = []
      for try await durations in group { all += durations }
      return all.sorted()
    }
    let elapsed = clock.now - start
    return Measurement(
      rate: Double(items.count) / (elapsed / .seconds(1)),
      p50: percentile(0.5, of: durations), p99: percentile(0.99, of: durations))
  }

  private static func percentile(_ share: Double, of sorted: [Duration]) -> Duration? {
    guard !sorted.isEmpty else { return nil }
    return sorted[min(sorted.count - 1, Int(Double(sorted.count) * share))]
  }
}
