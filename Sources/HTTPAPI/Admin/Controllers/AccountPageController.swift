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

  /// So many orders and submissions, the latest: who has more is no person.
  private static let mostRows = 100

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let account = try await AdminPath.account(request, context, in: ledger)
    let path = PageAddress.account(account.id)
    let now = pages.now()
    let held = try await entitlements.entitlements(of: account.id, now: now)
    let charges = try await AccountCharges(of: account, in: ledger, catalogue.catalogue)
    let part = try PagePart(request.uri, of: path)
    let (shown, chargePaging) = try part.slice(of: charges.owned) { $0.report.charge.id.anchor }
    let events = try PagePart(request.uri, of: path, prefix: "events_")
    let (told, eventPaging) = events.part(
      of: try await ledger.latestEvents(
        of: account.key, before: try Self.place(events), limit: events.limit + 1)
    ) { "\($0.id)" }
    let verdict = AccountVerdict(held, charges: charges.owned.count)
    var frame = try await pages.frame(account.id, context)
    frame.searchText = account.id
    frame.actions = Self.actions(for: account)
    return pages.response(
      AccountPage(
        page: frame, verdict: verdict.text, verdictTone: verdict.tone,
        properties: Self.properties(of: account), entitlements: held.map(EntitlementRow.init),
        timeline: charges.timeline(of: account.id, at: now),
        charges: shown.map { AccountChargeRow($0.report, end: $0.end, at: now) },
        chargePaging: chargePaging,
        orders: try await ledger.latestOrders(of: account, limit: Self.mostRows).map {
          OrderRow($0.answered(at: now), charges: charges)
        },
        grants: try await ledger.storedGrants(of: account.id).reversed().map {
          GrantRow($0, at: now)
        },
        submissions: try await ledger.latestSubmissions(of: account.key, limit: Self.mostRows)
          .map(SubmissionRow.init),
        events: told.map(FactRow.init), eventPaging: eventPaging),
      .account)
  }

  private static func place(_ part: PagePart) throws -> Int64? {
    try part.after.map { text in
      guard let id = Int64(text) else { throw PagePart.unknownPlace("events_") }
      return id
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

  private static func properties(of account: Account) -> [Property] {
    [
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
      ? try TextField.accountID.checked(FormFields(query: request.uri)["id"] ?? "")
      : try context.parameter(.accountID)
    guard let account = try await ledger.account(id) else {
      throw Problem(.unknownAccount, "The account was never seen.")
    }
    return account
  }
}

/// Why an account can or cannot use what it paid for, in a sentence or two.
struct AccountVerdict: Sendable {
  let text: String
  let tone: String

  /// - Parameters:
  ///   - entitlements: What it has, inactive ones included.
  ///   - charges: How many charges it owns.
  init(_ entitlements: [Entitlement], charges: Int) {
    let active = entitlements.filter(\.isActive)
    let names = active.map(\.name).joined(separator: ", ")
    if !active.isEmpty {
      text = "It may use \(names)."
      tone = active.contains { $0.state == .inGracePeriod } ? Tone.warning : Tone.good
    } else if let last = entitlements.first {
      text = "It may use nothing now. " + last.inWords
      tone = last.state == .expired ? Tone.quiet : Tone.bad
    } else if charges > 0 {
      text =
        "It may use nothing: of \(Count.text(charges, "charge")) that it owns, none is of a "
        + "product that grants anything."
      tone = Tone.warning
    } else {
      text =
        "It may use nothing: it owns no charge and was granted nothing. If its person paid, the "
        + "purchase was never submitted, or another account owns it: search for the transaction."
      tone = Tone.warning
    }
  }
}
