import Foundation
import Subscriptions
import Testing

@testable import BackgroundJobs
@testable import LedgerStorage

@Suite("What a worker has claimed")
struct JobSlotsTests {
  private static func job(_ id: Int64, _ key: Job.Key = .processNotification("n")) -> Job {
    Job(
      id: id, key: key, attempts: 1, worker: "w", generation: 0,
      createdAt: Timestamp(milliseconds: 0))
  }

  /// Slots in which one job took a given time.
  private static func slots(concurrency: Int, after time: Duration) -> JobSlots {
    let slots = JobSlots(concurrency: [.notifications: concurrency])
    _ = slots.take([job(0)])
    _ = slots.end([job(0)], after: time)
    return slots
  }

  @Test("each lane has its own slots")
  func lanes() {
    let slots = JobSlots(concurrency: [.notifications: 2, .maintenance: 1, .polls: 0])
    #expect(slots.room == [.notifications: 2, .maintenance: 1])
    let begun = slots.take([Self.job(1), Self.job(2), Self.job(3, .reconcile)])
    #expect(Set(begun.map { $0.map(\.id) }) == [[1], [2], [3]])
    #expect(slots.room.isEmpty)
    #expect(slots.end([Self.job(2)], after: .seconds(1)).isEmpty)
    #expect(slots.room == [.notifications: 1])
    #expect(Set(slots.held.map(\.id)) == [1, 3])
  }

  // Jobs claimed for two slots, by the duration of a job.
  // swift-format-ignore
  @Test(arguments: [
    (Duration.seconds(10),     2),
    (Duration.milliseconds(50), 2),
    (Duration.milliseconds(40), 4),
    (Duration.milliseconds(10), 12),
    (Duration.microseconds(1),  18),
    (Duration.zero,             18),
  ])
  func reserve(time: Duration, room: Int) {
    #expect(Self.slots(concurrency: 2, after: time).room == [.notifications: room])
  }

  @Test("what is claimed beforehand is begun in the slots that become free, in its order")
  func order() {
    let slots = Self.slots(concurrency: 2, after: .milliseconds(10))
    let jobs = (1...12).map { Self.job($0) }
    #expect(slots.take(jobs).map { $0.map(\.id) } == [[1], [2]])
    // No claim before half of the reserve has started.
    for id in 1...4 as ClosedRange<Int64> {
      #expect(slots.room.isEmpty)
      #expect(slots.end([Self.job(id)], after: .milliseconds(10)).map(\.id) == [id + 2])
    }
    _ = slots.end([Self.job(5)], after: .milliseconds(10))
    #expect(slots.room == [.notifications: 5])
  }

  @Test("what goes together is begun together, each slot its share of it and never too much")
  func together() {
    let slots = JobSlots(concurrency: [.clock: 2])
    let jobs = (1...100).map { Self.job($0, .publishEntitlements(AccountKey(rawValue: UUID()))) }
    let begun = slots.take(jobs)
    #expect(begun.map { $0.map(\.id) } == [Array(1...32), Array(33...64)])
    #expect(slots.held.count == 100)
    // The slots share the rest; the average time of one job counts.
    #expect(slots.end(begun[0], after: .milliseconds(320)).map(\.id) == Array(65...82))
    #expect(slots.end(begun[1], after: .milliseconds(320)).map(\.id) == Array(83...91))
    #expect(slots.held.count == 36)
    // 10 ms each: ten are claimed ahead, and nine are there.
    #expect(slots.room.isEmpty)
    #expect(slots.end(Array(jobs[64..<82]), after: .milliseconds(180)).map(\.id) == Array(92...96))
    #expect(slots.room == [.clock: 6])
  }

  @Test("a job that was claimed again while it runs is begun when that has ended, and not before")
  func claimedAgain() {
    let slots = JobSlots(concurrency: [.notifications: 2])
    #expect(slots.take([Self.job(1)]).count == 1)
    #expect(slots.take([Self.job(1)]).isEmpty)
    #expect(slots.room == [.notifications: 1])
    #expect(slots.end([Self.job(1)], after: .seconds(1)) == [Self.job(1)])
    #expect(slots.held == [Self.job(1)])
    #expect(slots.room == [.notifications: 1])
    #expect(slots.end([Self.job(1)], after: .seconds(1)).isEmpty)
    #expect(slots.held.isEmpty)
    #expect(slots.room == [.notifications: 2])
    // Nothing starts after closing.
    #expect(slots.take([Self.job(1)]).count == 1)
    #expect(slots.take([Self.job(1)]).isEmpty)
    #expect(slots.close().isEmpty)
    #expect(slots.end([Self.job(1)], after: .seconds(1)).isEmpty)
  }

  @Test("at the end what was not begun is given back, and nothing more is claimed")
  func closing() {
    let slots = Self.slots(concurrency: 1, after: .milliseconds(10))
    #expect(slots.take([Self.job(1), Self.job(2), Self.job(3)]).map { $0.map(\.id) } == [[1]])
    #expect(slots.close().map(\.id) == [2, 3])
    #expect(slots.held.map(\.id) == [1])
    #expect(slots.end([Self.job(1)], after: .seconds(1)).isEmpty)
    #expect(slots.held.isEmpty)
    #expect(slots.room.isEmpty)
  }
}
