import Foundation
import Subscriptions
import Testing

@testable import BackgroundJobs
@testable import LedgerStorage

@Suite("What a worker has claimed")
struct DeskTests {
  private static func job(_ id: Int64, _ key: Job.Key = .processNotification("n")) -> Job {
    Job(
      id: id, key: key, attempts: 1, worker: "w", generation: 0,
      createdAt: Timestamp(milliseconds: 0))
  }

  /// A desk on which one job took so long.
  private static func desk(concurrency: Int, after time: Duration) -> JobSlots {
    let desk = JobSlots(concurrency: [.notifications: concurrency])
    _ = desk.take([job(0)])
    _ = desk.end([job(0)], after: time)
    return desk
  }

  @Test("each lane has its own slots")
  func lanes() {
    let desk = JobSlots(concurrency: [.notifications: 2, .maintenance: 1, .polls: 0])
    #expect(desk.room == [.notifications: 2, .maintenance: 1])
    let begun = desk.take([Self.job(1), Self.job(2), Self.job(3, .reconcile)])
    #expect(Set(begun.map { $0.map(\.id) }) == [[1], [2], [3]])
    #expect(desk.room.isEmpty)
    #expect(desk.end([Self.job(2)], after: .seconds(1)).isEmpty)
    #expect(desk.room == [.notifications: 1])
    #expect(Set(desk.held.map(\.id)) == [1, 3])
  }

  // How much is claimed with two slots, by how long a job took.
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
    #expect(Self.desk(concurrency: 2, after: time).room == [.notifications: room])
  }

  @Test("what is claimed beforehand is begun in the slots that become free, in its order")
  func order() {
    let desk = Self.desk(concurrency: 2, after: .milliseconds(10))
    let jobs = (1...12).map { Self.job($0) }
    #expect(desk.take(jobs).map { $0.map(\.id) } == [[1], [2]])
    // Not worth a claim before half of it is begun.
    for id in 1...4 as ClosedRange<Int64> {
      #expect(desk.room.isEmpty)
      #expect(desk.end([Self.job(id)], after: .milliseconds(10)).map(\.id) == [id + 2])
    }
    _ = desk.end([Self.job(5)], after: .milliseconds(10))
    #expect(desk.room == [.notifications: 5])
  }

  @Test("what goes together is begun together, each slot its share of it and never too much")
  func together() {
    let desk = JobSlots(concurrency: [.clock: 2])
    let jobs = (1...100).map { Self.job($0, .publishEntitlements(AccountKey(rawValue: UUID()))) }
    let begun = desk.take(jobs)
    #expect(begun.map { $0.map(\.id) } == [Array(1...32), Array(33...64)])
    #expect(desk.held.count == 100)
    // What is left is shared by the slots; the time of each counts for what is claimed beforehand.
    #expect(desk.end(begun[0], after: .milliseconds(320)).map(\.id) == Array(65...82))
    #expect(desk.end(begun[1], after: .milliseconds(320)).map(\.id) == Array(83...91))
    #expect(desk.held.count == 36)
    // 10 ms each: ten are worth a claim beforehand, and nine are there.
    #expect(desk.room.isEmpty)
    #expect(desk.end(Array(jobs[64..<82]), after: .milliseconds(180)).map(\.id) == Array(92...96))
    #expect(desk.room == [.clock: 6])
  }

  @Test("a job that was claimed again while it runs is begun when that has ended, and not before")
  func claimedAgain() {
    let desk = JobSlots(concurrency: [.notifications: 2])
    #expect(desk.take([Self.job(1)]).count == 1)
    #expect(desk.take([Self.job(1)]).isEmpty)
    #expect(desk.room == [.notifications: 1])
    #expect(desk.end([Self.job(1)], after: .seconds(1)) == [Self.job(1)])
    #expect(desk.held == [Self.job(1)])
    #expect(desk.room == [.notifications: 1])
    #expect(desk.end([Self.job(1)], after: .seconds(1)).isEmpty)
    #expect(desk.held.isEmpty)
    #expect(desk.room == [.notifications: 2])
    // At the end nothing more is begun.
    #expect(desk.take([Self.job(1)]).count == 1)
    #expect(desk.take([Self.job(1)]).isEmpty)
    #expect(desk.close().isEmpty)
    #expect(desk.end([Self.job(1)], after: .seconds(1)).isEmpty)
  }

  @Test("at the end what was not begun is given back, and nothing more is claimed")
  func closing() {
    let desk = Self.desk(concurrency: 1, after: .milliseconds(10))
    #expect(desk.take([Self.job(1), Self.job(2), Self.job(3)]).map { $0.map(\.id) } == [[1]])
    #expect(desk.close().map(\.id) == [2, 3])
    #expect(desk.held.map(\.id) == [1])
    #expect(desk.end([Self.job(1)], after: .seconds(1)).isEmpty)
    #expect(desk.held.isEmpty)
    #expect(desk.room.isEmpty)
  }
}
