import Hummingbird
import Synchronization

/// How many bytes of request bodies may be held in memory at a time, over all connections.
struct BodyBudgets: Sendable {
  /// For requests with an API key.
  let callers = BodyBudget(limit: 64 * 1024 * 1024)
  /// For the administrators' pages, whose forms are small: notifications can't keep them out.
  let pages = BodyBudget(limit: 4 * 1024 * 1024)
  /// For all others, apart: strangers can use up only what other strangers could have.
  let strangers = BodyBudget(limit: 16 * 1024 * 1024)
}

final class BodyBudget: Sendable {
  let limit: Int
  private let held = Atomic(0)

  init(limit: Int) {
    self.limit = limit
  }

  /// Takes bytes; false, and nothing is taken, if there are not enough left.
  func take(_ bytes: Int) -> Bool {
    guard held.add(bytes, ordering: .relaxed).newValue > limit else { return true }
    giveBack(bytes)
    return false
  }

  func giveBack(_ bytes: Int) {
    held.subtract(bytes, ordering: .relaxed)
  }
}

/// The bytes of a budget that one request has taken.
final class BodyShare: Sendable {
  @TaskLocal static var current: BodyShare?

  private let budget: BodyBudget
  private let bytes = Atomic(0)

  init(of budget: BodyBudget) {
    self.budget = budget
  }

  /// Takes bytes for a part of the body.
  ///
  /// - Throws: A ``Problem`` if there are not enough left.
  func take(_ count: Int) throws {
    guard budget.take(count) else {
      throw Problem.unavailable("The server is reading too many large bodies. Try again.")
    }
    bytes.add(count, ordering: .relaxed)
  }

  /// Gives everything back, once the body is not needed any more.
  func giveBack() {
    budget.giveBack(bytes.exchange(0, ordering: .relaxed))
  }
}

/// Gives each request a share of the budget until it is answered.
struct BodyAdmission: RouterMiddleware {
  let budgets: BodyBudgets

  func handle(
    _ request: Request, context: APIContext,
    next: @concurrent (Request, APIContext) async throws -> Response
  ) async throws -> Response {
    let budget =
      if context.caller != nil { budgets.callers } else if PageAddress.contains(request.uri.path) {
        budgets.pages
      } else { budgets.strangers }
    let share = BodyShare(of: budget)
    defer { share.giveBack() }
    return try await BodyShare.$current.withValue(share) { try await next(request, context) }
  }
}
