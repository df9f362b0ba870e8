import Testing

@testable import Postgres

/// The pool's decisions, without a server and without a clock.
@Suite struct PoolStateTests {
  final class Waiter: Sendable {
    let name: String
    init(_ name: String) { self.name = name }
  }

  let start = ContinuousClock.now

  private func pool(limit: Int, connected: Int) -> PoolState<Waiter> {
    var state = PoolState<Waiter>(limit: limit, now: start)
    for slot in 0..<connected { state.connected(slot, now: start) }
    return state
  }

  @Test func theFirstRequestOpensOneConnection() {
    var state = pool(limit: 4, connected: 0)
    #expect(state.place(.shared, now: start) == nil)
    state.wait(Waiter("a"), .shared, since: start, until: start + .seconds(1))
    #expect(state.slotsToConnect(now: start) == [0])
    #expect(state.slotsToConnect(now: start) == [])
    state.connected(0, now: start)
    #expect(state.placeWaiting(now: start).map(\.waiter.name) == ["a"])
    #expect(state.slots[0].inFlight == 1)
  }

  @Test func sharedRequestsFillTheLeastBusyConnection() {
    var state = pool(limit: 2, connected: 2)
    #expect((0..<4).map { _ in state.place(.shared, now: start) } == [0, 1, 0, 1])
  }

  @Test func anotherConnectionIsOpenedWhenTheFirstIsCrowded() {
    var state = pool(limit: 3, connected: 1)
    for _ in 0..<PoolState<Waiter>.crowdedDepth {
      #expect(state.place(.shared, now: start) == 0)
      #expect(state.slotsToConnect(now: start) == [])
    }
    #expect(state.place(.shared, now: start) == 0)
    #expect(state.slotsToConnect(now: start) == [1])
  }

  @Test func aLeaseHasItsConnectionAlone() {
    var state = pool(limit: 1, connected: 1)
    #expect(state.place(.lease, now: start) == 0)
    #expect(state.place(.shared, now: start) == nil)
    #expect(state.place(.lease, now: start) == nil)
    state.wait(Waiter("lease"), .lease, since: start, until: start + .seconds(1))
    state.wait(Waiter("shared"), .shared, since: start, until: start + .seconds(1))
    state.released(0)
    // The shared one goes first, because it delays no other; the lease follows at once.
    #expect(state.placeWaiting(now: start).map(\.waiter.name) == ["shared", "lease"])
    #expect(state.place(.shared, now: start) == nil)
  }

  @Test func oneOfSeveralConnectionsIsNeverLeased() {
    var state = pool(limit: 3, connected: 2)
    #expect((0..<2).map { _ in state.place(.lease, now: start) } == [0, 1])
    #expect(state.place(.lease, now: start) == nil)
    state.wait(Waiter("lease"), .lease, since: start, until: start + .seconds(1))
    // A connection more would not help it.
    #expect(state.slotsToConnect(now: start) == [])
    state.wait(Waiter("shared"), .shared, since: start, until: start + .seconds(1))
    #expect(state.slotsToConnect(now: start) == [2])
    state.connected(2, now: start)
    #expect(state.placeWaiting(now: start).map(\.waiter.name) == ["shared"])
    state.released(0)
    #expect(state.placeWaiting(now: start).map(\.slot) == [0])
  }

  @Test func noRequestIsQueuedBehindASlowOne() {
    var state = pool(limit: 2, connected: 1)
    #expect(state.place(.shared, now: start) == 0)
    let later = start + PoolState<Waiter>.slowAfter
    #expect(state.place(.shared, now: later) == nil)
    state.wait(Waiter("quick"), .shared, since: start, until: start + .seconds(1))
    #expect(state.slotsToConnect(now: later) == [1])
    state.finished(on: 0, now: later)
    #expect(state.placeWaiting(now: later).map(\.slot) == [0])
  }

  @Test func attemptsToConnectAreSpacedOut() throws {
    var state = pool(limit: 1, connected: 0)
    state.wait(Waiter("a"), .shared, since: start, until: start + .seconds(10))
    var now = start
    var delays: [Duration] = []
    for _ in 0..<7 {
      #expect(state.slotsToConnect(now: now) == [0])
      state.connectFailed(0, now: now, jitter: 1)
      #expect(state.slotsToConnect(now: now) == [])
      let retryAt = try #require(state.retryAt)
      delays.append(retryAt - now)
      now = retryAt
    }
    #expect(delays == [50, 100, 200, 400, 800, 1000, 1000].map { .milliseconds($0) })
  }

  @Test func waitersExpireInTime() {
    var state = pool(limit: 1, connected: 0)
    state.wait(Waiter("short"), .shared, since: start, until: start + .seconds(1))
    state.wait(Waiter("long"), .lease, since: start, until: start + .seconds(3))
    #expect(state.removeExpired(now: start).isEmpty)
    #expect(state.removeExpired(now: start + .seconds(1)).map(\.name) == ["short"])
    #expect(state.waiting.map(\.waiter.name) == ["long"])
    #expect(!state.isIdle)
  }

  /// When a waiter is refused early: (the pool's state, the delay).
  @Test(
    arguments: [
      // failed  silent  waited  refused
      (true, nil, 2.0, true),
      (true, nil, 1.9, false),
      (false, nil, 2.0, false),
      // A connection that has been silent for as long is no server either.
      (true, 2.0, 2.0, true),
      (true, 1.0, 2.0, false),
      (false, 2.0, 2.0, false),
    ] as [(Bool, Double?, Double, Bool)])
  func waitersAreRefusedWhereThereIsNoServer(
    hasFailed: Bool, silentFor: Double?, waited: Double, isRefused: Bool
  ) {
    var state = pool(limit: 2, connected: 0)
    let now = start + .seconds(waited)
    if let silentFor {
      state.connected(1, now: start)
      _ = state.place(.shared, now: now - .seconds(silentFor))
    }
    if hasFailed { state.connectFailed(0, now: start, jitter: 0) }
    state.wait(Waiter("a"), .shared, since: start, until: start + .seconds(10))
    let refused = state.removeRefused(now: now, patience: .seconds(2)).map(\.name)
    #expect(refused == (isRefused ? ["a"] : []))
    #expect(state.waiting.isEmpty == isRefused)
  }

  @Test func aReconnectedPoolRefusesNoRequest() {
    var state = pool(limit: 1, connected: 0)
    state.connectFailed(0, now: start, jitter: 0)
    state.wait(Waiter("a"), .lease, since: start, until: start + .seconds(10))
    state.connected(0, now: start + .seconds(3))
    #expect(state.removeRefused(now: start + .seconds(3), patience: .seconds(2)).isEmpty)
  }

  @Test func anIdleConnectionIsAServer() {
    var state = pool(limit: 2, connected: 1)
    #expect(state.place(.lease, now: start) == 0)
    state.connectFailed(1, now: start, jitter: 0)
    state.wait(Waiter("a"), .shared, since: start, until: start + .seconds(10))
    #expect(state.removeRefused(now: start + .seconds(9), patience: .seconds(2)).isEmpty)
  }
}
