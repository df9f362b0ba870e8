import HTTPTypes
import Hummingbird
import JSONText
import LedgerStorage
import Subscriptions

/// Persons who are erased.
struct ErasureController: Sendable {
  let ledger: Ledger
  let now: @Sendable () -> Timestamp

  @Sendable
  func erase(_ request: Request, context: APIContext) async throws -> Response {
    let id = try context.parameter(.accountID)
    let administrator = try context.administrator(reason: try await request.reason())
    return Response(try await ledger.erase(id, by: administrator, at: now()))
  }
}

extension Erasure: JSONWritable {
  func write(to json: inout JSONWriter) {
    json.object { json in
      json.member("account_id", pseudonym)
      json.member("erased_at", erasedAt)
      json.member("removed", removed)
    }
  }
}
