import CoreMetrics
import Secrets
import Synchronization
import Testing

@testable import Postgres

/// A pool's counts of round trips and connections.
@Suite struct PoolMetricsTests {
  /// Counts by label and dimensions, and remembers how often a timer was recorded.
  private final class Tally: MetricsFactory {
    final class Count: CounterHandler, TimerHandler {
      private let count = Atomic<Int64>(0)

      var value: Int64 { count.load(ordering: .relaxed) }

      func increment(by amount: Int64) { count.wrappingAdd(amount, ordering: .relaxed) }
      func reset() {}
      func recordNanoseconds(_ duration: Int64) { increment(by: duration >= 0 ? 1 : 1_000_000) }
    }

    private let counts = Mutex<[String: Count]>([:])

    subscript(name: String) -> Int64 { counts.withLock { $0[name]?.value } ?? 0 }

    private func count(_ label: String, _ dimensions: [(String, String)]) -> Count {
      let name = ([label] + dimensions.map(\.1)).joined(separator: " ")
      return counts.withLock { counts in
        let count = counts[name] ?? Count()
        counts[name] = count
        return count
      }
    }

    func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler {
      count(label, dimensions)
    }
    func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler {
      count(label, dimensions)
    }
    func makeRecorder(
      label: String, dimensions: [(String, String)], aggregate: Bool
    ) -> any RecorderHandler { NOOPMetricsHandler.instance }
    func destroyCounter(_ handler: any CounterHandler) {}
    func destroyRecorder(_ handler: any RecorderHandler) {}
    func destroyTimer(_ handler: any TimerHandler) {}
  }

  private static let requests = "tenure_database_requests_total"

  @Test func roundTripsAreCountedByWhatCameOfThem() async throws {
    let tally = Tally()
    try await withMetricsFactory(tally) {
      try await TestServer.withPool { pool in
        _ = try await pool.query("SELECT 1")
        _ = try? await pool.query("SELECT 1 / 0")
        _ = try? await pool.query("SELECT pg_sleep(600)", deadline: .milliseconds(50))
        try await pool.withTransaction { transaction in
          _ = try await transaction.query("SELECT 1")
        }
        #expect(tally["\(Self.requests) statement succeeded"] == 1)
        #expect(tally["\(Self.requests) statement refused"] == 1)
        #expect(tally["\(Self.requests) statement timed_out"] == 1)
        // The statement with its BEGIN, and COMMIT.
        #expect(tally["\(Self.requests) transaction succeeded"] == 2)
        #expect(tally["tenure_database_request_duration_seconds statement"] == 3)
        #expect(tally["tenure_database_connects_total succeeded"] >= 1)
        let reading = await pool.reading()
        #expect(reading.waiting == 0)
        #expect(reading.idle + reading.busy + reading.leased >= 1)
      }
    }
  }

  @Test func whatCanNotBeReachedIsCounted() async {
    let tally = Tally()
    let pool = ConnectionPool(
      configuration: .init(uri: "postgresql://unknown@127.0.0.1:1/none"), logger: TestServer.silent,
      metrics: tally)
    _ = try? await pool.query("SELECT 1")
    #expect(tally["\(Self.requests) statement connection_failed"] == 1)
    #expect(tally["tenure_database_connects_total failed"] >= 1)
    await pool.close()
  }
}
