import Foundation
import HTTPAPI
import LedgerStorage
import Subscriptions

extension Badge {
  /// The state of a charge after its Family Sharing ended.
  static let noLongerShared = Badge(text: "No longer shared", tone: Tone.bad)
  static let sandbox = Badge(text: "Sandbox", tone: Tone.quiet)
  static let unclaimed = Badge(text: "Unclaimed", tone: Tone.warning)

  /// The state of a charge; one that no account owns is not called active.
  static func states(of report: ChargeReport, end: Timestamp?, at now: Timestamp) -> [Badge] {
    let state = Badge(report.charge, end: end, at: now)
    guard report.recorded.decision.owner == nil else { return [state] }
    return (state.tone == Tone.good ? [] : [state]) + [.unclaimed]
  }

  init(_ charge: Charge, end: Timestamp?, at now: Timestamp) {
    if let revocation = charge.revocation, revocation.at <= now {
      self = revocation.isRefund ? Badge(text: "Refunded", tone: Tone.bad) : .noLongerShared
    } else if let supersededAt = charge.supersededAt, supersededAt <= now {
      self.init(text: "Upgraded", tone: Tone.quiet)
    } else if let end, end <= now {
      self.init(text: "Ended", tone: Tone.quiet)
    } else if end != nil {
      self.init(text: charge.date <= now ? "Active" : "Upcoming", tone: Tone.good)
    } else {
      self.init(text: "Purchased", tone: Tone.good)
    }
  }

  static func peculiarities(of transaction: StoreTransaction) -> [Badge] {
    let period: String? =
      switch transaction.periodType {
      case .normal: nil
      case .trial: "Trial"
      case .intro: "Introductory price"
      case .offer: "Offer"
      }
    let sharing = transaction.ownershipType == .familyShared ? "Family Sharing" : nil
    return [period, sharing].compactMap(\.self).map { Badge(text: $0, tone: Tone.info) }
  }

  init(_ entitlement: Entitlement) { self.init(entitlement.state, entitlement.endedBecause) }

  init(_ state: Entitlement.State, _ reason: Entitlement.EndReason?) {
    switch (state, reason) {
    case (.active, _): self.init(text: "Active", tone: Tone.good)
    case (.inGracePeriod, _): self.init(text: "Grace period", tone: Tone.warning)
    case (.inBillingRetry, _): self.init(text: "Billing retry", tone: Tone.warning)
    case (.revoked, .refunded): self.init(text: "Refunded", tone: Tone.bad)
    case (.revoked, .familySharingEnded): self = .noLongerShared
    case (.revoked, .moved): self.init(text: "Moved", tone: Tone.warning)
    case (.revoked, _): self.init(text: "Revoked", tone: Tone.bad)
    case (.expired, .replaced): self.init(text: "Upgraded", tone: Tone.quiet)
    case (.expired, .billing): self.init(text: "Payment failed", tone: Tone.warning)
    case (.expired, _): self.init(text: "Expired", tone: Tone.quiet)
    }
  }

  init(_ status: PurchaseOrder.Status) {
    switch status {
    case .open: self.init(text: "Open", tone: Tone.info)
    case .fulfilled: self.init(text: "Fulfilled", tone: Tone.good)
    case .refunded: self.init(text: "Refunded", tone: Tone.bad)
    case .expired: self.init(text: "Expired", tone: Tone.quiet)
    }
  }

  init(_ submission: Submission) {
    switch submission.status {
    case .verified: self.init(text: "Verified", tone: Tone.good)
    case .rejected: self.init(text: "Rejected", tone: Tone.bad)
    case .pending where submission.retryAt == nil: self.init(text: "Failed", tone: Tone.bad)
    case .pending: self.init(text: "Pending", tone: Tone.warning)
    }
  }
}

enum Price {
  /// Apple's price, else the catalogue's for a period without an offer; the buyer paid for a shared
  /// charge.
  static func text(of report: ChargeReport) -> String {
    let transaction = report.transaction
    guard transaction.ownershipType != .familyShared else { return "no price (shared)" }
    guard let currency = transaction.currency, let amount = transaction.priceMilliunits else {
      guard let listed = report.product?.priceMilliunits, transaction.periodType == .normal else {
        return "price unknown"
      }
      return "≈ \(text(listed, currency: report.product?.currency)) (catalogue)"
    }
    let text = ChartUnit.money(currency: currency).text(amount)
    return transaction.quantity > 1 ? "\(text), quantity \(transaction.quantity)" : text
  }

  /// For example `29.97 USD, ≈ 9.99 EUR`, or `0.00 USD` after a refund; empty without any.
  static func text(_ sums: [AccountStore.SpentSum]) -> String {
    let paid = sums.filter { $0.milliunits != 0 }
    return (paid.isEmpty ? Array(sums.prefix(1)) : paid)
      .map { ($0.isEstimated ? "≈ " : "") + text($0.milliunits, currency: $0.currency) }
      .joined(separator: ", ")
  }

  static func text(_ milliunits: Int64, currency: String?) -> String {
    currency.map { ChartUnit.money(currency: $0).text(milliunits) } ?? "price unknown"
  }
}

extension ChargeReport {
  /// The reason for the owner, who is named with a link unless the page is about that account.
  func reason(on account: AccountKey?) -> [TextPiece] {
    let because = becauseForPeople
    guard let owner = ownerAccountID, recorded.decision.owner != account else {
      return previousCharge.flatMap { because.linking($0, in: $0.label) } ?? [(because, nil)]
    }
    let link = PageLink.account(owner)
    let pieces =
      because.linking(link, in: "“\(owner)”") ?? [(owner, link.href), (" · \(because)", nil)]
    return pieces.flatMap { piece in
      piece.href == nil
        ? previousCharge.flatMap { piece.text.linking($0, in: $0.label) } ?? [piece] : [piece]
    }
  }

  /// The reason with times for people and, instead of its transaction, the date of the charge before.
  private var becauseForPeople: String {
    let because = because.withTimesForPeople
    guard let previousCharge, let id = recorded.decision.renewal.previous?.transactionID.rawValue
    else { return because }
    // Not within an account's ID.
    return because.replacing(
      /“[^”]*”|(the previous charge, transaction [^ .;,]+,?)|(transaction [^ .;,]+)/
    ) { match in
      (match.1 ?? match.2).map { $0.contains(" \(id)") } ?? false
        ? previousCharge.label : String(match.0)
    }
  }

  private var previousCharge: PageLink? {
    recorded.decision.renewal.previous.flatMap { id in
      previousDate.map { PageLink(label: "the charge of \($0.dayName)", href: id.href) }
    }
  }

  /// For example `Transfer subscription`.
  func transferTitle(isLatest: Bool) -> String {
    "\(transferVerb) \(isLatest ? "subscription" : "charge")"
  }

  var transferVerb: String { ownerAccountID == nil ? "Assign" : "Transfer" }

  /// The properties shown above a form.
  var facts: [Property] {
    [
      Property("Transaction", charge.id.transactionID.rawValue, href: charge.id.href, isCode: true),
      Property("Product", charge.productID.rawValue, isCode: true),
      Property("Charged", charge.date), Property("Price", Price.text(of: self)),
      Property(
        "Owner", ownerAccountID ?? "unclaimed", href: ownerAccountID.map { AdminURL.account($0) }),
      Property("Decision", becauseForPeople),
    ]
  }
}

extension Charge.ID {
  /// The HTML id on the page of the original transaction: letters, digits and hyphens.
  var anchor: String {
    "charge-\(transactionID.rawValue.anchorName)-\(productID.rawValue.anchorName)"
  }

  var href: String {
    AdminURL.originalTransaction(
      line.originalTransactionID.rawValue, environment: line.environment.rawValue, charge: anchor)
  }

  /// The form that transfers or releases it.
  func href(form: String) -> String {
    AdminURL.transaction(
      transactionID.rawValue, form: form, productID: productID.rawValue,
      environment: line.environment.rawValue)
  }
}

extension OriginalTransactionKey {
  var href: String {
    AdminURL.originalTransaction(originalTransactionID.rawValue, environment: environment.rawValue)
  }
}

/// The sources of ledger entries, as text.
struct SourceText: Sendable {
  private let notifications: [ExactText: NotificationSummary]
  private let submitters: [UUID: String]
  let actions: OverrideActions

  init(of entries: [HistoryItem], in ledger: Ledger) async throws {
    let sources = Set(entries.map(\.source))
    actions = try await OverrideActions(of: entries, in: ledger)
    notifications = try await ledger.accounts.notificationSummaries(
      sources.filter { $0.kind == .notification }.compactMap(\.id))
    submitters = try await ledger.accounts.submitters(
      of: sources.filter { $0.kind == .receipt || $0.kind == .signedTransaction }
        .compactMap { $0.id.flatMap(UUID.init(uuidString:)) })
  }

  func fact(_ event: ChargeEvent, anchor: String? = nil) -> FactRow {
    let (entry, source) = (event.item, event.source)
    // Such a transaction looks like one that was never refunded.
    let isReversal = notification(of: source)?.type == "REFUND_REVERSED"
    let sentence =
      isReversal
      ? event.sentence.replacing(
        "Apple reported transaction", with: "Apple reversed the refund of transaction")
      : event.sentence
    let submitter = submitter(of: source)
    let isMessage = [.notification, .poll].contains(source.kind)
    return FactRow(
      anchor: anchor, at: Moment(entry.recordedAt), sentence: [(sentence.withTimesForPeople, nil)],
      source: source.kind.title, symbol: source.kind.symbol, sourceDetail: detail(of: source),
      sourceID: submitter ?? (isMessage ? nil : source.id),
      messageID: isMessage ? source.id : nil,
      sourceHref: submitter.map { AdminURL.account($0) }, reason: action(behind: event)?.reason,
      statedAt: entry.content.evidenceDate.flatMap { date in
        let (stated, recorded) = (Moment(date), Moment(entry.recordedAt))
        return stated.text == recorded.text ? nil : stated
      },
      evidenceDate: entry.content.evidenceDate,
      line: entry.line, transactionID: entry.content.transactionID?.rawValue,
      meaning: isReversal ? .revocation : entry.content.meaning,
      story: event.story(isReversal: isReversal), isReversal: isReversal,
      isRoutine: entry.content.isRoutine, change: entry.content.change,
      move: event.move.map { "from \($0.from) to \($0.to)" })
  }

  /// The administrator action that caused an entry.
  func action(behind event: ChargeEvent) -> AdministratorAction? {
    actions.action(behind: (event.item, event.source))
  }

  /// The tooltip of a source's mark.
  func text(of source: EntrySource) -> String {
    [source.kind.title, detail(of: source), submitter(of: source).map { "from \($0)" }]
      .compactMap(\.self).joined(separator: " ")
  }

  private func submitter(of source: EntrySource) -> String? {
    source.id.flatMap(UUID.init(uuidString:)).flatMap { submitters[$0] }
  }

  private func notification(of source: EntrySource) -> NotificationSummary? {
    source.kind == .notification ? source.id.flatMap { notifications[ExactText($0)] } : nil
  }

  private func detail(of source: EntrySource) -> String? {
    switch source.kind {
    case .notification:
      notification(of: source).map {
        [$0.type, $0.subtype].compactMap(\.self).joined(separator: " ")
      }.flatMap { $0.isEmpty ? nil : $0 }
    case .receipt: "receipt"
    case .signedTransaction: "signed transactions"
    case .poll, .administrator, .import: nil
    }
  }
}

extension EntrySource.Kind {
  var title: String {
    switch self {
    case .receipt, .signedTransaction: "Submission"
    case .notification: "Notification"
    case .poll: "Poll"
    case .administrator: "Administrator"
    case .import: "Import"
    }
  }

  var symbol: TimelineLayout.Symbol {
    switch self {
    case .receipt, .signedTransaction: .submission
    case .notification: .notification
    case .poll: .poll
    case .administrator, .import: .administrator
    }
  }
}

extension FactRow {
  init(_ writeBack: WriteBack, name: (AccountKey) -> String) {
    self.init(
      at: Moment(writeBack.sentAt), sentence: [(writeBack.sentence(name), nil)],
      source: "Write-back",
      symbol: .poll, sourceDetail: writeBack.outcome.name,
      sourceID: writeBack.request?.transactionID.rawValue)
  }
}

extension WriteBack {
  fileprivate func sentence(_ name: (AccountKey) -> String) -> String {
    let content =
      switch kind {
      case .ownership: account.map { "the owner \(name($0))" } ?? "the owner"
      case .consumption: deliveryStatus.map { "the delivery status \($0)" } ?? "consumption data"
      }
    switch outcome {
    case .accepted: return "Sent to Apple: \(content)."
    case .refused(let status, let code):
      let number = code ?? status.map(Int64.init)
      return "Rejected by Apple: \(content)" + (number.map { " (error \($0))" } ?? "") + "."
    case .skipped(let reason): return "Not sent to Apple: \(content) (\(reason.words))."
    }
  }
}

extension WriteBack.Reason {
  fileprivate var words: String {
    switch self {
    case .turnedOff: "write-back is turned off"
    case .unowned: "no account owns the charge"
    case .accountErased: "the account was erased"
    case .accountMerged: "the account was merged into another"
    case .familyShared: "shared with Family Sharing"
    case .consumable: "consumable product"
    case .unknownApp: "the app is not configured"
    case .noConsent: "no customer consent"
    case .tooLate: "Apple's deadline had passed"
    }
  }
}

/// The administrator actions behind ownership entries, with their reasons.
///
/// The ledger itself only stores the administrator's name.
struct OverrideActions: Sendable {
  /// Latest first.
  private let actions: [AdministratorAction]

  init(of entries: [HistoryItem], in ledger: Ledger) async throws {
    let placing = entries.filter { $0.source.kind == .administrator }.map(\.item.content)
    actions = try await ledger.administration.overrideActions(
      of: Set(placing.compactMap(\.charge)), concerning: Set(placing.flatMap(\.accounts)))
  }

  func action(behind entry: HistoryItem) -> AdministratorAction? {
    actions.first { $0.brought(entry.item, from: entry.source) }
  }
}

/// The last act of an administrator, or of an import, that decided the owner of a charge.
struct ChargeOverride: Sendable {
  let change: OwnershipChange
  let source: EntrySource
  let recordedAt: Timestamp
  /// Nil for an import.
  let action: AdministratorAction?

  /// Nil if there is none among the items.
  init?(
    of charge: Charge.ID, latestFirst items: some Sequence<HistoryItem>, _ actions: OverrideActions
  ) {
    for entry in items {
      guard case .ownership(let change) = entry.item.content, change.action == .placed,
        change.charge == charge
      else { continue }
      (self.change, source) = (change, entry.source)
      (recordedAt, action) = (entry.item.recordedAt, actions.action(behind: entry))
      return
    }
    return nil
  }

  var badge: Badge { Badge(text: badgeText, tone: Tone.info) }

  private var isMerge: Bool {
    action?.action == AdministratorAction.Action.mergeAccount.rawValue
  }

  private var badgeText: String {
    if source.kind == .import { return "Imported" }
    if isMerge { return "Merged" }
    if change.decision.owner == nil { return "Released" }
    return change.changesOwner ? "Assigned by an administrator" : "Pinned"
  }

  /// What was done, and how to undo it: no act gives a charge back to the rule.
  ///
  /// - Parameters:
  ///   - owner: The present owner.
  ///   - former: The owner before, if the charge can be transferred to it.
  ///   - isReleaseForm: Whether the form is the one that releases the charge.
  func advice(to owner: String?, before former: String?, isReleaseForm: Bool) -> FormAdvice {
    func link(_ label: String, _ form: String) -> PageLink {
      PageLink(label: label, href: change.charge.href(form: form))
    }
    let day = recordedAt.dayName
    let subject = source.kind == .import ? "An import" : isMerge ? "A merge" : "An administrator"
    guard change.decision.owner != nil else {
      let text = "An administrator released this charge on \(day)."
      return (
        former.map { "\(text) To undo that, assign it to “\($0)”, who owned it before." } ?? text,
        nil
      )
    }
    let name = owner.map { " to “\($0)”" } ?? ""
    let done =
      change.changesOwner
      ? "\(subject) assigned this charge\(name) on \(day)"
        + (former.map { "; before, “\($0)” owned it" } ?? "")
      : "An administrator pinned this charge\(name) on \(day)"
    let back = change.changesOwner ? former.map { "transfer it back to “\($0)”" } : nil
    let release = "the account whose app submits it next owns it, and until then it gives no access"
    guard isReleaseForm else {
      return (
        "\(done). To undo that, \(back.map { "\($0), or " } ?? "")release it: then \(release).",
        link("Release…", "release")
      )
    }
    return (
      "\(done). A release undoes that: then \(release)."
        + (back.map { " To leave no gap, \($0) instead." } ?? ""),
      back.map { _ in link("Transfer…", "transfer") }
    )
  }
}

extension LedgerItem.Content {
  /// The charge that was assigned or decided, or nil for evidence.
  fileprivate var charge: TransactionKey? {
    switch self {
    case .action(let action): action.transaction
    case .ownership(let change): change.charge
    case .evidence: nil
    }
  }
}

extension Decision {
  /// Whether an administrator action determined the decision.
  var isByAdministrator: Bool { rule == .administrator || renewal.reason == .released }
}
