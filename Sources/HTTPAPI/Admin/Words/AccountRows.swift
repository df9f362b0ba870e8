import Foundation
import JSONText
import LedgerStorage
import Subscriptions

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
