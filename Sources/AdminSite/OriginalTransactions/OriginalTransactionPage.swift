import Foundation
import HTTPAPI
import Hummingbird
import HummingbirdCore
import JSONText
import LedgerStorage
import Subscriptions

struct OriginalTransactionPageController: Controller {
  let api: API

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let id = OriginalTransactionID(try context.parameter(.originalTransactionID))
    let query = EncodedFields(query: request.uri)
    let environments = try await ledger.ownership.environments(of: id)
    let wanted = query["environment"].flatMap {
      Subscriptions.Environment(exactly: $0.rawValue)
    }
    // Production is shown by default; the page links the sandbox one.
    guard let environment = environments.first(where: { $0 == wanted ?? $0 }),
      let original = try await ledger.ownership.original(
        of: OriginalTransactionKey(environment, id))
    else {
      throw Problem(
        .unknownOriginalTransaction, "No original transaction with ID \(id).")
    }
    let line = OriginalTransactionKey(environment, id)
    let facts = try await OriginalTransactionFacts(of: original, in: ledger)
    let (catalogue, now) = (catalogue, now())
    let state = state(of: line, in: original, facts: facts, catalogue: catalogue, at: now)
    var frame = try await pages.frame(state.title, context)
    frame.searchText = id.rawValue
    frame.badges = state.badges
    let owners = TimelineOwners(of: original)
    let others = environments.filter { $0 != environment }.map { other in
      Property("Also in", other.rawValue, href: OriginalTransactionKey(other, id).href)
    }
    // Latest first.
    let reports = original.rule.charges.reversed().compactMap {
      ChargeReport(of: $0.id, in: original, catalogue: catalogue)
    }
    let shown = reports.count > Self.chargesShown + 1 ? Self.chargesShown : reports.count
    if let latest = original.rule.charges.latestCharge, latest.isSubscription,
      let report = reports.first(where: { $0.charge.id == latest.id }),
      report.ownerAccountID == nil || state.isLive
    {
      frame.actions = [
        PageLink(
          label: report.transferTitle(isLatest: true) + "…", href: latest.id.href(form: "transfer"))
      ]
    }
    let cards = reports.map { report in
      card(report, in: original, facts: facts, owners: owners, catalogue: catalogue, at: now)
    }
    return PageRenderer.response(
      (
        page: frame, verdict: state.verdict,
        verdictTone: state.tone, properties: state.properties + others,
        // Other original transactions that Apple links with this one.
        linked: original.line.heads.keys.filter { $0 != line }.sorted().map {
          PageLink(label: $0.originalTransactionID.rawValue, href: $0.href)
        },
        timeline: TimelinePicture(
          TimelineLayout(
            TimelineChart(of: line, in: original, facts: facts, catalogue: catalogue, at: now))),
        charges: Array(cards.prefix(shown)), earlierCharges: Array(cards.dropFirst(shown)),
        earlierTitle: Self.title(of: reports.dropFirst(shown).map(\.charge)),
        facts: facts.rows.folded(HistoryCharges(of: [original], name: facts.name))
      ), "original-transaction")
  }

  /// Charges shown at once; more are folded.
  private static let chargesShown = 4

  /// Of folded charges, latest first; nil without any.
  private static func title(of earlier: [Charge]) -> String? {
    let refunded = earlier.count { $0.revocation?.isRefund ?? false }
    return earlier.last.map { first in
      "\(Count.text(earlier.count, "earlier charge")) since \(first.date.dayName)"
        + (refunded > 0 ? ", \(refunded) refunded" : "")
    }
  }

  /// A charge, with the decision on it.
  private func card(
    _ report: ChargeReport, in original: RecordedOriginalTransaction,
    facts: OriginalTransactionFacts, owners: TimelineOwners, catalogue: Catalogue, at now: Timestamp
  ) -> some Sendable {
    let (charge, recorded, end) = (report.charge, report.recorded, report.end(in: catalogue))
    let owner = owners.number(recorded.decision.owner)
    let isLatest = LocatedCharge(report: report, original: original).isLatestOfSubscription
    let ownerOverride = facts.ownerOverride(of: charge, by: recorded.decision)
    return (
      anchor: charge.id.anchor, transactionID: charge.id.transactionID.rawValue,
      productID: charge.productID.rawValue,
      badges: Badge.states(of: report, end: end, at: now)
        + Badge.peculiarities(of: report.transaction)
        + [ownerOverride?.badge].compactMap(\.self),
      chargedAt: Moment(charge.date), until: end.map(Moment.init),
      price: Price.text(of: report), ownerClass: TimelineOwner.ownerClass(owner),
      letter: TimelineOwner.letter(owner), because: report.reason(on: nil),
      decidedAt: Moment(recorded.decidedAt),
      correctedAt: recorded.correctedAt.flatMap {
        $0 < recorded.decidedAt ? nil : Moment($0)
      },
      summary: DecisionEvidence(on: report, in: original).sentences.withTimesForPeople,
      properties: evidence(of: report, ownerOverride?.action, facts: facts),
      history: facts.rows(about: charge, statusDates: recorded.decision.renewal.statusDates),
      aliases: charge.aliases.map(\.transactionID.rawValue),
      transferHref: charge.id.href(form: "transfer"),
      transferLabel: report.transferTitle(isLatest: isLatest) + "…",
      releaseHref: recorded.decision.owner == nil ? nil : charge.id.href(form: "release")
    )
  }

  private func evidence(
    of report: ChargeReport, _ action: AdministratorAction?, facts: OriginalTransactionFacts
  ) -> [Property] {
    let decision = report.recorded.decision
    let renewal = decision.renewal
    let properties: [Property?] = [
      Property(
        "Reason",
        EnumText.sentence(renewal.reason.rawValue).replacing("apple", with: "Apple")),
      action.map { action in
        Property(
          decision.rule == .administrator ? "Assigned by" : "Released by", action.administrator,
          note: action.reason)
      },
      renewal.previous.map {
        Property("Previous charge", $0.transactionID.rawValue, href: "#\($0.anchor)", isCode: true)
      },
      renewal.account.map(facts.name).map {
        Property("Auto-renewing account", $0, href: AdminURL.account($0), isCode: true)
      },
      renewal.statusAsOf.map { Property("Renewal status as of", $0) },
      renewal.switchedOffAt.map { Property("Auto-renew off since", $0) },
      report.orderID.map { Property("Order", $0.text, isCode: true) },
      report.deliveredAt.map { Property("Delivered", $0) },
      decision.isProvisional
        ? Property("Provisional", "The first submission can change the owner.") : nil,
    ]
    return properties.compactMap(\.self)
  }

  private func state(
    of line: OriginalTransactionKey, in original: RecordedOriginalTransaction,
    facts: OriginalTransactionFacts, catalogue: Catalogue, at now: Timestamp
  ) -> (
    title: String, badges: [Badge], verdict: [TextPiece], tone: String, properties: [Property],
    isLive: Bool
  ) {
    let bindings = Binding.bindings(of: original.rule.charges, decisions: original.rule.decisions)
    let key = bindings.account(asOf: now)
    let account = key.map(facts.name)
    let current = original.current(in: catalogue, at: now)
    let summary = OriginalTransactionState(line: original.line, rule: original.rule)
    let latest = original.rule.charges.latestCharge
    let isSubscription = latest?.isSubscription ?? false
    let isLive =
      isSubscription && [.active, .inGracePeriod, .inBillingRetry].contains(current?.state)
    let isOn = isLive && summary.autoRenews != false
    let isErased = key.map { original.line.history.erasures[$0] != nil } ?? false
    let owner: String =
      switch (account, isOn) {
      case (_?, true) where isErased: "Renewals will be unclaimed: the owner was erased"
      case (_?, true): "Renewals belong to "
      case (nil, true): "Renewals belong to no account"
      case (_?, false): "\(isSubscription ? "The subscription" : "It") belongs to "
      case (nil, false): "No account owns \(isSubscription ? "the subscription" : "it")"
      }
    let isNamed = account != nil && !(isOn && isErased)
    let product = current?.productID ?? summary.latest?.productID
    let end = latest.flatMap {
      ChargeReport(of: $0.id, in: original, catalogue: catalogue)?.end(in: catalogue)
    }
    let badge = current.map { Badge($0) } ?? latest.map { Badge($0, end: end, at: now) }
    let state = account == nil && badge?.tone == Tone.good ? nil : badge
    let next = summary.autoRenewProductID
    let properties: [Property?] = [
      product.map { Property("Product", $0.rawValue, href: AdminURL.product($0.rawValue)) },
      isOn && next != product
        ? next.map { Property("Renews as", $0.rawValue, href: AdminURL.product($0.rawValue)) }
        : nil,
      // What the verdict of a known product says.
      current == nil ? summary.paidThrough.map { Property("Paid through", $0) } : nil,
      current == nil ? summary.autoRenews.map { Property("Auto-renew", $0 ? "on" : "off") } : nil,
      summary.statusAsOf.map { Property("Last renewal status from Apple", $0) },
    ]
    let names = [product?.rawValue, account ?? "unclaimed", line.originalTransactionID.rawValue]
    return (
      names.compactMap(\.self).joined(separator: " · "),
      [state, account == nil ? .unclaimed : nil, line.environment == .sandbox ? .sandbox : nil]
        .compactMap(\.self),
      [("\(current.map(original.inWords) ?? "No active entitlement.") \(owner)", nil)]
        + (isNamed ? account.map { [($0, AdminURL.account($0))] } ?? [] : []) + [(".", nil)],
      account == nil && (isLive || current == nil)
        ? Tone.warning : current.map { Badge($0).tone } ?? Tone.quiet,
      properties.compactMap(\.self), isLive
    )
  }
}

/// All ledger entries of linked original transactions with their sources, and latest write-backs.
struct OriginalTransactionFacts: Sendable {
  private static let mostWriteBacks = 10

  /// In order of recording.
  let events: [ChargeEvent]
  let names: [AccountKey: String]
  let sources: SourceText
  /// Latest first.
  private let writeBacks: [WriteBack]

  init(of original: RecordedOriginalTransaction, in ledger: Ledger) async throws {
    writeBacks = try await ledger.writeBacks.writeBacks(
      of: original.line.heads.keys.sorted(), limit: Self.mostWriteBacks)
    (events, names) = try await ledger.ownership.events(
      of: original, naming: writeBacks.compactMap(\.account))
    sources = try await SourceText(of: events.map { ($0.item, $0.source) }, in: ledger)
  }

  func name(_ account: AccountKey) -> String { names[account] ?? "erased" }

  /// Entries and write-backs, latest first, with anchors.
  var rows: [FactRow] {
    (events.reversed().map {
      (
        at: $0.item.recordedAt,
        row: sources.fact($0, anchor: Self.anchor($0.item))
      )
    } + writeBacks.map { (at: $0.sentAt, row: FactRow($0, name: name)) })
    .latestFirst { $0.at }.map { $0.row }
  }

  /// The entries about a charge, oldest first.
  func rows(about charge: Charge, statusDates: Set<Timestamp>) -> [FactRow] {
    events.filter { $0.item.content.concerns(charge, statusDates: statusDates) }
      .map { sources.fact($0) }
  }

  /// One message per source: a submission or notification can cause many entries.
  var messages: [TimelineLayout.Mark] {
    var seen: Set<EntrySource> = []
    return events.filter { event in
      event.source.id == nil || seen.insert(event.source).inserted
    }.map { event in
      TimelineLayout.Mark(
        source: event.source.kind.symbol, at: event.item.recordedAt,
        text: "\(sources.text(of: event.source)), recorded \(Moment(event.item.recordedAt).text)",
        href: "#\(Self.anchor(event.item))")
    }
  }

  /// The override that decides a charge's owner; nil for the rule.
  func ownerOverride(of charge: Charge, by decision: Decision) -> ChargeOverride? {
    guard decision.isByAdministrator else { return nil }
    return ChargeOverride(
      of: charge.id, latestFirst: events.reversed().lazy.map { ($0.item, $0.source) },
      sources.actions)
  }

  private static func anchor(_ entry: LedgerItem) -> String {
    "fact-\(entry.line.originalTransactionID.rawValue.anchorName)-\(entry.number)"
  }
}
