import Hummingbird
import HummingbirdCore
import JSONText
import LedgerStorage
import Subscriptions

/// The audit log of administrators' actions.
struct AdministratorActionController: Sendable {
  let ledger: Ledger

  @Sendable
  func list(_ request: Request, context: APIContext) async throws -> Response {
    let page = try Page(request.uri)
    let last = try page.after.map { text in
      guard let id = Int64(text), id > 0 else { throw Page.malformedCursor }
      return id
    }
    var account: Account?
    if let id = try Query(request.uri)?.text(.accountID) {
      account = try await ledger.accounts.account(id)
      guard account != nil else {
        throw Problem(.unknownAccount, "No account has this ID.")
      }
    }
    // One more than is shown reveals whether there is a next page.
    let found = try await ledger.administration.administratorActs(
      on: account?.key, before: last, limit: page.limit + 1)
    let acts = Array(found.prefix(page.limit))
    return Response(
      AdministratorActionList(
        acts: acts, next: acts.count < found.count ? acts.last.map { "\($0.id)" } : nil),
      capacity: 64 + acts.count * 400)
  }
}

private struct AdministratorActionList: JSONWritable {
  let acts: [AdministratorAction]
  let next: String?

  func write(to json: inout JSONWriter) {
    json.object { json in
      json.member("acts", acts)
      json.member("next", next)
    }
  }
}

extension AdministratorAction: JSONWritable {
  func write(to json: inout JSONWriter) {
    json.object { json in
      json.member("id", String(id))
      json.member("acted_at", actedAt)
      json.member("administrator", administrator)
      json.member("action", action)
      json.member("subject", subject)
      json.member("account_id", accountID)
      json.member("previous_account_id", previousAccountID)
      json.member("reason", reason)
      json.key("data")
      json.write(json: data)
    }
  }
}
