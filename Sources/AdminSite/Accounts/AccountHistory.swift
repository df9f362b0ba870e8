import Foundation
import HTTPAPI
import Intake
import JSONText
import LedgerStorage
import Subscriptions

/// The history of an account: its ledger entries and administrator actions, merged into one list.
///
/// Neither is ever deleted, so the list is complete.
struct AccountHistoryRows: Sendable {
  /// The position reached in both lists.
  struct Place: Sendable {
    var entry: HistoryPlace?
    var act: Int64?
  }

  /// Latest first.
  let rows: [FactRow]
  /// The cursor of the next page, or nil on the last one.
  let next: String?

  /// - Throws: A ``Problem`` for an unknown cursor.
  init(of ties: RelatedAccounts, _ account: Account, part: PagePart, in ledger: Ledger) async throws
  {
    var place = try part.after.map(Place.init) ?? Place()
    let found = try await ledger.accounts.history(
      of: ties, before: place.entry, limit: part.limit + 1)
    let events = try await Self.events(found.entries, in: ledger)
    let sources = try await SourceText(of: found.entries, in: ledger)
    var acts = try await ledger.administration.otherActions(
      on: account.key, before: place.act, limit: part.limit + 1)
    // Older actions belong to the next page: the ledger was only read back to this date.
    if let end = found.lookedBackTo { acts.removeAll { $0.actedAt < end.recordedAt } }
    let all = events.count + acts.count
    var (rows, (laterEvents, laterActs)) = ([FactRow](), (events[...], acts[...]))
    while rows.count < part.limit {
      let (event, act) = (laterEvents.first, laterActs.first)
      if let act, event.map({ $0.entry.recordedAt <= act.actedAt }) ?? true {
        rows.append(FactRow(act, on: account))
        place.act = act.id
        laterActs.removeFirst()
      } else if let event {
        var row = sources.fact(event)
        let line = event.entry.line
        row.subject = PageLink(label: line.originalTransactionID.rawValue, href: line.href)
        rows.append(row)
        place.entry = HistoryPlace(event.entry)
        laterEvents.removeFirst()
      } else {
        break
      }
    }
    self.rows = rows
    if rows.count < all {
      next = place.cursor
    } else if let end = found.lookedBackTo {
      place.entry = end
      next = place.cursor
    } else {
      next = nil
    }
  }

  private static func events(_ entries: [HistoryEntry], in ledger: Ledger) async throws
    -> [ChargeEvent]
  {
    let names = try await ledger.ownership.accountIDs(
      of: Set(entries.flatMap { $0.entry.content.accounts }))
    return entries.map { ChargeEvent($0.entry, source: $0.source) { names[$0] ?? "erased" } }
  }
}

extension AccountHistoryRows.Place {
  /// Control characters are not accepted in identifiers.
  private static let separator: Character = "\u{1F}"

  fileprivate var cursor: String {
    let entry =
      entry.map { entry in
        [
          "\(entry.recordedAt.milliseconds)", entry.line.environment.rawValue,
          entry.line.originalTransactionID.rawValue, "\(entry.number)",
        ]
      } ?? []
    return ([act.map(String.init) ?? ""] + entry).joined(separator: String(Self.separator))
  }

  fileprivate init(_ text: String) throws {
    let parts = text.split(separator: Self.separator, omittingEmptySubsequences: false)
      .map(String.init)
    let problem = PagePart.unknownPlace("history_")
    guard let act = parts.first, act.isEmpty || Int64(act) != nil else { throw problem }
    self.act = Int64(act)
    guard parts.count > 1 else { return }
    guard parts.count == 5, let milliseconds = Int64(parts[1]),
      let environment = Subscriptions.Environment(rawValue: parts[2]), let number = Int(parts[4])
    else { throw problem }
    entry = HistoryPlace(
      recordedAt: Timestamp(milliseconds: milliseconds),
      line: OriginalTransactionKey(environment, OriginalTransactionID(parts[3])), number: number)
  }
}

extension FactRow {
  fileprivate init(_ act: AdministratorAction, on account: Account) {
    self.init(
      at: Moment(act.actedAt), sentence: act.sentence(on: account),
      source: EntrySource.Kind.administrator.title,
      sourceClass: EntrySource.Kind.administrator.symbol.rawValue, sourceID: act.administrator,
      reason: act.reason)
  }
}

extension AdministratorAction {
  private struct Details: Decodable {
    var entitlement: String?
    var expiresAt: String?

    enum CodingKeys: String, CodingKey {
      case entitlement
      case expiresAt = "expires_at"
    }
  }

  fileprivate func sentence(on account: Account) -> String {
    let details = try? JSONValue(parsing: data.utf8).decode(Details.self)
    let entitlement = details?.entitlement.map { "“\($0)”" } ?? "an entitlement"
    switch Action(rawValue: action) {
    case .grant:
      let end = details?.expiresAt.map { ", until \(dayName($0))" } ?? ", no end date"
      return "Granted \(entitlement)\(end)."
    case .revokeGrant: return "Grant of \(entitlement) revoked."
    case .mergeAccount where accountID == account.id:
      return "“\(previousAccountID ?? "erased")” was merged into this account."
    case .mergeAccount: return "Merged into “\(accountID ?? "erased")”."
    case .eraseAccount: return "This customer's data was erased."
    case .exportAccount: return "Everything stored about this account was exported."
    default: return "Administrator action: \(action.replacing("_", with: " "))."
    }
  }
}

extension AccountChargeRow {
  init(
    _ report: ChargeReport, end: Timestamp?, of account: Account,
    placedBy act: AdministratorAction?,
    at now: Timestamp
  ) {
    let charge = report.charge
    let other = report.recorded.decision.owner == account.key ? nil : report.ownerAccountID
    self.init(
      transactionID: charge.id.transactionID.rawValue, href: charge.id.href,
      productID: charge.productID.rawValue, chargedAt: Moment(charge.date),
      until: end.map(Moment.init), price: Price.text(of: report.transaction),
      state: Badge(charge, end: end, at: now), rule: report.recorded.decision.rule.rawValue,
      because: report.because,
      owner: other.map { PageLink(label: $0, href: AdminURL.account($0)) },
      placed: act.map { AdministratorActionNote($0) },
      isSandbox: charge.id.line.environment == .sandbox,
      transferHref: charge.id.transferHref)
  }
}

extension OrderRow {
  init(_ stored: StoredOrder, charges: AccountCharges) {
    let charge = charges.charge(fulfilling: stored.order.id)
    let delivery = charge.map { charge in
      charge.deliveredAt.map { "delivered \(Moment($0).text)" } ?? "delivery not acknowledged"
    }
    self.init(
      orderID: stored.order.id.uuidString.lowercased(),
      productID: stored.order.productID.rawValue, openedAt: Moment(stored.order.createdAt),
      state: Badge(stored.order.status), transactionID: stored.transactionID?.rawValue,
      href: charge?.id.href, delivery: delivery)
  }
}

extension GrantRow {
  init(_ stored: StoredGrant, acts: [AdministratorAction], at now: Timestamp) {
    let grant = stored.grant
    let isOver = grant.accessEnd.map { $0 <= now } ?? false
    let state =
      grant.revokedAt != nil
      ? Badge(text: "Revoked", tone: Tone.bad)
      : isOver
        ? Badge(text: "Expired", tone: Tone.quiet)
        : Badge(text: grant.source == .provisional ? "Provisional" : "Active", tone: Tone.good)
    let id = grant.id.uuidString.lowercased()
    self.init(
      grantID: id, entitlement: grant.entitlement, state: state, from: Moment(grant.startsAt),
      until: grant.accessEnd.map(Moment.init), reason: stored.reason,
      given: acts.last(.grant, of: id).map {
        AdministratorActionNote(administrator: $0.administrator)
      },
      takenBack: acts.last(.revokeGrant, of: id).map { AdministratorActionNote($0, isDated: true) },
      revokeHref: grant.source == .grant && !isOver
        ? AdminURL.revocation(ofGrant: id) : nil)
  }
}

extension AdministratorActionNote {
  init(_ act: AdministratorAction, isDated: Bool = false) {
    self.init(
      administrator: act.administrator, at: isDated ? Moment(act.actedAt) : nil,
      reason: act.reason)
  }
}

extension [AdministratorAction] {
  /// The latest action of a kind on a subject; the list is sorted latest first.
  fileprivate func last(_ action: AdministratorAction.Action, of subject: String) -> Element? {
    first { $0.action == action.rawValue && $0.subject == subject }
  }
}

extension FactRow {
  init(_ event: PublishedEvent) {
    let told = try? JSONValue(parsing: event.data.utf8).decode(EventText.self)
    self.init(
      at: Moment(event.occurredAt), sentence: (told ?? EventText()).sentence(for: event.type),
      source: "Event", sourceClass: TimelineLayout.Symbol.poll.rawValue,
      sourceDetail: event.type, sourceID: told?.transactionID,
      sourceHref: told?.href)
  }
}

private func dayName(_ text: String) -> String { Timestamp(rfc3339: text)?.dayName ?? text }

/// The parts of an event's data that its row shows.
private struct EventText: Decodable {
  struct PublishedEntitlement: Decodable {
    var name: String
    var accessEndsAt: String?

    enum CodingKeys: String, CodingKey {
      case name = "entitlement"
      case accessEndsAt = "access_ends_at"
    }
  }

  var environment: String?
  var originalTransactionID: String?
  var transactionID: String?
  var productID: String?
  var orderID: String?
  var entitlement: PublishedEntitlement?
  var expiresAt: String?
  var because: String?

  enum CodingKeys: String, CodingKey {
    case environment, entitlement, because
    case originalTransactionID = "original_transaction_id"
    case transactionID = "transaction_id"
    case productID = "product_id"
    case orderID = "order_id"
    case expiresAt = "expires_at"
  }

  var href: String? {
    guard let environment, let originalTransactionID else { return nil }
    return AdminURL.originalTransaction(originalTransactionID, environment: environment)
  }

  func sentence(for type: String) -> String {
    let end = entitlement.map(\.accessEndsAt) ?? expiresAt
    let until = end.map { ", until \(dayName($0))" } ?? ""
    let what = entitlement.map { "“\($0.name)”" } ?? productID ?? orderID ?? ""
    guard let kind = LedgerEvent.Kind(rawValue: type) else { return "\(type) \(what)" }
    let words =
      switch kind {
      case .transactionRecorded: "Charge recorded: \(what)\(until)."
      case .ownerDecided: "Owner decided: \(what)."
      case .transactionClaimed: "Charge claimed: \(what)."
      case .ownerCorrected: "Owner corrected: \(what)."
      case .transactionRevoked: "Charge revoked: \(what)."
      case .transactionRestored: "Charge restored: \(what)."
      case .bindingClosed: "Renewals no longer belong to this account."
      case .bindingOpened: "Renewals belong to this account."
      case .entitlementGranted: "Entitlement granted: \(what)\(until)."
      case .entitlementExtended: "Entitlement extended: \(what)\(until)."
      case .entitlementShortened: "Entitlement shortened: \(what)\(until)."
      case .entitlementExpired: "Entitlement expired: \(what)."
      case .entitlementRevoked: "Entitlement revoked: \(what)."
      case .renewalStatusChanged: "Renewal status changed."
      case .inGracePeriod: "Billing failed; access continues in a grace period."
      case .inBillingRetry: "Billing failed; access is suspended while Apple retries."
      case .recovered: "Billing recovered."
      case .productChanged: "Product changed to \(what)."
      case .orderFulfilled: "Order fulfilled: \(what)."
      case .orderRefunded: "Order refunded: \(what)."
      case .orderReopened: "Order reopened: \(what)."
      case .orderExpired: "Order expired: \(what)."
      case .accountErased: "This customer's data was erased."
      }
    return because.map { "\(words) \($0)" } ?? words
  }
}

extension SubmissionRow {
  init(_ submission: SubmissionSummary) {
    let findings = SubmissionFindings(of: submission)
    self.init(
      submissionID: submission.id.uuidString.lowercased(),
      receivedAt: Moment(submission.receivedAt), state: Badge(submission),
      kind: submission.kindInWords, outcome: submission.outcomeInWords(findings),
      warnings: (findings?.warnings ?? []).map { $0.inWords(submission) },
      href: submission.status == .rejected ? AdminURL.rejected : nil)
  }
}

extension SubmissionSummary {
  /// For example `Receipt (restore, transaction 77)`.
  fileprivate var kindInWords: String {
    let name =
      switch kind {
      case .receipt: "Receipt"
      case .signedTransaction: "Signed transactions"
      default: "Deleted payload"
      }
    let options = [isRestore ? "restore" : nil, transactionID.map { "transaction \($0)" }]
      .compactMap(\.self)
    return options.isEmpty ? name : "\(name) (\(options.joined(separator: ", ")))"
  }

  /// The rest of the sentence that begins with ``kindInWords``.
  fileprivate func outcomeInWords(_ findings: SubmissionFindings?) -> String {
    switch status {
    case .verified:
      let inWhat = environment == .sandbox ? " in the sandbox." : "."
      return ["verified by Apple\(inWhat)", findings?.inWords].compactMap(\.self)
        .joined(separator: " ")
    case .rejected:
      guard let problem else { return "rejected by Apple." }
      let status = problem.appleStatus.map { ", Apple status \($0)" } ?? ""
      return "rejected (\(problem.code)\(status)). \(problem.detail)"
    case .pending:
      return "pending. \(problem?.detail ?? "Apple has not been asked yet.") "
        + Count.text(attempts, "attempt")
        + (retryAt.map { "; next attempt \(Moment($0).text)." } ?? "; retries exhausted.")
    }
  }
}

extension SubmissionFindings {
  fileprivate var inWords: String {
    guard claimed > 0 else { return "Claimed nothing." }
    return "Claimed \(Count.text(claimed, "transaction")); \(newlyOwned) newly owned."
  }
}

extension SubmissionWarning {
  /// The warning as it was when the submission was decided.
  fileprivate func inWords(_ submission: SubmissionSummary) -> String {
    let recheck = submission.retryAt.map { "; next check \(Moment($0).text)." } ?? "."
    return switch self {
    case .transactionNotInReceipt: "The named transaction is not in the submission\(recheck)"
    case .purchasedLater:
      "A purchase is dated after the submission was received and was not claimed\(recheck)"
    case .ownedByAnotherAccount: "Another account owned the claimed transactions."
    case .orderUnknown: "The named order does not exist."
    case .orderAccountMismatch: "The named order, or the purchase, belongs to another account."
    case .orderProductMismatch: "No purchase in the submission is for the named order's product."
    case .orderAlreadyFulfilled: "The named order, or the purchase, was already matched."
    case .unreadableTransaction: "The latest transaction could not be read\(recheck)"
    case .unknownProduct:
      "A product was not in the catalogue; it grants nothing until it is added there."
    case .sandboxNotGranted: "Sandbox purchases grant this account nothing."
    case .noTransactions: "The receipt contains no purchases."
    case .appAccountTokenOfAnotherAccount:
      "A transaction carries the app account token of another account."
    }
  }
}
