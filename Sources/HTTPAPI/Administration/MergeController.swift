import HTTPTypes
import Hummingbird
import JSONText
import LedgerStorage
import Subscriptions

/// Accounts that administrators merge.
struct MergeController: Sendable {
  let ledger: Ledger
  let entitlements: EntitlementReader
  let now: @Sendable () -> Timestamp

  private struct MergeRequest: Decodable {
    var into: String
    var reason: String
  }

  /// Merges an account into another: 202 where charges are still to be placed.
  @Sendable
  func merge(_ request: Request, context: APIContext) async throws -> Response {
    let id = try context.parameter(.accountID)
    let body = try await request.json(MergeRequest.self)
    let into = try TextField.into.checked(body.into)
    let administrator = try context.administrator(
      reason: try TextField.reason.checked(body.reason))
    let merger = try await ledger.merge(
      id, into: into, by: administrator, terms: entitlements.terms, at: now())
    return Response(merger, status: merger.completedAt == nil ? .accepted : .ok)
  }
}

extension TextField {
  /// The account that remains of two.
  static let into = TextField(name: "into", maximumLength: 255)
}
