import Foundation
import HTTPAPI
import HummingbirdCore
import JSONText
import LedgerStorage
import Subscriptions

/// The history of an account: what Apple reported, what was decided, what was published and what
/// administrators did, in one list by date.
struct AccountHistoryRows: Sendable {
  /// The part of the history that is shown.
  enum Filter: String, CaseIterable, Sendable {
    case all
    case apple
    case decisions
    case events
    case administrators

    private static let parameter = "history"

    /// - Throws: A ``Problem`` for an unknown value.
    init(_ uri: URI) throws {
      let value = EncodedFields(query: uri)[Self.parameter]?.rawValue
      guard let filter = value.map(Self.init(rawValue:)) ?? .all else {
        throw Problem.invalid(
          Self.parameter,
          "must be one of \(Self.allCases.map(\.rawValue).joined(separator: ", "))")
      }
      self = filter
    }

    func href(on path: String) -> String {
      self == .all ? path : AdminURL.page(path, query: [(Self.parameter, rawValue)])
    }

    func links(on path: String) -> [(label: String, href: String, isCurrent: Bool)] {
      Self.allCases.map { ($0.label, "\($0.href(on: path))#history", $0 == self) }
    }

    private var label: String {
      switch self {
      case .all: "All"
      case .apple: "From Apple"
      case .decisions: "Decisions"
      case .events: "Events"
      case .administrators: "Administrators"
      }
    }

    /// What an empty list says.
    var emptyText: String {
      switch self {
      case .all: "No history yet."
      case .apple: "Nothing from Apple about charges this account owns."
      case .decisions: "No decisions about charges of this account."
      case .events: "No events of this account."
      case .administrators: "No administrator actions on this account."
      }
    }

    fileprivate var kinds: Set<LedgerItem.Kind> {
      let evidence: Set<LedgerItem.Kind> = [.transaction, .renewalStatus]
      let decisions = Set(LedgerItem.Kind.allCases).subtracting(evidence).subtracting([.link])
      return switch self {
      case .all: evidence.union(decisions)
      case .apple: evidence
      case .decisions: decisions
      case .events, .administrators: []
      }
    }
  }

  /// The position reached in each of the three lists.
  struct Cursor: Codable, Sendable {
    var item: HistoryPosition?
    var action: Int64?
    var event: TimedCursor<Int64>?
  }

  /// Before they are folded: a renewal alone is six or more.
  static let usualLimit = 200

  /// Latest first, folded.
  let rows: [FactRow]
  /// The position after which the next page begins, or nil on the last one.
  let next: Cursor?

  private enum Item {
    case event(PublishedEvent)
    case action(AdministratorAction)
    case item(ChargeEvent)

    var at: Timestamp {
      switch self {
      case .event(let event): event.occurredAt
      case .action(let action): action.actedAt
      case .item(let event): event.item.recordedAt
      }
    }
  }

  /// - Throws: A ``Problem`` for an unknown cursor.
  init(
    of ties: RelatedAccounts, _ account: Account, _ filter: Filter, part: PagePart,
    in ledger: Ledger
  ) async throws {
    var cursor: Cursor = try part.cursor() ?? Cursor()
    let limit = part.limit + 1
    let found = try await ledger.accounts.history(
      of: ties, kinds: filter.kinds, before: cursor.item, limit: limit)
    let names = try await ledger.ownership.accountIDs(
      of: Set(found.items.flatMap { $0.item.content.accounts }))
    let sources = try await SourceText(of: found.items, in: ledger)
    // Transfers and releases are also ledger entries.
    let actions =
      [.all, .administrators].contains(filter)
      ? try await ledger.administration.administratorActions(
        on: account.key, except: filter == .all ? [.transfer, .release] : [],
        before: cursor.action, limit: limit) : []
    let events =
      [.all, .events].contains(filter)
      ? try await ledger.accounts.latestEvents(
        of: account.key, before: cursor.event.map { ($0.at, $0.id) }, limit: limit) : []
    // An event or action comes before the entries of its moment.
    var all =
      (events.map(Item.event) + actions.map(Item.action)
      + found.items.map {
        .item(ChargeEvent($0.item, source: $0.source) { names[$0] ?? "erased" })
      })
      .latestFirst { $0.at }
    // Older items belong to the next page: the ledger was only read back to this date.
    if let end = found.lookedBackTo { all.removeAll { $0.at < end.recordedAt } }
    let shown = all.prefix(part.limit).map { item in
      switch item {
      case .event(let event):
        cursor.event = TimedCursor(at: event.occurredAt, id: event.id)
        return FactRow(event)
      case .action(let action):
        cursor.action = action.id
        return FactRow(action)
      case .item(let event):
        cursor.item = HistoryPosition(event.item)
        return sources.fact(event)
      }
    }
    if shown.count == all.count, let end = found.lookedBackTo { cursor.item = end }
    next = shown.count < all.count || found.lookedBackTo != nil ? cursor : nil
    let originals = try await ledger.ownership.originals(of: Set(shown.compactMap(\.line)))
    let owners = try await ledger.ownership.accountIDs(
      of: Set(
        originals.values.flatMap { original in
          original.line.decisions.values.flatMap { recorded in
            recorded.losses.map(\.account) + [recorded.decision.owner].compactMap(\.self)
          }
        }))
    let charges = HistoryCharges(of: originals.values, for: account.key) {
      owners[$0] ?? "erased"
    }
    rows = shown.folded(charges).map { row in
      var row = row
      row.lineLink = row.line.map {
        PageLink(label: $0.originalTransactionID.rawValue, href: $0.href)
      }
      return row
    }
  }
}

extension FactRow {
  fileprivate init(_ action: AdministratorAction) {
    self.init(
      at: Moment(action.actedAt), sentence: action.inWords,
      source: EntrySource.Kind.administrator.title, symbol: .administrator,
      sourceID: action.administrator, reason: action.reason, meaning: .owner)
  }
}

extension FactRow {
  init(_ event: PublishedEvent) {
    let data = try? JSONValue(parsing: event.data.utf8)
    let kind = LedgerEvent.Kind(rawValue: event.type)
    func text(_ name: String) -> String? {
      (data?[name] ?? data?["entitlement"]?[name])?.string
    }
    let line = text("original_transaction_id").flatMap { id in
      text("environment").flatMap { Subscriptions.Environment(rawValue: $0) }.map {
        OriginalTransactionKey($0, OriginalTransactionID(id))
      }
    }
    let transactionID = text("transaction_id")
    self.init(
      at: Moment(event.occurredAt), sentence: [(Self.sentence(event.type, data), nil)],
      source: "Event", symbol: .poll, sourceDetail: event.type, sourceID: transactionID,
      sourceHref: transactionID == nil ? nil : line?.href, line: line,
      transactionID: transactionID, meaning: kind?.meaning ?? .status,
      access: kind?.meaning == .access
        ? data?["entitlement"]?["entitlement"]?.string.map { ($0, kind == .entitlementGranted) }
        : nil)
  }

  /// An event as a sentence, from its type and data.
  private static func sentence(_ type: String, _ data: JSONValue?) -> String {
    let entitlement = data?["entitlement"]
    let name = entitlement?["entitlement"]?.string
    let end = (name == nil ? data?["expires_at"] : entitlement?["access_ends_at"])?.string
    // A grant has no product, and its own row has the last day.
    let isGrant = entitlement?["product_id"]?.string == nil && name != nil
    let until =
      end.flatMap(Timestamp.init(rfc3339:)).map {
        isGrant ? ", \($0.lastDayName)" : ", until \($0.dayName)"
      } ?? ""
    let what =
      name.map { "“\($0)”" } ?? data?["product_id"]?.string ?? data?["order_id"]?.string ?? ""
    guard let kind = LedgerEvent.Kind(rawValue: type) else { return "\(type) \(what)" }
    // Only a subscription's charge has an end.
    let isSubscription = data?["product_id"] == nil || data?["expires_at"] != nil
    let renewing = data?["auto_renew_product_id"]?.string ?? what
    let (bound, belong) = isSubscription ? ("Renewals", "belong") : (what, "belongs")
    let words =
      switch kind {
      case .transactionRecorded: "Charge recorded: \(what)\(until)."
      case .ownerDecided: "Owner decided: \(what)."
      case .transactionClaimed: "Charge claimed: \(what)."
      case .ownerCorrected: "Owner corrected: \(what)."
      case .transactionRevoked: "Charge revoked: \(what)."
      case .transactionRestored: "Charge restored: \(what)."
      case .bindingClosed: "\(bound) no longer \(belong) to this account."
      case .bindingOpened: "\(bound) \(belong) to this account."
      case .entitlementGranted: "Access to \(what) began\(until)."
      case .entitlementExtended: "Access to \(what) extended\(until)."
      case .entitlementShortened: "Access to \(what) shortened\(until)."
      case .entitlementExpired: "Access to \(what) ended."
      case .entitlementRevoked: "Access to \(what) was revoked."
      case .renewalStatusChanged:
        switch data?["auto_renewing"]?.bool {
        case true?: "Auto-renew is on: renews as \(renewing)."
        case false?: "Auto-renew was turned off."
        case nil: "Renewal status changed."
        }
      case .inGracePeriod: "Payment failed; access continues in a grace period."
      case .inBillingRetry: "Payment failed; access is suspended while Apple retries."
      case .recovered: "Payment recovered."
      case .productChanged: "Product changed to \(what)."
      case .orderFulfilled: "Order fulfilled: \(what)."
      case .orderRefunded: "Order refunded: \(what)."
      case .orderReopened: "Order reopened: \(what)."
      case .orderExpired: "Order expired: \(what)."
      case .accountErased: "This customer's data was erased."
      }
    return data?["because"]?.string.map { "\(words) \($0.withTimesForPeople)" } ?? words
  }
}

extension Submission {
  /// For example `Receipt (restore, transaction 77)`.
  var kindInWords: String {
    let name =
      switch kind {
      case .receipt: "Receipt"
      case .signedTransaction: "Signed transactions"
      default: "Submission (its data was deleted)"
      }
    let options = [isRestore ? "restore" : nil, transactionID.map { "transaction \($0)" }]
      .compactMap(\.self)
    return options.isEmpty ? name : "\(name) (\(options.joined(separator: ", ")))"
  }

  /// The rest of the sentence that begins with ``kindInWords``.
  func outcomeInWords(_ decided: SubmissionOutcome?) -> String {
    switch status {
    case .verified:
      let inWhat = environment == .sandbox ? " in the sandbox" : ""
      // Usually at once.
      let wait = decidedAt.map { $0 - receivedAt }.flatMap { wait in
        wait < .seconds(60)
          ? nil : " \(Age.text(wait)) later, after \(Count.text(attempts, "attempt"))"
      }
      return ["verified by Apple\(inWhat)\(wait ?? "").", decided?.inWords].compactMap(\.self)
        .joined(separator: " ")
    case .rejected:
      guard let problem else { return "rejected by Apple." }
      let status = problem.appleStatus.map { " (Apple status \($0))" } ?? ""
      return "rejected\(status). \(problem.detail)"
    case .pending:
      return "pending. \(problem?.detail ?? "Apple has not been asked yet.") "
        + Count.text(attempts, "attempt")
        + (retryAt.map { "; next attempt \(Moment($0).text)." } ?? "; not retried automatically.")
    }
  }
}

extension SubmissionOutcome {
  fileprivate var inWords: String {
    guard !selected.isEmpty else { return "Claimed nothing." }
    let claimed = "Claimed \(Count.text(selected.count, "transaction"))"
    return newlyOwned.isEmpty
      ? "\(claimed); no owner changed."
      : "\(claimed); the account gained \(Count.text(newlyOwned.count, "charge"))."
  }
}

extension SubmissionWarning {
  /// The warning as it was when the submission was decided.
  func inWords(_ submission: Submission) -> String {
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
