import Foundation
import HTTPAPI
import Intake
import JSONText
import LedgerStorage
import Subscriptions

/// What became of an account: the entries of the ledger that concern it, and what administrators
/// did to it, as one list.
///
/// Neither is ever deleted, so that the list begins where the account does.
struct AccountHistoryRows: Sendable {
  /// How far both lists were read.
  struct Place: Sendable {
    var entry: HistoryPlace?
    var act: Int64?
  }

  /// The latest first.
  let rows: [FactRow]
  /// Where the list goes on; nil: nowhere.
  let next: String?

  /// Reads a part of it.
  ///
  /// - Parameters:
  ///   - ties: What the account has to do with the ledger.
  ///   - account: Whose it is.
  ///   - part: Which part.
  ///   - ledger: Where it is.
  /// - Throws: What the database says; a ``Problem`` for a cursor that names nothing.
  init(of ties: AccountTies, _ account: Account, part: PagePart, in ledger: Ledger) async throws {
    var place = try part.after.map(Place.init) ?? Place()
    let found = try await ledger.history(of: ties, before: place.entry, limit: part.limit + 1)
    let events = try await Self.events(found.entries, in: ledger)
    let sources = try await SourceWords(of: found.entries, in: ledger)
    var acts = try await ledger.actsBesidesPlacing(
      on: account.key, before: place.act, limit: part.limit + 1)
    // What is older than the ledger was looked through comes with the next part.
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
    let names = try await ledger.accountIDs(of: Set(entries.flatMap { $0.entry.content.accounts }))
    return entries.map { ChargeEvent($0.entry, source: $0.source) { names[$0] ?? "erased" } }
  }
}

extension AccountHistoryRows.Place {
  /// Stands in no identifier: control characters are refused.
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
      line: LineID(environment, OriginalTransactionID(parts[3])), number: number)
  }
}

extension FactRow {
  /// What an administrator did to an account.
  fileprivate init(_ act: AdministratorAct, on account: Account) {
    self.init(
      at: Moment(act.actedAt), sentence: act.sentence(on: account),
      source: EntrySource.Kind.administrator.title,
      sourceClass: EntrySource.Kind.administrator.symbol.rawValue, sourceID: act.administrator,
      reason: act.reason)
  }
}

extension AdministratorAct {
  /// What more there is to say of an act, as far as a list needs it.
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
      let end = details?.expiresAt.map { ", until \($0.prefix(10))" } ?? ", without end"
      return "It was given \(entitlement)\(end)."
    case .revokeGrant: return "What was given to it was taken back: \(entitlement)."
    case .mergeAccount where accountID == account.id:
      return "“\(previousAccountID ?? "erased")” was merged into it."
    case .mergeAccount: return "It was merged into “\(accountID ?? "erased")”."
    case .eraseAccount: return "Its person was erased."
    case .exportAccount: return "All that is known of it was exported."
    default: return "An act was recorded: \(action.replacing("_", with: " "))."
    }
  }
}

extension AccountChargeRow {
  /// - Parameters:
  ///   - report: The charge.
  ///   - end: The end of what was paid for.
  ///   - account: On whose page it is.
  ///   - act: By which an administrator placed or released it; nil: by none.
  ///   - now: The present.
  init(
    _ report: ChargeReport, end: Timestamp?, of account: Account, placedBy act: AdministratorAct?,
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
      owner: other.map { PageLink(label: $0, href: PageAddress.account($0)) },
      placed: act.map { ActNote($0) }, isSandbox: charge.id.line.environment == .sandbox,
      transferHref: charge.id.transferHref)
  }
}

extension OrderRow {
  init(_ stored: StoredOrder, charges: AccountCharges) {
    let charge = charges.charge(fulfilling: stored.order.id)
    let delivery = charge.map { charge in
      charge.deliveredAt.map { "delivered \(Moment($0).text)" } ?? "not acknowledged"
    }
    self.init(
      orderID: stored.order.id.uuidString.lowercased(),
      productID: stored.order.productID.rawValue, openedAt: Moment(stored.order.createdAt),
      state: Badge(stored.order.status), transactionID: stored.transactionID?.rawValue,
      href: charge?.id.href, delivery: delivery)
  }
}

extension GrantRow {
  /// - Parameters:
  ///   - stored: The grant.
  ///   - acts: What administrators did with grants of the account.
  ///   - now: The present.
  init(_ stored: StoredGrant, acts: [AdministratorAct], at now: Timestamp) {
    let grant = stored.grant
    let isOver = grant.accessEnd.map { $0 <= now } ?? false
    let state =
      grant.revokedAt != nil
      ? Badge(text: "taken back", tone: Tone.bad)
      : isOver
        ? Badge(text: "over", tone: Tone.quiet)
        : Badge(text: grant.source == .provisional ? "provisional" : "active", tone: Tone.good)
    let id = grant.id.uuidString.lowercased()
    self.init(
      grantID: id, entitlement: grant.entitlement, state: state, from: Moment(grant.startsAt),
      until: grant.accessEnd.map(Moment.init), reason: stored.reason,
      given: acts.last(.grant, of: id).map { ActNote(administrator: $0.administrator) },
      takenBack: acts.last(.revokeGrant, of: id).map { ActNote($0, isDated: true) },
      revokeHref: grant.source == .grant && !isOver
        ? PageAddress.revocation(ofGrant: id) : nil)
  }
}

extension ActNote {
  init(_ act: AdministratorAct, isDated: Bool = false) {
    self.init(
      administrator: act.administrator, at: isDated ? Moment(act.actedAt) : nil,
      reason: act.reason)
  }
}

extension [AdministratorAct] {
  /// The last act of a kind on something; they stand the last one first.
  fileprivate func last(_ action: AdministratorAct.Action, of subject: String) -> Element? {
    first { $0.action == action.rawValue && $0.subject == subject }
  }
}

extension FactRow {
  /// What the feed told an account.
  init(_ event: ToldEvent) {
    let told = try? JSONValue(parsing: event.data.utf8).decode(ToldWords.self)
    self.init(
      at: Moment(event.occurredAt), sentence: (told ?? ToldWords()).sentence(for: event.type),
      source: "Event", sourceClass: TimelineSketch.Symbol.poll.rawValue,
      sourceDetail: event.type, sourceID: told?.transactionID,
      sourceHref: told?.href)
  }
}

/// What an event tells, as far as a list needs it.
private struct ToldWords: Decodable {
  struct ToldEntitlement: Decodable {
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
  var entitlement: ToldEntitlement?
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
    return PageAddress.originalTransaction(originalTransactionID, environment: environment)
  }

  func sentence(for type: String) -> String {
    let end = entitlement.map(\.accessEndsAt) ?? expiresAt
    let until = end.map { ", until \($0.prefix(10))" } ?? ""
    let what = entitlement.map { "“\($0.name)”" } ?? productID ?? orderID ?? ""
    guard let kind = LedgerEvent.Kind(rawValue: type) else { return "\(type) \(what)" }
    let words =
      switch kind {
      case .transactionRecorded: "A charge was recorded: \(what)\(until)."
      case .ownerDecided: "The owner of a charge was decided: \(what)."
      case .transactionClaimed: "A charge was claimed: \(what)."
      case .ownerCorrected: "The owner of a charge was corrected: \(what)."
      case .transactionRevoked: "A charge was taken back: \(what)."
      case .transactionRestored: "A charge that was taken back counts again: \(what)."
      case .bindingClosed: "The original transaction is bound to it no longer."
      case .bindingOpened: "The original transaction is bound to it."
      case .entitlementGranted: "It may use \(what)\(until)."
      case .entitlementExtended: "It may use \(what) for longer\(until)."
      case .entitlementShortened: "It may use \(what) for less\(until)."
      case .entitlementExpired: "Its access to \(what) ended."
      case .entitlementRevoked: "Its access to \(what) was taken back."
      case .renewalStatusChanged: "What Apple says of the next renewal changed."
      case .inGracePeriod: "The subscription is in a grace period."
      case .inBillingRetry: "Apple tries to charge again, without access."
      case .recovered: "Apple could charge again."
      case .productChanged: "The product changed to \(what)."
      case .orderFulfilled: "An order was fulfilled: \(what)."
      case .orderRefunded: "An order was refunded: \(what)."
      case .orderReopened: "An order is open again: \(what)."
      case .orderExpired: "An order expired: \(what)."
      case .accountErased: "Its person was erased."
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
      href: submission.status == .rejected ? PageAddress.rejected : nil)
  }
}

extension SubmissionSummary {
  /// What was sent, and what was asked for with it.
  fileprivate var kindInWords: String {
    var words =
      switch kind {
      case .receipt: "A receipt"
      case .signedTransaction: "Signed transactions"
      default: "What is kept no more"
      }
    if isRestore { words += ", to restore all of it" }
    if let transactionID { words += ", for transaction \(transactionID)" }
    return words
  }

  fileprivate func outcomeInWords(_ findings: SubmissionFindings?) -> String {
    switch status {
    case .verified:
      let inWhat = environment == .sandbox ? ", in the sandbox." : "."
      return ["Apple vouches for it\(inWhat)", findings?.inWords].compactMap(\.self)
        .joined(separator: " ")
    case .rejected:
      let told = problem?.detail ?? "Apple does not vouch for it."
      guard let problem else { return told }
      let status = problem.appleStatus.map { ", Apple's status \($0)" } ?? ""
      return "\(told) Rejected as \(problem.code)\(status)."
    case .pending:
      return (problem?.detail ?? "Apple was not asked yet.")
        + " Tried \(Count.text(attempts, "time"))"
        + (retryAt.map { "; again \(Moment($0).text)." } ?? ", and given up.")
    }
  }
}

extension SubmissionFindings {
  fileprivate var inWords: String {
    guard claimed > 0 else { return "It claimed nothing." }
    return
      "It claimed \(Count.text(claimed, "transaction")), of which \(newlyOwned) became its own."
  }
}

extension SubmissionWarning {
  /// Of what the sender was warned, as it was when the submission was decided.
  fileprivate func inWords(_ submission: SubmissionSummary) -> String {
    switch self {
    case .transactionNotInReceipt:
      "The transaction that its app named is not in what it sent"
        + (submission.retryAt.map { "; it is looked for again \(Moment($0).text)." } ?? ".")
    case .purchasedLater:
      "It contains a purchase dated after it was received, which it does not claim"
        + (submission.retryAt.map { "; it is checked again \(Moment($0).text)." } ?? ".")
    case .ownedByAnotherAccount: "Another account owned what it claimed."
    case .orderUnknown: "The named order does not exist."
    case .orderAccountMismatch: "The named order, or the purchase, belongs to another account."
    case .orderProductMismatch: "No purchase in the submission is of the named order's product."
    case .orderAlreadyFulfilled: "The named order, or the purchase, was matched before."
    case .unreadableTransaction:
      "The latest transaction can't be read"
        + (submission.retryAt.map { "; it is looked at again \(Moment($0).text)." } ?? ".")
    case .unknownProduct:
      "A product was not in the catalogue: it grants nothing until it is described there."
    case .sandboxNotGranted: "It is of the sandbox, which grants this account nothing."
    case .noTransactions: "The receipt is empty: it lists no purchase."
    case .appAccountTokenOfAnotherAccount:
      "A transaction carries the app account token of another account."
    }
  }
}
