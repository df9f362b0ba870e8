import Foundation
import HTTPAPI
import Hummingbird
import HummingbirdCore
import JSONText
import LedgerStorage
import Subscriptions

struct AccountPageController: Controller {
  let api: API

  private static let mostOrders = 100
  /// Submissions shown at once; more are folded.
  private static let submissionsShown = 5

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let account = try await account(of: request, context)
    let path = AdminURL.account(account.id)
    func part(_ prefix: String) throws -> PagePart {
      try PagePart(request.uri, of: path, prefix: prefix)
    }
    let now = pages.now()
    let held = try await entitlements.entitlements(of: account.id, now: now)
    let charges = try await AccountCharges(of: account, part: part, in: ledger, catalogue)
    let submissionPart = try part("submissions_")
    let (submissions, submissionPaging) = submissionPart.part(
      of: try await ledger.accounts.latestSubmissions(
        of: account.key, before: try submissionPart.cursor(),
        limit: submissionPart.limit + 1)
    ) { $0.id }
    let filter = try AccountHistoryRows.Filter(request.uri)
    let historyPart = try PagePart(
      request.uri, of: filter.href(on: path), prefix: "history_",
      usual: AccountHistoryRows.usualLimit)
    let history = try await AccountHistoryRows(
      of: charges.ties, account, filter, part: historyPart, in: ledger)
    let heir = try await ledger.accounts.successor(of: account)
    let causes = try await AccessCauses(
      of: held, of: account, lost: charges.ties.lost, in: ledger, catalogue)
    let verdict = Self.verdict(
      held, causes, charges: charges, mergedInto: heir.key == account.key ? nil : heir.id,
      lastSubmission: try await ledger.accounts.latestSubmissions(of: account.key, limit: 1).first)
    let orders = try await ledger.accounts.latestOrders(of: account, limit: Self.mostOrders)
    let grants = try await ledger.grants.storedGrants(of: account.id)
    let actions = try await ledger.administration.grantActions(
      on: account.key, grants.map(\.grant.id))
    let spent = Price.text(
      try await ledger.accounts.spent(by: [account], at: now)[account.key] ?? [])
    let summary =
      account.names + [
        "First seen \(account.createdAt.dayName)", Count.text(charges.owned.all.count, "charge"),
      ] + (spent.isEmpty ? [] : ["Spent \(spent)"])
    var frame = try await pages.frame(account.id, context)
    frame.searchText = account.id
    frame.badges = Self.badges(held, causes)
    if let refunds = charges.refundBadge,
      refunds.count > 1 || !frame.badges.contains(where: { $0.text == "Refunded" })
    {
      frame.badges.append(refunds.badge)
    }
    frame.actions = Self.actions(
      for: account, by: context.caller?.role, transfer: charges.transferLink)
    return PageRenderer.response(
      (
        page: frame, verdict: verdict.text, verdictTone: verdict.tone,
        verdictLink: verdict.counterpart.map(PageLink.account),
        summary: summary.joined(separator: " · "),
        properties: Self.properties(of: account, heir: heir),
        entitlements: held.map { entitlement in
          let cause = causes.cause(of: entitlement)
          // Not what the verdict has said.
          let isSaid = verdict.text.contains(cause.sentence)
          return Self.row(
            entitlement, state: causes.badge(of: entitlement),
            because: isSaid ? nil : cause.sentence)
        },
        emptyText: charges.ties.lines.isEmpty && grants.isEmpty
          ? "No entitlements yet." : "No entitlements now.",
        timeline: charges.timeline(with: grants.map(\.grant), at: now),
        subscriptions: charges.subscriptions(in: charges.owned, at: now),
        chargePaging: charges.owned.paging, sections: charges.sections(at: now),
        orders: orders.map { Self.row($0.answered(at: now), charges: charges) },
        grants: grants.reversed().map { Self.row($0, actions: actions, at: now) },
        submissions: submissions.prefix(Self.submissionsShown).map(Self.row),
        earlierSubmissions: submissions.dropFirst(Self.submissionsShown).map(Self.row),
        earlierSubmissionsTitle: submissions.count > Self.submissionsShown
          ? Count.text(submissions.count - Self.submissionsShown, "earlier submission") : nil,
        submissionPaging: submissionPaging,
        history: history.rows, historyFilters: filter.links(on: path),
        historyPaging: historyPart.paging(shown: history.rows.count, next: history.next),
        pruning: try await ledger.accounts.eventPruning().map(Self.sentence)
      ), "account")
  }

  /// The active entitlements and the latest loss, or why there are none, with the account that has
  /// what followed.
  private static func verdict(
    _ entitlements: [Entitlement], _ causes: AccessCauses, charges: AccountCharges,
    mergedInto heir: String?, lastSubmission submission: Submission?
  ) -> (text: String, tone: String, counterpart: String?) {
    let active = entitlements.filter(\.isActive)
    let ended = entitlements.filter { !$0.isActive }
      .latestFirst { $0.endedAt ?? Timestamp(milliseconds: .max) }
    let losses = ended.map(causes.cause)
    let (last, loss) = (ended.first, losses.first)
    // Unless it is the loss itself, or older.
    let isMoved = last?.state == .revoked && last?.endedBecause == .moved
    let move = isMoved ? nil : causes.move(since: last?.endedAt)
    let refund = charges.refundsInWords(isLatestSaid: last?.endedBecause == .refunded)
    guard active.isEmpty else {
      return (
        (["Active entitlements: \(active.map(\.name).joined(separator: ", "))."]
          + active.map { causes.cause(of: $0).sentence }.withoutRepetition
          + [loss?.sentence, refund, move?.sentence].compactMap(\.self)).joined(separator: " "),
        active.contains { $0.state == .inGracePeriod } || last?.state == .inBillingRetry
          ? Tone.warning : Tone.good, loss?.counterpart ?? move?.counterpart
      )
    }
    let failure = submission?.problemInWords
    if let heir {
      let merger = "The account was merged into “\(heir)”, which gets its charges."
      return (
        [merger, failure].compactMap(\.self).joined(separator: " "),
        failure == nil ? Tone.quiet : Tone.warning, heir
      )
    }
    let unclaimed = charges.unclaimed.all.count(where: \.isClaimed)
    let open = [
      unclaimed == 0
        ? nil
        : Count.text(unclaimed, "submitted charge is", "submitted charges are")
          + " unclaimed (see below).", failure,
    ].compactMap(\.self)
    // What moved was submitted here, too.
    let claim = move == nil && !isMoved ? charges.claimInWords : nil
    if let last {
      let counterpart =
        move?.counterpart ?? losses.lazy.compactMap(\.counterpart).first ?? claim?.owner
      let isQuiet = last.state == .expired && open.isEmpty && counterpart == nil
      return (
        (losses.map(\.sentence).withoutRepetition
          + [move?.sentence, refund, claim?.sentence].compactMap(\.self) + open)
          .joined(separator: " "),
        last.state != .expired ? Tone.bad : isQuiet ? Tone.quiet : Tone.warning, counterpart
      )
    }
    let owned = charges.owned.all.count
    let lead: String? =
      if let move {
        move.sentence
      } else if owned > 0 {
        "The account owns \(Count.text(owned, "charge")), none for a product that grants an "
          + "entitlement."
      } else if claim == nil {
        "The account has no purchases and no grants."
          + (open.isEmpty && refund == nil
            ? " If the customer paid, the purchase was never submitted: search for the transaction."
            : "")
      } else {
        nil
      }
    let reasons = [lead, refund, claim?.sentence].compactMap(\.self) + open
    // A product's ID begins the cause.
    let start =
      lead == nil && claim != nil ? "No active entitlements: " : "No active entitlements. "
    return (
      start + reasons.joined(separator: " "), Tone.warning, move?.counterpart ?? claim?.owner
    )
  }

  /// What the account has now, or why it has nothing: each state once, what is active first.
  private static func badges(_ entitlements: [Entitlement], _ causes: AccessCauses) -> [Badge] {
    let active = entitlements.filter(\.isActive)
    return (active.isEmpty ? entitlements : active)
      .map(causes.badge)
      .reduce(into: [Badge]()) { badges, badge in
        if !badges.contains(where: { $0.text == badge.text }) { badges.append(badge) }
      }
  }

  private static func sentence(on pruning: EventPruning) -> String {
    "Events are kept for a limited time. "
      + (pruning.storedAt.map { "Events of all accounts stored until \(Moment($0).text)" }
        ?? "The oldest events of all accounts")
      + " were deleted, possibly some of this account."
  }

  private static func actions(
    for account: Account, by role: APIKeys.Role?, transfer: PageLink?
  ) -> [PageLink] {
    guard !account.isErased else { return [] }
    func link(_ label: String, _ form: String, isDanger: Bool = false) -> PageLink {
      PageLink(label: label, href: AdminURL.account(account.id, form: form), isDanger: isDanger)
    }
    // A merged account can't receive grants or further merges.
    let isMerged = account.mergedInto != nil
    let changes = (isMerged ? [] : [link("Grant…", "grant")]) + [transfer].compactMap(\.self)
    guard role == .admin else { return changes }
    return changes + (isMerged ? [] : [link("Merge…", "merge")])
      + [link("Export…", "export"), link("Erase…", "erase", isDanger: true)]
  }

  private static func properties(of account: Account, heir: Account) -> [Property] {
    let merged = Property("Merged into", heir.id, href: AdminURL.account(heir.id), isCode: true)
    return (heir.key == account.key ? [] : [merged]) + [
      Property("Account", account.id, isCode: true),
      Property(
        "App account token", account.appAccountToken.text, isCode: true,
        note: "for StoreKit"),
      Property("Ledger key", account.key.rawValue.text, isCode: true),
      Property("First seen", account.createdAt),
    ]
      + [("Label", account.label), ("Email", account.email)].compactMap { label, value in
        value.map { Property(label, $0) }
      }
  }

  // MARK: Rows

  private static func row(_ entitlement: Entitlement, state: Badge, because: String?)
    -> some Sendable
  {
    (
      name: entitlement.name, state: state, because: because,
      until: entitlement.source == .appStore ? entitlement.accessEndsAt.map(Moment.init) : nil,
      // As the grant's own row has it.
      grantEnd: entitlement.source == .appStore ? nil : entitlement.accessEndsAt?.lastDayName,
      isEndless: entitlement.isActive && entitlement.accessEndsAt == nil,
      productID: entitlement.productID?.rawValue,
      source: entitlement.originalTransactionID?.rawValue ?? "grant",
      href: entitlement.line?.href,
      isSandbox: entitlement.environment == .sandbox
    )
  }

  private static func row(_ stored: StoredOrder, charges: AccountCharges) -> some Sendable {
    let charge = charges.charge(fulfilling: stored.order.id)
    return (
      orderID: stored.order.id.text,
      productID: stored.order.productID.rawValue, openedAt: Moment(stored.order.createdAt),
      state: Badge(stored.order.status), transactionID: stored.transactionID?.rawValue,
      href: charge?.id.href,
      delivery: charge.map { charge in
        charge.deliveredAt.map { "delivered \(Moment($0).text)" } ?? "delivery not acknowledged"
      }
    )
  }

  private static func row(_ stored: StoredGrant, actions: [AdministratorAction], at now: Timestamp)
    -> some Sendable
  {
    let (grant, id) = (stored.grant, stored.grant.id.text)
    let isOver = grant.accessEnd.map { $0 <= now } ?? false
    let state =
      grant.revokedAt != nil
      ? Badge(text: "Revoked", tone: Tone.bad)
      : isOver
        ? Badge(text: "Expired", tone: Tone.quiet)
        : Badge(text: grant.source == .provisional ? "Provisional" : "Active", tone: Tone.good)
    /// The actions are sorted latest first.
    func last(_ action: AdministratorAction.Action) -> AdministratorAction? {
      actions.first { $0.action == action.rawValue && $0.subject == id }
    }
    return (
      grantID: id, entitlement: grant.entitlement, state: state, from: Moment(grant.startsAt),
      until: grant.accessEnd.map(\.lastDayName), reason: stored.reason,
      given: last(.grant).map { ($0.administrator, nil, nil) as AdministratorNote },
      takenBack: last(.revokeGrant).map {
        ($0.administrator, Moment($0.actedAt), $0.reason) as AdministratorNote
      },
      revokeHref: grant.source == .grant && !isOver ? AdminURL.revocation(ofGrant: id) : nil
    )
  }

  private static func row(_ submission: Submission) -> some Sendable {
    let decided = submission.decided
    return (
      submissionID: submission.id.text,
      receivedAt: Moment(submission.receivedAt), state: Badge(submission),
      // The two halves of a sentence.
      kind: submission.kindInWords, outcome: submission.outcomeInWords(decided),
      warnings: (decided?.warnings ?? []).map { $0.inWords(submission) },
      href: submission.status == .rejected ? AdminURL.rejected : nil
    )
  }
}

extension [String] {
  /// Each text once, in order: several entitlements of one product end together.
  var withoutRepetition: [String] {
    var seen: Set<String> = []
    return filter { seen.insert($0).inserted }
  }
}

extension Submission {
  /// Why the latest submission changed nothing yet; nil for a verified one.
  fileprivate var problemInWords: String? {
    switch status {
    case .rejected: "The latest submission was rejected."
    case .pending: "The latest submission is pending."
    case .verified: nil
    }
  }
}

extension Controller {
  /// Finds the account named in a path, or in the query for `.` and `..`; throws a ``Problem``.
  func account(of request: Request, _ context: APIContext) async throws -> Account {
    let id =
      context.parameters.get(TextField.accountID.name) == nil
      ? try TextField.accountID.checked(EncodedFields(query: request.uri)["id"]?.rawValue ?? "")
      : try context.parameter(.accountID)
    guard let account = try await ledger.accounts.account(id) else {
      throw Problem(.unknownAccount, "No account with this ID.")
    }
    return account
  }
}
