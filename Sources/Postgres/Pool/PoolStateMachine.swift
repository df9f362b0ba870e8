internal import DequeModule

/// The pool's decisions, without I/O: which connection takes a request, when to open another.
///
/// A *shared* request may go to any connection that is not leased, behind the requests in flight
/// there. A *lease* reserves a connection until it is released; it may also start behind shared
/// requests. Of several connections one is never leased, so shared requests proceed however many
/// transactions wait for locks.
struct PoolState<Waiter: AnyObject & Sendable>: Sendable {
  enum Need: Sendable { case shared, lease }

  struct Slot: Sendable {
    enum Status: Sendable { case empty, connecting, ready }
    var status = Status.empty
    var inFlight = 0
    var isLeased = false
    /// Time of its last result, or of the request that ended its idleness.
    var lastProgress: ContinuousClock.Instant
  }

  struct Waiting: Sendable {
    let waiter: Waiter
    let need: Need
    let since: ContinuousClock.Instant
    let deadline: ContinuousClock.Instant
  }

  /// Shared requests in flight per connection above which another connection is opened; below this,
  /// a second server process costs more than it gains.
  static var crowdedDepth: Int { 32 }

  /// A connection without a result for this long is running something slow and gets no requests.
  static var slowAfter: Duration { .milliseconds(10) }

  private(set) var slots: [Slot]
  private(set) var waiting = Deque<Waiting>()
  private(set) var hasEverConnected = false
  /// The number of requests sent: round trips, as each ends in one sync point.
  private(set) var requestsSent = 0
  private var isCrowded = false
  private var failures = 0
  private(set) var retryAt: ContinuousClock.Instant?

  init(limit: Int, now: ContinuousClock.Instant) {
    slots = Array(repeating: Slot(lastProgress: now), count: max(1, limit))
  }

  var isIdle: Bool { waiting.isEmpty && slots.allSatisfy { $0.inFlight == 0 && !$0.isLeased } }

  /// Assigns a connection to a request; nil if the request must wait.
  mutating func place(_ need: Need, now: ContinuousClock.Instant) -> Int? {
    guard need == .shared || leasesLeft > 0 else { return nil }
    var best: Int?
    for index in slots.indices where isOpen(slots[index], now) {
      if let current = best, slots[current].inFlight <= slots[index].inFlight { continue }
      best = index
    }
    guard let best else { return nil }
    isCrowded = slots[best].inFlight >= Self.crowdedDepth
    switch need {
    case .shared: sent(on: best, now: now)
    case .lease: slots[best].isLeased = true
    }
    return best
  }

  mutating func wait(
    _ waiter: Waiter, _ need: Need, since: ContinuousClock.Instant,
    until deadline: ContinuousClock.Instant
  ) {
    waiting.append(Waiting(waiter: waiter, need: need, since: since, deadline: deadline))
  }

  /// Counts a request sent on a connection, such as one that is already leased.
  mutating func sent(on slot: Int, now: ContinuousClock.Instant) {
    if slots[slot].inFlight == 0 { slots[slot].lastProgress = now }
    slots[slot].inFlight += 1
    requestsSent += 1
  }

  mutating func finished(on slot: Int, now: ContinuousClock.Instant) {
    slots[slot].inFlight -= 1
    slots[slot].lastProgress = now
  }

  mutating func released(_ slot: Int) { slots[slot].isLeased = false }

  mutating func connected(_ slot: Int, now: ContinuousClock.Instant) {
    slots[slot] = Slot(status: .ready, lastProgress: now)
    hasEverConnected = true
    failures = 0
    retryAt = nil
  }

  mutating func closed(_ slot: Int, now: ContinuousClock.Instant) {
    slots[slot] = Slot(lastProgress: now)
  }

  mutating func connectFailed(_ slot: Int, now: ContinuousClock.Instant, jitter: Double) {
    slots[slot] = Slot(lastProgress: now)
    retryAt = now + Backoff.reconnecting.delay(attempt: failures, jitter: jitter)
    failures += 1
  }

  /// Assigns connections to waiting requests: shared ones first, because they block no one else,
  /// then leases in their order.
  mutating func placeWaiting(now: ContinuousClock.Instant) -> [(waiter: Waiter, slot: Int)] {
    guard !waiting.isEmpty, slots.contains(where: { isOpen($0, now) }) else { return [] }
    var placements: [(waiter: Waiter, slot: Int)] = []
    for need in [Need.shared, .lease] {
      // If the first request of a kind finds no room, the ones behind it don't either.
      while let index = waiting.firstIndex(where: { $0.need == need }),
        let slot = place(need, now: now)
      {
        placements.append((waiting.remove(at: index).waiter, slot))
      }
    }
    return placements
  }

  /// Chooses the slots in which to open connections now, and marks them as connecting.
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

  mutating func remove(_ waiter: Waiter) -> Bool {
    guard let index = waiting.firstIndex(where: { $0.waiter === waiter }) else { return false }
    waiting.remove(at: index)
    return true
  }

  mutating func removeExpired(now: ContinuousClock.Instant) -> [Waiter] {
    remove { $0.deadline <= now }
  }

  /// Removes requests that have waited for `patience` while the server is unreachable: the last
  /// connect has failed and no connection has responded for as long.
  mutating func removeRefused(now: ContinuousClock.Instant, patience: Duration) -> [Waiter] {
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

  private var leasesLeft: Int { max(1, slots.count - 1) - slots.count(where: \.isLeased) }

  private func isOpen(_ slot: Slot, _ now: ContinuousClock.Instant) -> Bool {
    guard slot.status == .ready, !slot.isLeased else { return false }
    return slot.inFlight == 0 || now - slot.lastProgress < Self.slowAfter
  }
}

/// Exponential retry delays with a limit and jitter.
struct Backoff {
  let first: Duration
  let longest: Duration

  /// A server restarts within seconds; a new primary responds within 100 ms of its promotion.
  static let reconnecting = Backoff(first: .milliseconds(50), longest: .seconds(1))

  /// Transactions that collide are short.
  static let retrying = Backoff(first: .milliseconds(5), longest: .milliseconds(500))

  /// Computes a delay, at least half of it fixed.
  ///
  /// - Parameters:
  ///   - attempt: The number of failures before the last one.
  ///   - jitter: From 0 to 1; scales the other half.
  func delay(attempt: Int, jitter: Double) -> Duration {
    let doubled = first * Double(1 << min(attempt, 16))
    return min(doubled, longest) * (0.5 + jitter / 2)
  }

  func wait(attempt: Int) async throws {
    try await Task.sleep(for: delay(attempt: attempt, jitter: .random(in: 0...1)))
  }
}
