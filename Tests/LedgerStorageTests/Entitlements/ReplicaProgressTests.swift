import Testing

@testable import LedgerStorage

@Suite("What a standby is known to have")
struct ReplicaProgressTests {
  private static let start = ContinuousClock.now

  private func at(_ seconds: Double) -> ContinuousClock.Instant {
    Self.start + .seconds(seconds)
  }

  private func end(_ bytes: Int64, timeline: Int32 = 1) -> LogPosition {
    LogPosition(bytes: bytes, timeline: timeline)
  }

  /// Asked at 1, 2 and 3 seconds, the primary's log went to 100, 200 and 300.
  private func progress(applied position: Int64?) -> ReplicaProgress {
    var progress = ReplicaProgress(staleness: .seconds(5))
    for second in 1...3 { progress.asked(at: at(Double(second)), end: end(Int64(100 * second))) }
    progress.applied(position.map { end($0) })
    return progress
  }

  // swift-format-ignore
  @Test("follows from the last question whose answer it has reached", arguments: [
    // applied     known until     at 3 s   at 6.5 s  at 8.5 s
    (nil as Int64?, nil as Double?, false,  false,    false),
    (99,            nil,            false,  false,    false),
    (100,           1,              true,   false,    false),
    (299,           2,              true,   true,     false),
    (1000,          3,              true,   true,     false),
  ])
  func known(position: Int64?, until second: Double?, _ at3: Bool, _ at6: Bool, _ at8: Bool) {
    let progress = progress(applied: position)
    #expect(progress.knownUntil == second.map(at))
    #expect(progress.age(at: at(6.5)) == second.map { .seconds(6.5 - $0) })
    #expect([3, 6.5, 8.5].map { progress.isCurrent(at: at($0)) } == [at3, at6, at8])
  }

  @Test("is enough for who has changed something once that is in it")
  func changes() {
    var progress = progress(applied: 200)
    let changes = RecentWrites()
    changes.note(["unasked"], at: at(2.5))
    changes.remember(for: .seconds(5))
    changes.note(["anna"], at: at(2.5))
    #expect(changes.latest(of: ["unasked", "ben", "anna"]) == [nil, nil, at(2.5)])
    let needed = progress.needed(since: changes.latest(of: ["ben", "anna"]), at: at(3))
    #expect(needed == at(2.5))
    #expect(!progress.isKnown(until: needed))
    #expect(progress.isKnown(until: progress.needed(since: [nil], at: at(3))))
    progress.applied(end(300))
    #expect(progress.isKnown(until: needed))
    // Only changes that every standby in use has applied are forgotten.
    changes.note(["ben"], at: at(8))
    #expect(changes.latest(of: ["anna", "ben"]) == [nil, at(8)])
  }

  @Test("is nothing of a history that began without it, however long its own is")
  func failover() {
    var progress = progress(applied: 300)
    // The standby that took over had less of the log.
    progress.asked(at: at(4), end: end(250, timeline: 2))
    progress.applied(end(1000))
    #expect(progress.knownUntil == at(3))
    #expect(!progress.isCurrent(at: at(8.5)))
    progress.applied(end(250, timeline: 2))
    #expect(progress.knownUntil == at(4))
  }

  @Test("is nothing while it does not answer, and too little while it falls behind")
  func behind() {
    var progress = progress(applied: 300)
    progress.applied(nil)
    #expect(!progress.isCurrent(at: at(3)))
    for second in 4...20 { progress.asked(at: at(Double(second)), end: end(Int64(100 * second))) }
    progress.applied(end(300))
    #expect(!progress.isCurrent(at: at(20)))
    progress.applied(end(1600))
    #expect(progress.isCurrent(at: at(20)))
  }

  @Test("where nothing is written, the log's end is current however old it is")
  func idle() {
    var progress = progress(applied: 300)
    for second in 4...60 { progress.asked(at: at(Double(second)), end: end(300)) }
    progress.applied(end(300))
    #expect(progress.knownUntil == at(60))
  }
}
