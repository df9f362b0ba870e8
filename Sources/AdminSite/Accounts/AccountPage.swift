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
  /// Most of them are folded.
  private static let chargesShown = 200
  /// Submissions shown at once; more are folded.
  private static let submissionsShown = 5

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let account = try await account(of: request, context)
    let path = AdminURL.account(account.id)
    func part(_ prefix: String, usual: Int = PagePart.usual) throws -> PagePart {
      try PagePart(request.uri, of: path, prefix: prefix, usual: usual)
    }
    let now = pages.now()
    let held = try await entitlements.entitlements(of: account.id, now: now)
    let charges = try await AccountCharges(
      of: account, part: { try part($0, usual: $0.isEmpty ? Self.chargesShown : PagePart.usual) },
      in: ledger, terms, at: now)
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
      of: held + [charges.latest].compactMap(\.self), of: account, lost: charges.ties.lost,
      moved: charges.movedLines, in: ledger, catalogue)
    let verdict: (causes: [AccessCauses.Cause], tone: String) =
      account.isErased
      ? ([.erased], Tone.quiet)
      : Self.verdict(
        held, causes, charges: charges, mergedInto: heir.key == account.key ? nil : heir.id,
        lastSubmission: try await ledger.accounts.latestSubmissions(of: account.key, limit: 1)
          .first,
        at: now)
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
    let isMerged = heir.key != account.key
    var frame = try await pages.frame(account.id, at: AdminURL.customers, context)
    frame.searchText = account.id
    frame.badges = Self.badges(held, causes)
    if let refunds = charges.refundBadge,
      refunds.count > 1 || !frame.badges.contains(where: { $0.text == "Refunded" })
    {
      frame.badges.append(refunds.badge)
    }
    if account.isErased || isMerged { frame.badges = [isMerged ? Badge.merged : .erased] }
    frame.actions = Self.actions(
      for: account, by: context.caller?.role, transfers: charges.transferLinks(at: now))
    return PageRenderer.response(
      (
        page: frame, verdict: verdict.causes.pieces, verdictTone: verdict.tone,
        summary: summary.joined(separator: " · "),
        properties: Self.properties(of: account, heir: heir),
        entitlements: (isMerged ? [] : held).map { entitlement in
          let cause = causes.cause(of: entitlement)
          // Not what the verdict has said.
          let isSaid =
            entitlement.isActive || verdict.causes.contains { $0.sentence == cause.sentence }
          return Self.row(
            entitlement, state: causes.badge(of: entitlement), because: isSaid ? [] : cause.pieces)
        },
        emptyText: charges.ties.lines.isEmpty && grants.isEmpty
          ? "No entitlements yet." : "No entitlements now.",
        timeline: charges.timeline(with: grants.map(\.grant), causes, in: catalogue, at: now),
        subscriptions: charges.subscriptions(in: charges.owned, causes, at: now),
        noCharges: charges.moved.all.isEmpty && charges.unclaimed.all.isEmpty
          ? "No purchases." : "No charges now.",
        chargePaging: charges.owned.paging, sections: charges.sections(causes, at: now),
        orders: orders.map { Self.row($0.answered(at: now), charges: charges) },
        grants: grants.reversed().map { Self.row($0, actions: actions, at: now) },
        submissions: submissions.prefix(Self.submissionsShown).map(Self.row),
        earlierSubmissions: submissions.dropFirst(Self.submissionsShown).map(Self.row),
        earlierSubmissionsTitle: submissions.count > Self.submissionsShown
          ? Count.text(submissions.count - Self.submissionsShown, "earlier submission") : nil,
        submissionPaging: submissionPaging,
        history: history.rows, emptyHistory: filter.emptyText,
        historyFilters: filter.links(on: path),
        historyPaging: historyPart.paging(shown: history.rows.count, next: history.next),
        pruning: try await ledger.accounts.eventPruning().map(Self.sentence)
      ), "account")
  }

  /// The active entitlements and the latest loss, or why there are none, with the accounts that have
  /// what followed.
  private static func verdict(
    _ entitlements: [Entitlement], _ causes: AccessCauses, charges: AccountCharges,
    mergedInto heir: String?, lastSubmission submission: Submission?, at now: Timestamp
  ) -> (causes: [AccessCauses.Cause], tone: String) {
    func cause(_ sentence: String) -> AccessCauses.Cause { AccessCauses.Cause(sentence: sentence) }
    let active = entitlements.filter(\.isActive)
    let ended = entitlements.filter { !$0.isActive }
      .latestFirst { $0.endedAt ?? Timestamp(milliseconds: .max) }
    let last = ended.first
    let lines = Set(entitlements.compactMap(\.line))
    var told = active.isEmpty ? ended : Array(ended.prefix(1))
    // A grant that ended hides a subscription that gave the same entitlement.
    if active.isEmpty, last?.source == .grant, let latest = charges.latest, !latest.isActive,
      latest.line.map({ !lines.contains($0) }) ?? false
    {
      told.append(latest)
    }
    let losses = told.map(causes.cause)
    // Unless it is the loss itself, or older.
    let isMoved = last?.state == .revoked && last?.endedBecause == .moved
    // A grant says nothing of the charge that was lost before.
    let move =
      isMoved
      ? nil : causes.move(since: last?.source == .grant && active.isEmpty ? nil : last?.endedAt)
    let refund = charges.refundsInWords(
      besides: told.filter { $0.endedBecause == .refunded }
    ).map(cause)
    guard active.isEmpty else {
      // A grant hides a subscription that gives the same entitlement.
      let hidden = charges.current.filter { current in
        (current.isActive || current.state == .inBillingRetry)
          && current.line.map { !lines.contains($0) } ?? false
      }
      let unclaimed = charges.unclaimedInWords(at: now, besides: last?.line).map(cause)
      let all =
        Self.named(active, causes)
        + hidden.map { cause($0.inWords) } + losses + [refund, move].compactMap(\.self) + unclaimed
      let isWarning =
        (active + hidden).contains { [.inGracePeriod, .inBillingRetry].contains($0.state) }
        || last?.state == .inBillingRetry || !unclaimed.isEmpty
      return (all.withoutRepetition, isWarning ? Tone.warning : Tone.good)
    }
    let failure = submission?.problemInWords.map(cause)
    if let heir {
      let merger = AccessCauses.Cause(
        sentence: "The account was merged into “\(heir)”, which gets its charges.",
        counterpart: heir)
      return (
        [merger, failure].compactMap(\.self), failure == nil ? Tone.quiet : Tone.warning
      )
    }
    let unclaimed = charges.unclaimed.all.count(where: \.isClaimed)
    let open = [
      unclaimed == 0
        ? nil
        : cause(
          Count.text(unclaimed, "submitted charge is", "submitted charges are")
            + " unclaimed (see below)."), failure,
    ].compactMap(\.self)
    let found = (losses + [move].compactMap(\.self)).withoutRepetition
    // What followed a period that ended was submitted here, too.
    let claim = charges.claimInWords.flatMap { claim in
      found.contains { $0.counterpart == claim.counterpart } ? nil : claim
    }
    if let last {
      let isQuiet =
        last.state == .expired && open.isEmpty && claim == nil
        && charges.unclaimedInWords(at: now, besides: nil).isEmpty
        && found.allSatisfy { $0.counterpart == nil }
      return (
        found + [refund, claim].compactMap(\.self) + open,
        last.state != .expired ? Tone.bad : isQuiet ? Tone.quiet : Tone.warning
      )
    }
    if move == nil, let bought = charges.consumablesInWords {
      return (
        [cause(bought), refund, claim].compactMap(\.self) + open,
        open.isEmpty && claim == nil ? Tone.quiet : Tone.warning
      )
    }
    let owned = charges.owned.all.count
    let lead: AccessCauses.Cause? =
      if let move {
        move
      } else if owned > 0 {
        cause(
          "The account owns \(Count.text(owned, "charge")), none for a product that grants an "
            + "entitlement.")
      } else if claim == nil {
        cause(
          "The account has no purchases and no grants."
            + (open.isEmpty && refund == nil ? " \(Self.advice(after: submission))" : ""))
      } else {
        nil
      }
    // A product's ID begins the cause.
    let start = cause("No active entitlements\(lead == nil && claim != nil ? ":" : ".")")
    return ([start] + [lead, refund, claim].compactMap(\.self) + open, Tone.warning)
  }

  /// The active entitlements, each with its cause; one that was granted is named once.
  private static func named(_ active: [Entitlement], _ causes: AccessCauses)
    -> [AccessCauses.Cause]
  {
    let all = active.map(causes.cause)
    if active.count == 1, active[0].source == .grant {
      return [AccessCauses.Cause(sentence: "Active entitlement: \(all[0].sentence)")]
    }
    let names = active.map(\.name).joined(separator: ", ")
    let noun = active.count == 1 ? "entitlement" : "entitlements"
    return [AccessCauses.Cause(sentence: "Active \(noun): \(names).")] + all
  }

  /// Where the purchase of an account without any may be.
  private static func advice(after submission: Submission?) -> String {
    guard let submission, submission.decided?.warnings.contains(.noTransactions) ?? false else {
      return "If the customer paid, the purchase was never submitted: search for the transaction."
    }
    return "The latest submission (\(submission.receivedAt.dayName)) contained no purchases; the "
      + "customer may use another Apple ID."
  }

  /// What the account has now, or why it has nothing: each state once, what is active first.
  private static func badges(_ entitlements: [Entitlement], _ causes: AccessCauses) -> [Badge] {
    if entitlements.isEmpty { return [.noEntitlement] }
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
    for account: Account, by role: APIKeys.Role?, transfers: [PageLink]
  ) -> [PageLink] {
    guard !account.isErased else { return [] }
    func link(_ label: String, _ form: String, isDanger: Bool = false) -> PageLink {
      PageLink(label: label, href: AdminURL.account(account.id, form: form), isDanger: isDanger)
    }
    // A merged account can't receive grants or further merges.
    let isMerged = account.mergedInto != nil
    let changes = (isMerged ? [] : [link("Grant…", "grant")]) + transfers
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

  private static func row(_ entitlement: Entitlement, state: Badge, because: [TextPiece])
    -> some Sendable
  {
    let end = entitlement.isActive ? entitlement.accessEndsAt : nil
    return (
      name: entitlement.name, state: state, hasCause: !because.isEmpty, because: because,
      until: entitlement.source == .appStore ? end.map(Moment.init) : nil,
      ended: entitlement.endedAt.map(Moment.init),
      // As the grant's own row has it.
      grantEnd: entitlement.source == .appStore ? nil : end?.lastDayName,
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
        charge.deliveredAt.map { "delivered \(Moment($0).text)" } ?? "delivery not reported"
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

extension AccessCauses.Cause {
  fileprivate static let erased = AccessCauses.Cause(
    sentence: "This customer's data was erased. The charges stay in the books under this "
      + "pseudonym. It can receive no grant, charge or merge, and renewals are unclaimed until an "
      + "app submits them: transfer a charge to another account of the customer instead.")
}

extension [AccessCauses.Cause] {
  /// One text, with links to the accounts; of many sentences, each has a line.
  fileprivate var pieces: [TextPiece] {
    [TextPiece](map { $0.pieces }.joined(separator: [(count > 3 ? "\n" : " ", nil)]))
  }

  /// Each sentence once, in order: several entitlements of one product end together.
  fileprivate var withoutRepetition: [AccessCauses.Cause] { withoutRepetition(by: \.sentence) }
}

extension [String] {
  /// Each text once, in order.
  var withoutRepetition: [String] { withoutRepetition(by: \.self) }
}

extension Array {
  fileprivate func withoutRepetition(by text: (Element) -> String) -> [Element] {
    var seen: Set<String> = []
    return filter { seen.insert(text($0)).inserted }
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
      throw Problem(.unknownAccount, "No account with the ID “\(id)”.")
    }
    return account
  }
}
