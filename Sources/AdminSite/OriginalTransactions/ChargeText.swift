import Foundation
import HTTPAPI
import LedgerStorage
import Subscriptions

extension Badge {
  /// How a charge stands at a moment.
  ///
  /// - Parameters:
  ///   - charge: The charge.
  ///   - end: The end of what was paid for; nil: never, or nothing that lasts.
  ///   - now: The moment.
  init(_ charge: Charge, end: Timestamp?, at now: Timestamp) {
    if let revocation = charge.revocation, revocation.at <= now {
      self.init(text: "refunded", tone: Tone.bad)
    } else if let supersededAt = charge.supersededAt, supersededAt <= now {
      self.init(text: "replaced", tone: Tone.quiet)
    } else if let end, end <= now {
      self.init(text: "over", tone: Tone.quiet)
    } else if end != nil {
      self.init(text: charge.date <= now ? "running" : "ahead", tone: Tone.good)
    } else {
      self.init(text: "bought", tone: Tone.good)
    }
  }

  /// What is out of the ordinary about a purchase.
  static func peculiarities(of transaction: StoreTransaction) -> [Badge] {
    var badges: [Badge] = []
    switch transaction.periodType {
    case .normal: break
    case .trial: badges.append(Badge(text: "trial", tone: Tone.info))
    case .intro: badges.append(Badge(text: "introductory price", tone: Tone.info))
    case .offer: badges.append(Badge(text: "offer", tone: Tone.info))
    }
    if transaction.ownershipType == .familyShared {
      badges.append(Badge(text: "family shared", tone: Tone.info))
    }
    return badges
  }

  init(_ state: Entitlement.State) {
    switch state {
    case .active: self.init(text: "active", tone: Tone.good)
    case .inGracePeriod: self.init(text: "in grace period", tone: Tone.warning)
    case .inBillingRetry: self.init(text: "in billing retry", tone: Tone.warning)
    case .revoked: self.init(text: "revoked", tone: Tone.bad)
    case .expired: self.init(text: "expired", tone: Tone.quiet)
    }
  }

  init(_ status: PurchaseOrder.Status) {
    switch status {
    case .open: self.init(text: "open", tone: Tone.info)
    case .fulfilled: self.init(text: "fulfilled", tone: Tone.good)
    case .refunded: self.init(text: "refunded", tone: Tone.bad)
    case .expired: self.init(text: "expired", tone: Tone.quiet)
    }
  }

  init(_ submission: SubmissionSummary) {
    switch submission.status {
    case .verified: self.init(text: "verified", tone: Tone.good)
    case .rejected: self.init(text: "rejected", tone: Tone.bad)
    case .pending where submission.retryAt == nil: self.init(text: "given up", tone: Tone.bad)
    case .pending: self.init(text: "pending", tone: Tone.warning)
    }
  }
}

/// Amounts of money in words.
enum Price {
  /// What was paid, as far as Apple says.
  static func text(of transaction: StoreTransaction) -> String {
    guard let currency = transaction.currency, let amount = transaction.priceMilliunits else {
      return "no price told"
    }
    let text = ChartUnit.money(currency: currency).text(amount)
    return transaction.quantity > 1 ? "\(text), quantity \(transaction.quantity)" : text
  }

  static func text(_ milliunits: Int64, currency: String?) -> String {
    currency.map { ChartUnit.money(currency: $0).text(milliunits) } ?? "no price known"
  }
}

extension ChargeReport {
  /// What a form says of the charge that it is about.
  var facts: [Property] {
    [
      Property(
        label: "Transaction", value: charge.id.transactionID.rawValue, href: charge.id.href,
        isCode: true),
      Property(label: "Product", value: charge.productID.rawValue, isCode: true),
      Property(label: "Charged", value: Moment(charge.date).text),
      Property(label: "Price", value: Price.text(of: transaction)),
      Property(
        label: "Owner", value: ownerAccountID ?? "nobody",
        href: ownerAccountID.map { PageAddress.account($0) }),
      Property(label: "Because", value: because),
    ]
  }
}

extension Charge.ID {
  /// The name of the charge in the page of its original transaction: letters, digits and hyphens.
  var anchor: String {
    "charge-\(Self.name(transactionID.rawValue))-\(Self.name(productID.rawValue))"
  }

  /// The charge in the page of its original transaction.
  var href: String {
    PageAddress.originalTransaction(
      line.originalTransactionID.rawValue, environment: line.environment.rawValue, charge: anchor)
  }

  /// The form that gives the charge to another account.
  var transferHref: String {
    PageAddress.transfer(
      of: transactionID.rawValue, productID: productID.rawValue,
      environment: line.environment.rawValue)
  }

  /// The form that takes the charge away from whoever has it.
  var releaseHref: String {
    PageAddress.release(
      of: transactionID.rawValue, productID: productID.rawValue,
      environment: line.environment.rawValue)
  }

  private static func name(_ text: String) -> String {
    String(
      decoding: text.utf8.map { byte in
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
          UInt8(ascii: "0")...UInt8(ascii: "9"):
          byte
        default: UInt8(ascii: "-")
        }
      }, as: UTF8.self)
  }
}

extension LineID {
  /// The page of the original transaction.
  var href: String {
    PageAddress.originalTransaction(
      originalTransactionID.rawValue, environment: environment.rawValue)
  }
}

/// What brought entries of the ledger, in words.
struct SourceWords: Sendable {
  private let notifications: [ExactText: NotificationSummary]
  private let submitters: [UUID: String]
  private let acts: PlacingActs

  /// Reads what there is to say of the sources of some entries.
  init(of entries: [HistoryEntry], in ledger: Ledger) async throws {
    let sources = Set(entries.map(\.source))
    acts = try await PlacingActs(of: entries, in: ledger)
    notifications = try await ledger.notificationSummaries(
      sources.filter { $0.kind == .notification }.compactMap(\.id))
    submitters = try await ledger.submitters(
      of: sources.filter { $0.kind == .receipt || $0.kind == .signedTransaction }
        .compactMap { $0.id.flatMap(UUID.init(uuidString:)) })
  }

  /// Says what an entry says, and what brought it.
  ///
  /// - Parameters:
  ///   - event: The entry in words.
  ///   - anchor: In the page; nil: nothing leads here.
  /// - Returns: It as a row.
  func fact(_ event: ChargeEvent, anchor: String? = nil) -> FactRow {
    let (entry, source) = (event.entry, event.source)
    let moment = entry.content.evidenceDate ?? entry.recordedAt
    let submitter = submitter(of: source)
    return FactRow(
      anchor: anchor, at: Moment(moment), sentence: event.sentence, source: source.kind.title,
      sourceClass: source.kind.symbol.rawValue, sourceDetail: detail(of: source),
      sourceID: submitter ?? source.id,
      sourceHref: submitter.map { PageAddress.account($0) }, reason: act(behind: event)?.reason,
      recordedAt: entry.recordedAt == moment ? nil : Moment(entry.recordedAt))
  }

  /// The administrator's act that brought an entry; nil: none did.
  func act(behind event: ChargeEvent) -> AdministratorAct? {
    acts.act(behind: (event.entry, event.source))
  }

  /// All about a source, for those who point at its mark.
  func text(of source: EntrySource) -> String {
    [source.kind.title, detail(of: source), submitter(of: source).map { "from \($0)" }]
      .compactMap(\.self).joined(separator: " ")
  }

  private func submitter(of source: EntrySource) -> String? {
    source.id.flatMap(UUID.init(uuidString:)).flatMap { submitters[$0] }
  }

  private func detail(of source: EntrySource) -> String? {
    switch source.kind {
    case .notification:
      source.id.flatMap { notifications[ExactText($0)] }.map {
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

  /// Its mark in a timeline.
  var symbol: TimelineSketch.Symbol {
    switch self {
    case .receipt, .signedTransaction: .submission
    case .notification: .notification
    case .poll: .poll
    case .administrator, .import: .administrator
    }
  }
}

extension FactRow {
  /// What Apple was told, in words.
  ///
  /// - Parameters:
  ///   - telling: What was told.
  ///   - name: The name behind an account's key.
  init(_ telling: AppleTelling, name: (AccountKey) -> String) {
    self.init(
      anchor: nil, at: Moment(telling.toldAt), sentence: telling.sentence(name), source: "To Apple",
      sourceClass: TimelineSketch.Symbol.poll.rawValue, sourceDetail: telling.outcome.name,
      sourceID: telling.request?.transactionID.rawValue, sourceHref: nil, recordedAt: nil)
  }
}

extension AppleTelling {
  fileprivate func sentence(_ name: (AccountKey) -> String) -> String {
    let content =
      switch kind {
      case .ownership: account.map { "that it belongs to \(name($0))" } ?? "to whom it belongs"
      case .consumption:
        deliveryStatus.map { "that the purchase was \($0)" } ?? "what became of the purchase"
      }
    switch outcome {
    case .accepted: return "Apple was told \(content)."
    case .refused(let status, let code):
      let number = code ?? status.map(Int64.init)
      return "Apple refuses to be told \(content)" + (number.map { ", with \($0)" } ?? "") + "."
    case .skipped(let reason): return "Apple was not told \(content): \(reason.words)."
    }
  }
}

extension AppleTelling.Reason {
  fileprivate var words: String {
    switch self {
    case .turnedOff: "the setting was turned off"
    case .unowned: "nobody owns it"
    case .accountErased: "the account was erased"
    case .accountMerged: "the account was merged into another"
    case .familyShared: "it is shared in a family"
    case .consumable: "it is a consumable"
    case .unknownApp: "its app is not known, or not served"
    case .noConsent: "the customer has not agreed"
    case .tooLate: "Apple no longer waited for it"
    }
  }
}

/// Who placed or released charges, and why: entries of the ledger have the name alone.
struct PlacingActs: Sendable {
  /// The last one first.
  private let acts: [AdministratorAct]

  /// Reads the acts that brought entries; those that no administrator's act brought are overlooked.
  init(of entries: [HistoryEntry], in ledger: Ledger) async throws {
    let placing = entries.filter { $0.source.kind == .administrator }.map(\.entry.content)
    acts = try await ledger.placingActs(
      of: Set(placing.compactMap(\.charge)), concerning: Set(placing.flatMap(\.accounts)))
  }

  /// The act that brought an entry; nil: none did.
  func act(behind entry: HistoryEntry) -> AdministratorAct? {
    acts.first { $0.brought(entry.entry, from: entry.source) }
  }
}

extension LedgerEntry.Content {
  /// What is placed or decided; nil for evidence.
  fileprivate var charge: TransactionKey? {
    switch self {
    case .act(let act): act.transaction
    case .ownership(let change): change.charge
    case .evidence, .confirmation: nil
    }
  }

  /// Whether a charge was placed or released by this.
  func places(_ charge: Charge.ID) -> Bool {
    if case .ownership(let change) = self {
      change.action == .placed && change.charge == charge
    } else {
      false
    }
  }
}

extension Decision {
  /// Whether it rests on what an administrator did with the charge.
  var isByAdministrator: Bool { rule == .administrator || finding.ground == .released }
}
