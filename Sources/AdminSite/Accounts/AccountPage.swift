import Foundation
import HTTPAPI
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

/// The template `account`: what an account may use now and why, and all that is known of it.
///
/// The account id is the page's title.
struct AccountPage: Sendable {
  var page: PageFrame
  /// Why it can or cannot use what it paid for, in a sentence or two.
  var verdict: String
  /// One of ``Tone``.
  var verdictTone: String
  var properties: [Property]
  var entitlements: [EntitlementRow]
  /// A lane for each original transaction; nil: no charges.
  var timeline: TimelinePicture?
  var charges: [AccountChargeRow]
  var chargePaging: Paging?
  /// Charges that its app submitted, and that other accounts own; nil: none.
  var claimed: ChargeSection?
  /// Charges on its original transactions that nobody owns; nil: none.
  var unclaimed: ChargeSection?
  var orders: [OrderRow]
  var grants: [GrantRow]
  var submissions: [SubmissionRow]
  var submissionPaging: Paging?
  /// What the ledger and the record of acts have of it, the latest first.
  var history: [FactRow]
  var historyPaging: Paging?
  /// What is left in the feed of what it was told, the latest first.
  var events: [FactRow]
  var eventPaging: Paging?
  /// What the feed has forgotten, in a sentence; nil: nothing.
  var forgotten: String?
}

/// Charges that an account has to do with and does not own.
struct ChargeSection: Sendable {
  var title: String
  /// What they have in common.
  var lead: String
  var charges: [AccountChargeRow]
  var paging: Paging?
}

/// What an account may use, or might have used.
struct EntitlementRow: Sendable {
  var name: String
  var state: Badge
  /// Where it comes from, in words, for example `monthly, renews on 2026-12-14`.
  var because: String
  /// The end of access; nil: it is not known, or never.
  var until: Moment?
  /// It never ends.
  var isEndless = false
  var productID: String?
  /// The original transaction or the grant.
  var source: String
  var href: String?
  var isSandbox: Bool
}

/// A charge that an account has to do with.
struct AccountChargeRow: Sendable {
  var transactionID: String
  var href: String
  var productID: String
  var chargedAt: Moment
  var until: Moment?
  var price: String
  var state: Badge
  /// One of the interface's rules.
  var rule: String
  var because: String
  /// Who owns it; nil: the account itself, or nobody.
  var owner: PageLink?
  /// By whom it was placed or released; nil: by no administrator.
  var placed: ActNote?
  var isSandbox: Bool
  var transferHref: String
}

/// An order that the account opened.
struct OrderRow: Sendable {
  var orderID: String
  var productID: String
  var openedAt: Moment
  var state: Badge
  var transactionID: String?
  var href: String?
  /// For example `delivered 2026-11-20 08:14` or `not acknowledged`.
  var delivery: String?
}

/// An entitlement that was given.
struct GrantRow: Sendable {
  var grantID: String
  var entitlement: String
  var state: Badge
  var from: Moment
  var until: Moment?
  var reason: String
  /// By whom it was given; nil: by no administrator, or it is not recorded.
  var given: ActNote?
  /// By whom it was taken back; nil: it was not.
  var takenBack: ActNote?
  /// Nil: there is nothing left to take back.
  var revokeHref: String?
}

/// What an account's app sent.
struct SubmissionRow: Sendable {
  var submissionID: String
  var receivedAt: Moment
  var state: Badge
  /// What was sent, in words.
  var kind: String
  /// What came of it, in words.
  var outcome: String
  /// Of what its sender was warned, in words.
  var warnings: [String]
  var href: String?
}

/// Why an account can or cannot use what it paid for, in a few sentences.
struct AccountVerdict: Sendable {
  let text: String
  let tone: String

  /// - Parameters:
  ///   - entitlements: What it has, inactive ones included.
  ///   - charges: The charges that it has to do with.
  ///   - heir: The account into which it was merged; nil: it stands for itself.
  ///   - submission: What its app sent last; nil: nothing.
  init(
    _ entitlements: [Entitlement], charges: AccountCharges, mergedInto heir: String?,
    lastSubmission submission: SubmissionSummary?
  ) {
    let active = entitlements.filter(\.isActive)
    guard active.isEmpty else {
      text = "It may use \(active.map(\.name).joined(separator: ", "))."
      tone = active.contains { $0.state == .inGracePeriod } ? Tone.warning : Tone.good
      return
    }
    let owned = charges.owned.all.count
    var reasons = Self.reasons(charges, mergedInto: heir, lastSubmission: submission)
    if let last = entitlements.first {
      tone =
        last.state != .expired ? Tone.bad : reasons.isEmpty ? Tone.quiet : Tone.warning
      reasons.insert("It may use nothing now. \(last.inWords)", at: 0)
    } else if owned > 0 {
      tone = Tone.warning
      reasons.insert(
        "It may use nothing: of \(Count.text(owned, "charge")) that it owns, none is of a "
          + "product that grants anything.", at: 0)
    } else {
      tone = Tone.warning
      if reasons.isEmpty {
        reasons = [
          "If its person paid, the purchase was never submitted: search for the transaction."
        ]
      }
      reasons.insert("It may use nothing: it owns no charge and was granted nothing.", at: 0)
    }
    text = reasons.joined(separator: " ")
  }

  /// Where what the person paid for may be.
  private static func reasons(
    _ charges: AccountCharges, mergedInto heir: String?,
    lastSubmission submission: SubmissionSummary?
  ) -> [String] {
    var reasons: [String] = []
    if let heir { reasons.append("It was merged into “\(heir)”.") }
    let claimed = charges.claimed.all.count
    if claimed > 0 {
      reasons.append(
        "\(Count.text(claimed, "charge")) that its app submitted "
          + (claimed == 1
            ? "is owned by another account: see below."
            : "are owned by other accounts: see below."))
    }
    let unclaimed = charges.unclaimed.all.count(where: \.isClaimed)
    if unclaimed > 0 {
      reasons.append(
        "\(Count.text(unclaimed, "charge")) that its app submitted "
          + (unclaimed == 1 ? "is owned by nobody: see below." : "are owned by nobody: see below."))
    }
    switch submission?.status {
    case .rejected: reasons.append("What its app sent last was rejected.")
    case .pending: reasons.append("What its app sent last is not decided yet.")
    case .verified, nil: break
    }
    return reasons
  }
}
