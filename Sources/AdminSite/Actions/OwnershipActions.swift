import HTTPAPI
import HTTPTypes
import Hummingbird
import LedgerStorage
import Subscriptions

/// A charge with the original transaction that it belongs to.
struct LocatedCharge: Sendable {
  let report: ChargeReport
  let original: RecordedOriginalTransaction

  /// Whether renewals belong to its owner.
  var isLatestOfSubscription: Bool {
    report.charge.isSubscription && original.rule.charges.latestCharge?.id == report.charge.id
  }

  /// The rule gives an erased owner no renewals, and nothing can be assigned to it.
  fileprivate var isOwnerErased: Bool {
    report.recorded.decision.owner.map { original.line.history.erasures[$0] != nil } ?? false
  }

  /// The account that owned an unclaimed charge, or the latest one before it; nil for one that was
  /// erased.
  fileprivate var lastOwner: String? {
    guard report.recorded.decision.owner == nil else { return nil }
    let account =
      report.recorded.losses.last?.account ?? original.lastOwner(before: report.charge.id)
    return account.flatMap { account in
      original.line.history.erasures[account] == nil ? original.names[account] : nil
    }
  }

  /// The owner of the latest charge, if that is another one.
  fileprivate var laterOwner: String?? {
    guard report.charge.isSubscription, !isLatestOfSubscription,
      let latest = original.rule.charges.latestCharge
    else { return nil }
    return .some(
      original.line.decisions[latest.id]?.decision.owner.map { original.names[$0] ?? "erased" })
  }
}

/// The forms that transfer a charge to another account, and release it.
///
/// The transfer of a subscription's latest charge is a transfer of the subscription.
struct OwnershipController: ActionController {
  let api: API
  let isRelease: Bool

  func subject(of request: Request, _ context: APIContext) async throws -> LocatedCharge {
    let (report, original) = try await TransactionController(api: api).find(request, context)
    return LocatedCharge(report: report, original: original)
  }

  func form(for located: LocatedCharge) async throws -> ActionForm {
    let (report, id) = (located.report, located.report.charge.id)
    let subject = PageLink(label: id.line.originalTransactionID.rawValue, href: id.href)
    let advice = try await advice(on: located)
    if isRelease {
      return ActionForm(
        title: "Release charge", action: id.href(form: "release"),
        lead: "Removes this charge from its owner. It stays unclaimed until an app submits it.",
        properties: report.facts, advice: advice, buttonLabel: "Release", isDanger: true,
        subject: subject, consequences: try await consequences(of: located, to: nil))
    }
    let receiver = report.ownerAccountID == nil ? "an account" : "another account"
    var field = FormField.account(
      .accountID, "New owner",
      hint: "The full account ID, exactly as your app uses it."
        + (report.ownerAccountID == nil || located.isOwnerErased
          || report.recorded.decision.rule == .administrator
          ? ""
          : " Enter the present owner to keep the charge there whatever Apple reports."))
    if let last = located.lastOwner, let account = try await ledger.accounts.account(last),
      account.mergedInto == nil
    {
      (field.value, field.hint) = (last, "The last owner. \(field.hint ?? "")")
    }
    return ActionForm(
      title: report.transferTitle(isLatest: located.isLatestOfSubscription),
      action: id.href(form: "transfer"),
      lead: located.isLatestOfSubscription
        ? "Assigns the latest charge of this subscription, and with it the renewals, to "
          + "\(receiver), overriding the ownership rule."
        : "Assigns this charge alone to \(receiver), overriding the ownership rule.",
      properties: report.facts, advice: advice,
      fields: [field], buttonLabel: report.ownerAccountID == nil ? "Assign" : "Transfer",
      subject: subject)
  }

  /// How to undo the override that decides the owner, and what an erasure leaves to do.
  private func advice(on located: LocatedCharge) async throws -> [FormAdvice] {
    let report = located.report
    var advice: [FormAdvice] = []
    if located.isOwnerErased {
      advice.append(
        (
          "The owner's data was erased: it can get nothing, and renewals are unclaimed. The charge "
            + "stays in the books, and can be transferred to another account of the customer.", nil
        ))
    }
    guard report.recorded.decision.isByAdministrator else { return advice }
    let items = try await ledger.accounts.ownerOverrides(on: [report.charge.id.line])
    if let ownerOverride = ChargeOverride(
      of: report.charge.id, latestFirst: items, try await OverrideActions(of: items, in: ledger))
    {
      var former: Account?
      if let key = ownerOverride.change.previousOwner,
        let id = try await ledger.ownership.accountIDs(of: [key])[key]
      {
        former = try await ledger.accounts.account(id)
      }
      let canReturn =
        former.map {
          !$0.isErased && $0.mergedInto == nil && $0.key != report.recorded.decision.owner
        } ?? false
      advice.append(
        ownerOverride.advice(
          to: report.ownerAccountID, before: canReturn ? former?.id : nil,
          isReleaseForm: isRelease))
    }
    return advice
  }

  func perform(_ sent: SentForm, on located: LocatedCharge) async throws -> Response {
    let administrator = try sent.context.actingAdministrator()
    var receiver: Account?
    if !isRelease {
      let found = try await account(in: .accountID, of: sent.fields)
      let isOwner = located.report.ownerAccountID.map(AccountID.init) == AccountID(found.id)
      guard !isOwner || located.report.recorded.decision.rule != .administrator else {
        throw Problem(
          .invalidRequest, "An administrator has assigned this charge to “\(found.id)” already.",
          field: TextField.accountID.name)
      }
      receiver = found
    }
    let account = receiver?.id
    guard sent.isConfirmed else {
      let isKept = account != nil && account == located.report.ownerAccountID
      return try await sent.confirm(
        as: isKept
          ? ("Keep owner", "Overrides the ownership rule without changing the owner.") : nil,
        consequences: try await consequences(of: located, to: receiver),
        warnings: warnings(of: located, to: account))
    }
    let id = located.report.charge.id
    try await ledger.ownership.transfer(
      id, to: account, by: administrator, terms: terms, at: now())
    let owner = located.report.ownerAccountID
    return sent.done(
      "Transaction \(id.transactionID) "
        + (account.map {
          owner == $0
            ? "stays with “\($0)”."
            : "was \(owner == nil ? "assigned" : "transferred") to “\($0)”."
        } ?? "was released."),
      link: account.map { PageLink(label: "View account", href: AdminURL.account($0)) },
      then: id.href)
  }

  private func warnings(of located: LocatedCharge, to account: String?) -> [String] {
    var warnings: [String] = []
    if let laterOwner = located.laterOwner {
      warnings.append(
        "This is not the latest charge: renewals stay "
          + (laterOwner.map { "with \($0)." } ?? "unclaimed."))
    }
    if let account, account != located.report.ownerAccountID,
      let end = located.report.end(in: catalogue), end <= now(),
      !(located.original.current(in: catalogue, at: now())?.isActive ?? false)
    {
      warnings.append("Its period ended on \(end.dayName): “\(account)” gets no access from it.")
    }
    if account == nil, located.report.ownerAccountID == nil {
      warnings.append("No account owns this charge; nothing would change.")
    }
    return warnings
  }

  private func consequences(of located: LocatedCharge, to receiver: Account?) async throws
    -> [String]
  {
    let (report, account) = (located.report, receiver?.id)
    let (id, now, loser) = (report.charge.id.transactionID, now(), report.ownerAccountID)
    var losses: [String] = []
    if let loser, loser != account {
      losses = report.losses(
        of: loser, holding: try await entitlements.entitlements(of: loser, now: now))
    }
    guard let receiver, let account else {
      guard let loser else { return ["Transaction \(id) stays unclaimed."] }
      let renewals =
        "Renewals after \(Moment(now).text) are unclaimed, too, until an account "
        + "claims this charge."
      return ["Transaction \(id) (owner: “\(loser)”) will be unclaimed."] + losses
        + (located.isLatestOfSubscription ? [renewals] : [])
        + (located.isOwnerErased
          ? []
          : ["If the app of “\(loser)” is the first to submit it again, “\(loser)” owns it again."])
    }
    if let loser, loser == account {
      return [
        "Transaction \(id) stays with “\(account)”, whatever Apple reports later. Only an "
          + "administrator can change that."
      ] + (located.isLatestOfSubscription ? [located.renewals(for: account)] : [])
    }
    let owner = loser.map { "owner: “\($0)”" } ?? "unclaimed"
    let others = located.original.rule.charges.filter { $0.id != report.charge.id }
    let unclaimed = others.count { located.original.line.decisions[$0.id]?.decision.owner == nil }
    return ["Transaction \(id) (\(owner)) will be assigned to \(try await inWords(receiver))."]
      + losses + gains(of: account, from: located, at: now)
      + (others.count == unclaimed
        ? [] : ["Other charges made before \(Moment(now).text) keep their owner."])
      + (unclaimed == 0
        ? []
        : [
          Count.text(
            unclaimed, "other charge of this subscription stays unclaimed: assign it",
            "other charges of this subscription stay unclaimed: assign them") + ", too, if needed."
        ])
      + (located.isLatestOfSubscription ? [located.renewals(for: account)] : [])
  }
}

extension OwnershipController {
  /// What an account gets together with the charge.
  private func gains(of account: String, from located: LocatedCharge, at now: Timestamp) -> [String]
  {
    guard let current = located.original.current(in: catalogue, at: now), current.isActive,
      current.transactionID == located.report.charge.id.transactionID
    else { return [] }
    return (located.report.product?.entitlements ?? []).map {
      "“\(account)” gets “\($0.rawValue)”\(current.until)."
    }
  }
}

extension LocatedCharge {
  fileprivate func renewals(for account: String) -> String {
    let autoRenews = original.rule.charges.latestPosition.map {
      original.rule.renewal(ofChargeAt: $0).autoRenews
    }
    return autoRenews == false
      ? "Auto-renew is off: if it is turned on again, the renewals will belong to “\(account)”."
      : "The renewals will belong to “\(account)”."
  }
}

extension ChargeReport {
  /// One sentence per active entitlement that an account loses together with the charge.
  fileprivate func losses(of account: String, holding held: [Entitlement]) -> [String] {
    held.filter {
      $0.isActive && $0.originalTransactionID == charge.id.line.originalTransactionID
        && $0.transactionID == charge.id.transactionID
    }.map { entitlement in
      "“\(account)” loses “\(entitlement.name)”\(entitlement.until) unless another purchase or a "
        + "grant provides it."
    }
  }
}

extension Entitlement {
  /// For example ` (until 22 Nov 2026, 10:17)`; empty without an end.
  var until: String {
    accessEndsAt.map { " (\($0.lastDayName.replacing(" (UTC)", with: ", UTC")))" } ?? ""
  }
}
