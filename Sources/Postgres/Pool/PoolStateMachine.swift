internal import DequeModule

/// Which connection takes which request, and when to open another: the pool's decisions, without
/// any I/O.
///
/// Requests are of two kinds. A *shared* one may go to any connection that nobody has to himself,
/// behind what is already under way there. A *lease* takes a connection for its own until it is
/// released; it too may begin behind shared ones which have not been answered, for the server keeps
/// the order. Of several connections one is never leased: however many transactions wait for locks,
/// shared requests go on.
struct PoolState<Waiter: AnyObject & Sendable>: Sendable {
  enum Need: Sendable { case shared, lease }

  struct Slot: Sendable {
    enum Status: Sendable { case empty, connecting, ready }
    var status = Status.empty
    var inFlight = 0
    var isLeased = false
    /// When it last answered, or began after having been idle.
    var lastProgress: ContinuousClock.Instant
  }

  struct Placement {
    let waiter: Waiter
    let slot: Int
  }

  struct Waiting: Sendable {
    let waiter: Waiter
    let need: Need
    let since: ContinuousClock.Instant
    let deadline: ContinuousClock.Instant
  }

  /// From so many shared requests in flight on each connection, another connection is opened: with
  /// fewer, a second server process costs more than it brings.
  static var crowdedDepth: Int { 32 }

  /// A connection without an answer for so long is working on something slow: others are not put
  /// behind it.
  static var slowAfter: Duration { .milliseconds(10) }

  private(set) var slots: [Slot]
  private(set) var waiting = Deque<Waiting>()
  private(set) var hasEverConnected = false
  /// How many requests have been sent; each ends in one sync point, and so costs one round trip.
  private(set) var requestsSent = 0
  private var isCrowded = false
  private var failures = 0
  private(set) var retryAt: ContinuousClock.Instant?

  init(limit: Int, now: ContinuousClock.Instant) {
    slots = Array(repeating: Slot(lastProgress: now), count: max(1, limit))
  }

  var isIdle: Bool {
    waiting.isEmpty && slots.allSatisfy { $0.inFlight == 0 && !$0.isLeased }
  }

  /// Chooses and books a connection for a request; nil when it has to wait.
  mutating func place(_ need: Need, now: ContinuousClock.Instant) -> Int? {
    guard need == .shared || leasesLeft > 0 else { return nil }
    var best: Int?
    for index in slots.indices where isOpen(slots[index], now) {
      if let current = best, slots[current].inFlight <= slots[index].inFlight { continue }
      best = index
    }
    guard let best else { return nil }
    isCrowded = slots[best].inFlight >= Self.crowdedDepth
    book(best, need, now)
    return best
  }

  mutating func wait(
    _ waiter: Waiter, _ need: Need, since: ContinuousClock.Instant,
    until deadline: ContinuousClock.Instant
  ) {
    waiting.append(Waiting(waiter: waiter, need: need, since: since, deadline: deadline))
  }

  /// Counts a request that goes to a connection leased already.
  mutating func sent(on slot: Int, now: ContinuousClock.Instant) {
    if slots[slot].inFlight == 0 { slots[slot].lastProgress = now }
    slots[slot].inFlight += 1
    requestsSent += 1
  }

  mutating func finished(on slot: Int, now: ContinuousClock.Instant) {
    slots[slot].inFlight -= 1
    slots[slot].lastProgress = now
  }

  mutating func released(_ slot: Int) {
    slots[slot].isLeased = false
  }

  mutating func connected(_ slot: Int, now: ContinuousClock.Instant) {
    slots[slot] = Slot(status: .ready, lastProgress: now)
    hasEverConnected = true
    failures = 0
    retryAt = nil
  }

  mutating func closed(_ slot: Int, now: ContinuousClock.Instant) {
    slots[slot] = Slot(lastProgress: now)
  }

  /// Notes that no connection could be made, and when to try again.
  mutating func connectFailed(_ slot: Int, now: ContinuousClock.Instant, jitter: Double) {
    slots[slot] = Slot(lastProgress: now)
    retryAt = now + Backoff.reconnecting.delay(attempt: failures, jitter: jitter)
    failures += 1
  }

  /// Places whoever can be: the shared ones first, since they hold nobody up, then the leases in
  /// their order.
  mutating func placeWaiting(now: ContinuousClock.Instant) -> [Placement] {
    guard !waiting.isEmpty, slots.contains(where: { isOpen($0, now) }) else { return [] }
    var placements: [Placement] = []
    for need in [Need.shared, .lease] {
      // Where the first one finds no room, none behind it does.
      while let index = waiting.firstIndex(where: { $0.need == need }),
        let slot = place(need, now: now)
      {
        placements.append(Placement(waiter: waiting.remove(at: index).waiter, slot: slot))
      }
    }
    return placements
  }

  /// Chooses the places where connections are to be opened now, and counts them as being opened.
  mutating func slotsToConnect(now: ContinuousClock.Instant) -> [Int] {
    if let retryAt, now < retryAt { return [] }
    let leases = waiting.count { $0.need == .lease }
    let shared = (waiting.count - leases + Self.crowdedDepth - 1) / Self.crowdedDepth
    let underWay = slots.count { $0.status == .connecting }
    let wanted = max(min(leases, leasesLeft) + shared, isCrowded ? 1 : 0) - underWay
    isCrowded = false
    guard wanted > 0 else { return [] }
    let chosen = slots.indices.filter { slots[$0].status == .empty }.prefix(wanted)
    for index in chosen { slots[index].status = .connecting }
    return Array(chosen)
  }

  /// Takes a waiter out, for it has been cancelled.
  mutating func remove(_ waiter: Waiter) -> Bool {
    guard let index = waiting.firstIndex(where: { $0.waiter === waiter }) else { return false }
    waiting.remove(at: index)
    return true
  }

  /// Takes out those who have waited too long.
  mutating func removeExpired(now: ContinuousClock.Instant) -> [Waiter] {
    remove { $0.deadline <= now }
  }

  /// Takes out those who have waited for `patience`, if the server is out of reach: the last
  /// connect has failed, and no connection has answered for as long.
  mutating func removeRefused(
    now: ContinuousClock.Instant, patience: Duration
  ) -> [Waiter] {
    let isOutOfReach =
      failures > 0
      && !slots.contains {
        $0.status == .ready && ($0.inFlight == 0 || now - $0.lastProgress < patience)
      }
    return isOutOfReach ? remove { now - $0.since >= patience } : []
  }

  private mutating func remove(where isOver: (Waiting) -> Bool) -> [Waiter] {
    guard waiting.contains(where: isOver) else { return [] }
    let removed = waiting.filter(isOver).map(\.waiter)
    waiting.removeAll(where: isOver)
    return removed
  }

  mutating func removeAll() -> [Waiter] {
    defer { waiting.removeAll() }
    return waiting.map(\.waiter)
  }

  /// How many more connections can be leased.
  private var leasesLeft: Int { max(1, slots.count - 1) - slots.count(where: \.isLeased) }

  private func isOpen(_ slot: Slot, _ now: ContinuousClock.Instant) -> Bool {
    guard slot.status == .ready, !slot.isLeased else { return false }
    return slot.inFlight == 0 || now - slot.lastProgress < Self.slowAfter
  }

  private mutating func book(_ slot: Int, _ need: Need, _ now: ContinuousClock.Instant) {
    switch need {
    case .shared: sent(on: slot, now: now)
    case .lease: slots[slot].isLeased = true
    }
  }
}

/// How long to wait before trying again: longer each time, up to a limit, and never everybody at
/// once.
struct Backoff {
  let first: Duration
  let longest: Duration

  /// A server that restarts is back within seconds; a failover begins to answer within 100 ms of
  /// promotion.
  static let reconnecting = Backoff(first: .milliseconds(50), longest: .seconds(1))

  /// Transactions that collided are short.
  static let retrying = Backoff(first: .milliseconds(5), longest: .milliseconds(500))

  /// Computes the delay before another attempt.
  ///
  /// - Parameters:
  ///   - attempt: how many have failed before the last one.
  ///   - jitter: from 0 to 1, random; half of the delay depends on it.
  /// - Returns: at least half of the full delay.
  func delay(attempt: Int, jitter: Double) -> Duration {
    let doubled = first * Double(1 << min(attempt, 16))
    return min(doubled, longest) * (0.5 + jitter / 2)
  }

  /// Waits before another attempt, for the delay of `attempt` with a random jitter.
  func wait(attempt: Int) async throws {
    try await Task.sleep(for: delay(attempt: attempt, jitter: .random(in: 0...1)))
  }
}
