import Hummingbird
import JSONText
import LedgerStorage
import Subscriptions

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
