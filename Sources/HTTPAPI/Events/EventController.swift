import Hummingbird
import HummingbirdCore
import JSONText
import LedgerStorage
import ServiceLifecycle
import Subscriptions

struct EventController: Controller {
  /// Shorter than the timeouts of load balancers and clients, and ``ConnectionLimits/idle``.
  static let longestWaitSeconds = 60

  let api: API

  func list(_ request: Request, context: APIContext) async throws -> Response {
    let page = try Page(request.query)
    let cursor = try page.cursor { FeedCursor($0) }
    let wait = try request.query.integer("wait", in: 0...Self.longestWaitSeconds) ?? 0
    let deadline = ContinuousClock.now + .seconds(wait)
    while true {
      let eventCount = api.watch.eventCount
      let found: FeedPage
      switch try await ledger.events.events(after: cursor, limit: page.limit) {
      case .page(let page): found = page
      case .cursorExpired:
        throw Problem(
          .cursorExpired,
          "Events after this cursor were deleted because their retention ended. Reload the current "
            + "state, then continue without `after`, from the oldest event kept.")
      case .cursorUnknown:
        throw Problem(
          .cursorUnknown,
          "The feed has no event at \(cursor?.text ?? ""): the database was restored from an older "
            + "backup, or the cursor belongs to another feed. Reload the current state, then "
            + "continue without `after`, from the oldest event kept.")
      }
      let left = deadline - .now
      guard found.events.isEmpty, left > .zero, !Task.isShuttingDownGracefully else {
        return Response(capacity: 64 + found.events.count * 600) { json in
          json.array("events", found.events) { $0.write(json: $1) }
          json.member("next", found.next.text)
        }
      }
      await cancelWhenGracefulShutdown {
        await api.watch.waitForEvents(beyond: eventCount, within: left)
      }
      // The client has disconnected.
      try Task.checkCancellation()
    }
  }

  func redeliver(_ request: Request, context: APIContext) async throws -> Response {
    let name = "event_id"
    guard let id = Int64(try context.parameters.require(name)) else {
      throw Problem.invalid(name, "must be a number, the `id` of an event")
    }
    let administrator = try context.administrator(reason: try request.query.text(.reason))
    switch try await ledger.webhooks.redeliver(id, by: administrator, at: now()) {
    case .scheduled: return Response(status: .accepted) { $0.member("event_id", String(id)) }
    case .webhooksOff:
      throw Problem(
        .webhooksOff, "No worker has run with a webhook. Set TENURE_WEBHOOK_URL.")
    case .unknownEvent:
      throw Problem(.unknownEvent, "Event \(id) does not exist, or its retention has ended.")
    }
  }
}
