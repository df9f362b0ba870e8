import Foundation
import HTTPAPI
import Hummingbird
import HummingbirdCore
import LedgerStorage
import Subscriptions

struct AccountPageController: Sendable {
  let pages: PageRenderer
  let ledger: Ledger
  let catalogue: CatalogueCache
  let entitlements: EntitlementReader

  private static let mostOrders = 100

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let account = try await AdminPath.account(request, context, in: ledger)
    let path = AdminURL.account(account.id)
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
    let heir = try await ledger.accounts.successor(of: account)
    let verdict = AccountVerdict(
      held, charges: charges, mergedInto: heir.key == account.key ? nil : heir.id,
      lastSubmission: try await ledger.accounts.latestSubmissions(of: account.key, limit: 1).first)
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
        orders: try await ledger.accounts.latestOrders(of: account, limit: Self.mostOrders).map {
          OrderRow($0.answered(at: now), charges: charges)
        },
        grants: try await grants(of: account, at: now), submissions: submissions,
        submissionPaging: submissionPaging, history: history.rows,
        historyPaging: historyPart.paging(shown: history.rows.count, next: history.next),
        events: told, eventPaging: eventPaging, forgotten: try await forgotten()),
      .account)
  }

  private func grants(of account: Account, at now: Timestamp) async throws -> [GrantRow] {
    let grants = try await ledger.grants.storedGrants(of: account.id)
    let acts = try await ledger.administration.grantActs(on: account.key, grants.map(\.grant.id))
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
      of: try await ledger.accounts.latestSubmissions(
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
      of: try await ledger.accounts.latestEvents(
        of: account.key, before: last, limit: part.limit + 1)
    ) { "\($0.id)" }
    return (told.map(FactRow.init), paging)
  }

  /// A sentence on deleted events, or nil if none were deleted.
  private func forgotten() async throws -> String? {
    try await ledger.accounts.eventPruning().map { trimming in
      "Events are kept for a limited time. "
        + (trimming.storedAt.map { "Events of all accounts stored until \(Moment($0).text)" }
          ?? "The oldest events of all accounts")
        + " were deleted, possibly some of this account."
    }
  }

  private static func actions(for account: Account) -> [PageLink] {
    guard !account.isErased else { return [] }
    func link(_ label: String, _ form: String, isDanger: Bool = false) -> PageLink {
      PageLink(
        label: label, href: AdminURL.account(account.id, form: form), isDanger: isDanger)
    }
    // A merged account can't receive grants or further merges.
    let gifts = [link("Grant…", "grant"), link("Merge…", "merge")]
    return (account.mergedInto == nil ? gifts : [])
      + [link("Export…", "export"), link("Erase…", "erase", isDanger: true)]
  }

  private static func properties(of account: Account, heir: Account) -> [Property] {
    let merged = Property(
      label: "Merged into", value: heir.id, href: AdminURL.account(heir.id), isCode: true)
    return (heir.key == account.key ? [] : [merged]) + [
      Property(label: "Account", value: account.id, isCode: true),
      Property(
        label: "App account token", value: account.appAccountToken.uuidString.lowercased(),
        isCode: true, note: "for StoreKit"),
      Property(
        label: "Ledger key", value: account.key.rawValue.uuidString.lowercased(), isCode: true),
      Property(label: "First seen", value: Moment(account.createdAt).text),
    ]
  }
}

enum AdminPath {
  /// Finds the account named in a path, or in the query for the ids `.` and `..`.
  ///
  /// - Throws: ``ProblemCode/unknownAccount``.
  static func account(_ request: Request, _ context: APIContext, in ledger: Ledger) async throws
    -> Account
  {
    let id =
      context.parameters.get(TextField.accountID.name) == nil
      ? try TextField.accountID.checked(FormFields(query: request.uri)["id"]?.rawValue ?? "")
      : try context.parameter(.accountID)
    guard let account = try await ledger.accounts.account(id) else {
      throw Problem(.unknownAccount, "No account with this ID.")
    }
    return account
  }
}

/// The context of the template `account`, whose title is the account id.
struct AccountPage: Sendable {
  var page: PageFrame
  /// The active entitlements, or why there are none.
  var verdict: String
  /// One of ``Tone``.
  var verdictTone: String
  var properties: [Property]
  var entitlements: [EntitlementRow]
  var timeline: TimelinePicture?
  var charges: [AccountChargeRow]
  var chargePaging: Paging?
  /// Submitted for this account and owned by others.
  var claimed: ChargeSection?
  /// Unowned charges of the account's original transactions.
  var unclaimed: ChargeSection?
  var orders: [OrderRow]
  var grants: [GrantRow]
  var submissions: [SubmissionRow]
  var submissionPaging: Paging?
  /// Latest first, as `events`.
  var history: [FactRow]
  var historyPaging: Paging?
  var events: [FactRow]
  var eventPaging: Paging?
  /// A sentence on deleted events.
  var forgotten: String?
}

/// Related charges that the account does not own.
struct ChargeSection: Sendable {
  var title: String
  var lead: String
  var charges: [AccountChargeRow]
  var paging: Paging?
}

/// An entitlement, active or not.
struct EntitlementRow: Sendable {
  var name: String
  var state: Badge
  /// A sentence, for example “monthly renews on 14 Dec 2026”.
  var because: String
  /// The end of access, or nil if it is unknown or never.
  var until: Moment?
  var isEndless = false
  var productID: String?
  /// The original transaction id, or `grant`.
  var source: String
  var href: String?
  var isSandbox: Bool
}

struct AccountChargeRow: Sendable {
  var transactionID: String
  var href: String
  var productID: String
  var chargedAt: Moment
  var until: Moment?
  var price: String
  var state: Badge
  /// The API's name of the rule.
  var rule: String
  var because: String
  /// The owner if it is another account.
  var owner: PageLink?
  /// The administrator who assigned or released it.
  var placed: AdministratorActionNote?
  var isSandbox: Bool
  var transferHref: String
}

struct OrderRow: Sendable {
  var orderID: String
  var productID: String
  var openedAt: Moment
  var state: Badge
  var transactionID: String?
  var href: String?
  /// For example `delivered 20 Nov 2026, 08:14` or `delivery not acknowledged`.
  var delivery: String?
}

struct GrantRow: Sendable {
  var grantID: String
  var entitlement: String
  var state: Badge
  var from: Moment
  var until: Moment?
  var reason: String
  /// The administrator who granted it.
  var given: AdministratorActionNote?
  /// The administrator who revoked it.
  var takenBack: AdministratorActionNote?
  /// Nil if there is nothing left to revoke.
  var revokeHref: String?
}

struct SubmissionRow: Sendable {
  var submissionID: String
  var receivedAt: Moment
  var state: Badge
  /// The first half of a sentence that `outcome` ends.
  var kind: String
  var outcome: String
  var warnings: [String]
  var href: String?
}

/// The account's active entitlements, or the likely reasons why it has none.
struct AccountVerdict: Sendable {
  let text: String
  let tone: String

  init(
    _ entitlements: [Entitlement], charges: AccountCharges, mergedInto heir: String?,
    lastSubmission submission: SubmissionSummary?
  ) {
    let active = entitlements.filter(\.isActive)
    guard active.isEmpty else {
      text = "Active entitlements: \(active.map(\.name).joined(separator: ", "))."
      tone = active.contains { $0.state == .inGracePeriod } ? Tone.warning : Tone.good
      return
    }
    let owned = charges.owned.all.count
    var reasons = Self.reasons(charges, mergedInto: heir, lastSubmission: submission)
    if let last = entitlements.first {
      tone =
        last.state != .expired ? Tone.bad : reasons.isEmpty ? Tone.quiet : Tone.warning
      reasons.insert("No active entitlements. \(last.inWords)", at: 0)
    } else if owned > 0 {
      tone = Tone.warning
      reasons.insert(
        "No active entitlements. The account owns \(Count.text(owned, "charge")), none for a "
          + "product that grants an entitlement.", at: 0)
    } else {
      tone = Tone.warning
      if reasons.isEmpty {
        reasons = [
          "If the customer paid, the purchase was never submitted: search for the transaction."
        ]
      }
      reasons.insert("No active entitlements. The account has no purchases and no grants.", at: 0)
    }
    text = reasons.joined(separator: " ")
  }

  private static func reasons(
    _ charges: AccountCharges, mergedInto heir: String?,
    lastSubmission submission: SubmissionSummary?
  ) -> [String] {
    var reasons: [String] = []
    if let heir { reasons.append("The account was merged into “\(heir)”.") }
    let claimed = charges.claimed.all.count
    if claimed > 0 {
      reasons.append(
        Count.text(claimed, "submitted charge is", "submitted charges are")
          + " owned by another account (see below).")
    }
    let unclaimed = charges.unclaimed.all.count(where: \.isClaimed)
    if unclaimed > 0 {
      reasons.append(
        Count.text(unclaimed, "submitted charge is", "submitted charges are")
          + " unclaimed (see below).")
    }
    switch submission?.status {
    case .rejected: reasons.append("The latest submission was rejected.")
    case .pending: reasons.append("The latest submission is pending.")
    case .verified, nil: break
    }
    return reasons
  }
}
