import HTTPTypes
import Hummingbird
import HummingbirdCore
import LedgerStorage
import Subscriptions

/// All that is known of an account, as one document.
struct ExportController: Sendable {
  let ledger: Ledger
  let entitlements: EntitlementReader
  let now: @Sendable () -> Timestamp

  @Sendable
  func export(_ request: Request, context: APIContext) async throws -> Response {
    let id = try context.parameter(.accountID)
    let reason = try Query(request.uri)?.text(.reason)
    guard let account = try await ledger.account(id) else {
      throw Problem(.unknownAccount, "The account was never seen.")
    }
    return try await document(of: account, by: try context.administrator(reason: reason))
  }

  /// Sends the document in pieces while it is read: it may be of any size.
  func document(of account: Account, by administrator: Administrator) async throws -> Response {
    let export = try await AccountExport(
      of: account, by: administrator, from: ledger, terms: entitlements.terms, at: now())
    return Response(
      status: .ok, headers: [.contentType: "application/json"],
      body: ResponseBody { writer in
        try await export.write(to: &writer)
        try await writer.finish(nil)
      })
  }
}
