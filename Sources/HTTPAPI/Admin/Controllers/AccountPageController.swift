import Foundation
import Hummingbird
import HummingbirdCore
import LedgerStorage
import Subscriptions

/// What an account may use and why, as a page.
struct AccountPageController: Sendable {
  let pages: PageMaker
  let ledger: Ledger
  let catalogue: CatalogueCache
  let entitlements: EntitlementReader

  /// So many orders, the latest: who has more is no person.
  private static let mostOrders = 100

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let account = try await AdminPath.account(request, context, in: ledger)
    let path = PageAddress.account(account.id)
    func part(_ prefix: String) throws -> PagePart {
      try PagePart(request.uri, of: path, prefix: prefix)
    }
    let now = pages.now()
    let held = try await entitlements.entitlements(of: account.id, now: now)
    let charges = try await AccountCharges(
      of: account,
      parts: AccountCharges.Parts(
        owned: try part(""), claimed: try part("claimed_"), unclaimed: try part("unclaimed_")),
      in: ledger, catalogue.catalogue)
    let (submissions, submissionPaging) = try await submissions(
      of: account, part: try part("submissions_"))
    let historyPart = try part("history_")
    let history = try await AccountHistoryRows(
      of: charges.ties, account, part: historyPart, in: ledger)
    let (told, eventPaging) = try await events(of: account, part: try part("events_"))
    let heir = try await ledger.successor(of: account)
    let verdict = AccountVerdict(
      held, charges: charges, mergedInto: heir.key == account.key ? nil : heir.id,
      lastSubmission: try await ledger.latestSubmissions(of: account.key, limit: 1).first)
    var frame = try await pages.frame(account.id, context)
    frame.searchText = account.id
    frame.actions = Self.actions(for: account)
    return pages.response(
      AccountPage(
        page: frame, verdict: verdict.text, verdictTone: verdict.tone,
        properties: Self.properties(of: account, heir: heir),
        entitlements: held.map(EntitlementRow.init), timeline: charges.timeline(at: now),
        charges: charges.rows(of: charges.owned, at: now), chargePaging: charges.owned.paging,
        claimed: charges.claimedSection(at: now), unclaimed: charges.unclaimedSection(at: now),
        orders: try await ledger.latestOrders(of: account, limit: Self.mostOrders).map {
          OrderRow($0.answered(at: now), charges: charges)
        },
        grants: try await grants(of: account, at: now), submissions: submissions,
        submissionPaging: submissionPaging, history: history.rows,
        historyPaging: historyPart.paging(shown: history.rows.count, next: history.next),
        events: told, eventPaging: eventPaging, forgotten: try await forgotten()),
      .account)
  }

  private func grants(of account: Account, at now: Timestamp) async throws -> [GrantRow] {
    let grants = try await ledger.storedGrants(of: account.id)
    let acts = try await ledger.grantActs(on: account.key, grants.map(\.grant.id))
    return grants.reversed().map { GrantRow($0, acts: acts, at: now) }
  }

  private func submissions(of account: Account, part: PagePart) async throws
    -> (rows: [SubmissionRow], paging: Paging?)
  {
    let last = try part.after.map { text in
      guard let id = UUID(uuidString: text) else { throw PagePart.unknownPlace("submissions_") }
      return id
    }
    let (submissions, paging) = part.part(
      of: try await ledger.latestSubmissions(
        of: account.key, before: last, limit: part.limit + 1)
    ) { $0.id.uuidString.lowercased() }
    return (submissions.map(SubmissionRow.init), paging)
  }

  private func events(of account: Account, part: PagePart) async throws
    -> (rows: [FactRow], paging: Paging?)
  {
    let last = try part.after.map { text in
      guard let id = Int64(text) else { throw PagePart.unknownPlace("events_") }
      return id
    }
    let (told, paging) = part.part(
      of: try await ledger.latestEvents(of: account.key, before: last, limit: part.limit + 1)
    ) { "\($0.id)" }
    return (told.map(FactRow.init), paging)
  }

  /// What the feed has forgotten, in a sentence; nil: nothing.
  private func forgotten() async throws -> String? {
    try await ledger.feedTrimming().map { trimming in
      "The feed keeps events for a time. "
        + (trimming.storedAt.map {
          "Those of all accounts that were stored until \(Moment($0).text)"
        }
          ?? "The oldest of all accounts")
        + " were deleted: whether any was this account's is not known any more."
    }
  }

  private static func actions(for account: Account) -> [PageLink] {
    guard !account.isErased else { return [] }
    func link(_ label: String, _ form: String, isDanger: Bool = false) -> PageLink {
      PageLink(
        label: label, href: PageAddress.account(account.id, form: form), isDanger: isDanger)
    }
    // Nothing can be given any more to an account that was merged into another.
    let gifts = [link("Grant…", "grant"), link("Merge…", "merge")]
    return (account.mergedInto == nil ? gifts : [])
      + [link("Export…", "export"), link("Erase…", "erase", isDanger: true)]
  }

  private static func properties(of account: Account, heir: Account) -> [Property] {
    let merged = Property(
      label: "Merged into", value: heir.id, href: PageAddress.account(heir.id), isCode: true)
    return (heir.key == account.key ? [] : [merged]) + [
      Property(label: "Account", value: account.id, isCode: true),
      Property(
        label: "App account token", value: account.appAccountToken.uuidString.lowercased(),
        isCode: true, note: "to pass to StoreKit"),
      Property(
        label: "Key in the ledger", value: account.key.rawValue.uuidString.lowercased(),
        isCode: true),
      Property(label: "First seen", value: Moment(account.createdAt).text),
    ]
  }
}

/// Finds what the path of a page names.
enum AdminPath {
  /// The account in a path, or in the query where no path can have its id.
  ///
  /// - Throws: A ``Problem`` where there is none.
  static func account(_ request: Request, _ context: APIContext, in ledger: Ledger) async throws
    -> Account
  {
    let id =
      context.parameters.get(TextField.accountID.name) == nil
      ? try TextField.accountID.checked(FormFields(query: request.uri)["id"]?.rawValue ?? "")
      : try context.parameter(.accountID)
    guard let account = try await ledger.account(id) else {
      throw Problem(.unknownAccount, "The account was never seen.")
    }
    return account
  }
}
