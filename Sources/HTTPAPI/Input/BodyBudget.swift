import Hummingbird
import NIOCore
import Subscriptions
import Synchronization

/// Limits of the request bodies held in memory, over all connections.
struct BodyBudgets: Sendable {
  /// For requests with an API key.
  let callers = BodyBudget(limit: 64 * 1024 * 1024)
  /// For the admin pages, whose forms are small; separate so that notifications can't use it up.
  let pages = BodyBudget(limit: 4 * 1024 * 1024, isOpenToAll: true)
  /// For all other requests.
  let strangers = BodyBudget(
    limit: 16 * 1024 * 1024, isOpenToAll: true, pace: BodyPace(bytesPerSecond: 4 * 1024 * 1024))
}

/// Limits how many bytes of large bodies are read per second, over all connections.
///
/// Reading 1 MB takes as much processor time as a hundred reads of entitlements, so that a few
/// senders could take it all. Unread data stays in the senders' network buffers.
final class BodyPace: Sendable {
  /// The part of a body that is read at once, the first unlimited; notifications of version 2 stay below
  /// 20 kB.
  static let part = 32 * 1024
  /// A body that would wait longer than this for its next part is refused.
  static let longestWait: Duration = .seconds(2)
  /// How much of the time without large bodies is made up for: one body can come at once.
  static let burst: Duration = .milliseconds(250)

  private let timeOfPart: Duration
  private let nextPart = Mutex(ContinuousClock.now)

  init(bytesPerSecond: Int) {
    timeOfPart = .seconds(1) * Self.part / bytesPerSecond
  }

  /// Returns the time until the next part may be read, nil if it is too long.
  func wait(at now: ContinuousClock.Instant = .now) -> Duration? {
    nextPart.withLock { next in
      let wait = max(.zero, next - now)
      guard wait <= Self.longestWait else { return nil }
      next = max(next, now - Self.burst) + timeOfPart
      return wait
    }
  }
}

/// A number of bytes that request bodies share.
///
/// In a budget that is open to all, one address gets at most half, and when it is used up, the body
/// that has been arriving for longest is dropped: deliberately slow senders can't keep out
/// notifications, which arrive quickly.
final class BodyBudget: Sendable {
  private struct Held {
    var share: BodyShare
    var bytes: Int
    var isArriving = true
  }

  private struct State {
    var bytes = 0
    var bytesByAddress: [ExactText: Int] = [:]
    /// By the number of the share; numbers ascend.
    var held: [Int: Held] = [:]

    mutating func add(_ bytes: Int, of share: BodyShare) {
      self.bytes += bytes
      bytesByAddress[share.address, default: 0] += bytes
      held[share.number, default: Held(share: share, bytes: 0)].bytes += bytes
    }

    mutating func remove(_ number: Int) -> BodyShare? {
      guard let removed = held.removeValue(forKey: number) else { return nil }
      bytes -= removed.bytes
      let left = bytesByAddress[removed.share.address, default: 0] - removed.bytes
      bytesByAddress[removed.share.address] = left > 0 ? left : nil
      return removed.share
    }
  }

  private let limit: Int
  private let isOpenToAll: Bool
  fileprivate let pace: BodyPace?
  private let state = Mutex(State())
  private let shares = Atomic(0)

  init(limit: Int, isOpenToAll: Bool = false, pace: BodyPace? = nil) {
    (self.limit, self.isOpenToAll, self.pace) = (limit, isOpenToAll, pace)
  }

  fileprivate func nextNumber() -> Int { shares.add(1, ordering: .relaxed).newValue }

  /// Takes bytes for a share, or takes nothing and returns false if too few are left.
  fileprivate func take(_ bytes: Int, for share: BodyShare) -> Bool {
    let (isTaken, dropped) = state.withLock { state in
      var dropped: [BodyShare] = []
      guard !share.isDropped.load(ordering: .relaxed) else { return (false, dropped) }
      while true {
        let isAddressFull =
          isOpenToAll && state.bytesByAddress[share.address, default: 0] + bytes > limit / 2
        guard isAddressFull || state.bytes + bytes > limit else { break }
        guard isOpenToAll,
          let oldest = state.held.lazy.filter({ number, held in
            held.isArriving && number != share.number
              && (!isAddressFull || held.share.address == share.address)
          }).map(\.key).min(), let removed = state.remove(oldest)
        else { return (false, dropped) }
        removed.isDropped.store(true, ordering: .relaxed)
        dropped.append(removed)
      }
      state.add(bytes, of: share)
      return (true, dropped)
    }
    for share in dropped { share.drop() }
    return isTaken
  }

  /// Marks a body as complete, so that it is not dropped any more.
  fileprivate func keep(_ share: BodyShare) {
    state.withLock { $0.held[share.number]?.isArriving = false }
  }

  fileprivate func giveBack(_ share: BodyShare) {
    state.withLock { _ = $0.remove(share.number) }
  }
}

package final class BodyShare: Sendable {
  @TaskLocal package static var current: BodyShare?

  private let budget: BodyBudget
  fileprivate let number: Int
  fileprivate let address: ExactText
  fileprivate let drop: @Sendable () -> Void
  fileprivate let isDropped = Atomic(false)
  private let taken = Atomic(0)

  /// `drop` ends the request while its body arrives.
  init(of budget: BodyBudget, from address: String, drop: @escaping @Sendable () -> Void) {
    self.budget = budget
    self.address = ExactText(address)
    self.drop = drop
    number = budget.nextNumber()
  }

  /// Takes bytes that were read, and returns when more may be read.
  ///
  /// - Throws: A ``Problem`` if there are not enough left, or other bodies are to be read before.
  func take(_ count: Int) async throws {
    guard budget.take(count, for: self) else { throw Self.tooManyBodies }
    let (before, after) = taken.add(count, ordering: .relaxed)
    guard let pace = budget.pace, after / BodyPace.part > before / BodyPace.part else { return }
    guard let wait = pace.wait() else { throw Self.tooManyBodies }
    if wait > .zero { try await Task.sleep(for: wait) }
  }

  private static let tooManyBodies = Problem.unavailable(
    "The server is reading too many large bodies. Try again.")

  /// Notes that the whole body has arrived.
  func keep() { budget.keep(self) }

  package func giveBack() { budget.giveBack(self) }
}

/// Gives each request a share of its budget until it is answered.
struct BodyAdmission: RouterMiddleware {
  let budgets: BodyBudgets
  let site: (any Site)?

  func handle(_ request: Request, context: APIContext, next: Next) async throws -> Response {
    let budget =
      if context.caller != nil { budgets.callers } else if site?.serves(request.uri.path) ?? false {
        budgets.pages
      } else { budgets.strangers }
    let share = BodyShare(of: budget, from: context.remoteAddress) {
      context.channel.close(promise: nil)
    }
    defer { share.giveBack() }
    return try await BodyShare.$current.withValue(share) { try await next(request, context) }
  }
}
