import HTTPTypes
import Hummingbird
import HummingbirdCore
import LedgerStorage
import Subscriptions

/// All that is known of an account, as one document.
struct ExportController: Sendable {
  let ledger: Ledger
  let catalogue: CatalogueCache
  let entitlements: EntitlementReader
  let now: @Sendable () -> Timestamp

  /// Sends the document in pieces while it is read: it may be of any size.
  @Sendable
  func export(_ request: Request, context: APIContext) async throws -> Response {
    let id = try context.parameter(.accountID)
    let administrator = try context.administrator(
      reason: try Query(request.uri)?.text(.reason))
    guard let account = try await ledger.account(id) else {
      throw Problem(.unknownAccount, "The account was never seen.")
    }
    let now = now()
    let export = AccountExport(
      account: account, erasedAt: try await ledger.erasedAt(account.key), exportedAt: now,
      entitlements: try await entitlements.entitlements(of: id, now: now), ledger: ledger,
      catalogue: catalogue.catalogue)
    try await ledger.recordExport(of: account, by: administrator, at: now)
    return Response(
      status: .ok, headers: [.contentType: "application/json"],
      body: ResponseBody { writer in
        try await export.write(to: &writer)
        try await writer.finish(nil)
      })
  }
}
