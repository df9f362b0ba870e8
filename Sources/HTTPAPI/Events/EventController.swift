import Hummingbird
import HummingbirdCore
import JSONText
import LedgerStorage
import ServiceLifecycle
import Subscriptions

/// The feed of changes.
struct EventController: Sendable {
  /// Shorter than what load balancers and clients usually wait for an answer, and than
  /// ``ConnectionLimits.idle``.
  static let longestWaitSeconds = 60

  let ledger: Ledger
  let watch: EventWatch

  @Sendable
  func list(_ request: Request, context: APIContext) async throws -> Response {
    let page = try Page(request.uri)
    let cursor = try page.after.map(Self.cursor)
    let deadline = ContinuousClock.now + .seconds(try Self.waitSeconds(request.uri))
    while true {
      let newsCount = watch.newsCount
      let found: FeedPage
      switch try await ledger.events(after: cursor, limit: page.limit) {
      case .page(let page): found = page
      case .cursorExpired:
        throw Problem(
          .cursorExpired,
          "Events behind this cursor are deleted: they are older than is kept. Take in what there "
            + "is now, then read on without `after`, from the oldest event that is kept.")
      case .cursorUnknown:
        throw Problem(
          .cursorUnknown,
          "The feed has no event at \(cursor?.text ?? ""): the database was restored from an older "
            + "backup, or this feed never gave the cursor. Take in what there is now, then read on "
            + "without `after`, from the oldest event that is kept.")
      }
      let left = deadline - .now
      guard found.events.isEmpty, left > .zero, !Task.isShuttingDownGracefully else {
        return Response(found, capacity: 64 + found.events.count * 600)
      }
      await cancelWhenGracefulShutdown { [watch] in
        await watch.waitForNews(beyond: newsCount, within: left)
      }
      // Nobody is there any more to answer to.
      try Task.checkCancellation()
    }
  }

  private static func cursor(_ text: String) throws -> FeedCursor {
    guard let cursor = FeedCursor(text) else { throw Page.malformedCursor }
    return cursor
  }

  private static func waitSeconds(_ uri: URI) throws -> Int {
    guard let text = Query(uri)?["wait"] else { return 0 }
    guard let seconds = Int(text.rawValue), (0...longestWaitSeconds).contains(seconds) else {
      throw Problem.invalid("wait", "must be a number of seconds from 0 to \(longestWaitSeconds)")
    }
    return seconds
  }
}

extension FeedPage: JSONWritable {
  func write(to json: inout JSONWriter) {
    json.object { json in
      json.key("events")
      json.array(events) { $0.write(json: $1) }
      json.member("next", next.text)
    }
  }
}

/// Watches the feed for as long as the server runs.
struct EventWatching: Service {
  let watch: EventWatch

  func run() async throws {
    await cancelWhenGracefulShutdown { await watch.run() }
  }
}

/// The pushing of events again, for administrators.
struct RedeliveryController: Sendable {
  let ledger: Ledger
  let now: @Sendable () -> Timestamp

  @Sendable
  func redeliver(_ request: Request, context: APIContext) async throws -> Response {
    let name = "event_id"
    guard let id = Int64(try context.parameters.require(name)) else {
      throw Problem.invalid(name, "must be the id of an event")
    }
    let administrator = try context.administrator(reason: try Query(request.uri)?.text(.reason))
    switch try await ledger.redeliver(id, by: administrator, at: now()) {
    case .scheduled: return Response(ScheduledRedelivery(eventID: id), status: .accepted)
    case .webhooksOff:
      throw Problem(.webhooksOff, "No worker was ever given a webhook: set TENURE_WEBHOOK_URL.")
    case .unknownEvent:
      throw Problem(.unknownEvent, "There is no event \(id), or it is older than events are kept.")
    }
  }
}

private struct ScheduledRedelivery: JSONWritable {
  let eventID: Int64

  func write(to json: inout JSONWriter) {
    json.object { $0.member("event_id", String(eventID)) }
  }
}
