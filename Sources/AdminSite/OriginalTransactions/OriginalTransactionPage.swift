import Foundation
import HTTPAPI
import Hummingbird
import HummingbirdCore
import LedgerStorage
import Subscriptions

struct OriginalTransactionPageController: Sendable {
  let pages: PageRenderer
  let ledger: Ledger
  let catalogue: CatalogueCache

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let id = OriginalTransactionID(try context.parameter(.originalTransactionID))
    let query = FormFields(query: request.uri)
    let environments = try await ledger.ownership.environments(of: id)
    let wanted = query["environment"].flatMap {
      Subscriptions.Environment(exactly: $0.rawValue)
    }
    // Production is shown by default; the page links the sandbox one.
    guard let environment = environments.first(where: { $0 == wanted ?? $0 }),
      let family = try await ledger.ownership.family(of: OriginalTransactionKey(environment, id))
    else {
      throw Problem(
        .unknownOriginalTransaction, "No original transaction with ID \(id).")
    }
    let line = OriginalTransactionKey(environment, id)
    let facts = try await OriginalTransactionFacts(of: family, in: ledger)
    let (catalogue, now) = (catalogue.catalogue, pages.now())
    var frame = try await pages.frame(id.rawValue, context)
    frame.searchText = id.rawValue
    let state = LineState(of: line, in: family, facts: facts, catalogue: catalogue, at: now)
    let others = environments.filter { $0 != environment }.map { OriginalTransactionKey($0, id) }
    return pages.response(
      OriginalTransactionPage(
        page: frame, isSandbox: environment == .sandbox, verdict: state.verdict,
        verdictTone: state.tone,
        properties: state.properties
          + others.map {
            Property(label: "Also in", value: $0.environment.rawValue, href: $0.href)
          },
        linked: family.line.heads.keys.filter { $0 != line }.sorted().map {
          PageLink(label: $0.originalTransactionID.rawValue, href: $0.href)
        },
        timeline: TimelinePicture(
          TimelineLayout(
            TimelineChart(of: line, in: family, facts: facts, catalogue: catalogue, at: now))),
        charges: Self.cards(of: family, facts: facts, catalogue: catalogue, at: now),
        facts: facts.rows),
      .originalTransaction)
  }

  private static func cards(
    of family: RecordedOriginalTransaction, facts: OriginalTransactionFacts, catalogue: Catalogue,
    at now: Timestamp
  ) -> [ChargeCard] {
    let owners = TimelineOwners(of: family.rule)
    return family.rule.charges.reversed().compactMap { charge in
      ChargeReport(of: charge.id, in: family, catalogue: catalogue).map { report in
        ChargeCard(
          report, in: family, facts: facts, owner: owners.number(report.recorded.decision.owner),
          end: report.end(in: catalogue), at: now)
      }
    }
  }
}

extension ChargeCard {
  fileprivate init(
    _ report: ChargeReport, in family: RecordedOriginalTransaction, facts: OriginalTransactionFacts,
    owner: Int,
    end: Timestamp?, at now: Timestamp
  ) {
    let (charge, recorded) = (report.charge, report.recorded)
    self.init(
      anchor: charge.id.anchor, transactionID: charge.id.transactionID.rawValue,
      productID: charge.productID.rawValue,
      badges: [Badge(charge, end: end, at: now)] + Badge.peculiarities(of: report.transaction),
      chargedAt: Moment(charge.date), until: end.map(Moment.init),
      price: Price.text(of: report.transaction), ownerClass: TimelineOwner.ownerClass(owner),
      letter: TimelineOwner.letter(owner), owner: report.ownerAccountID,
      ownerHref: report.ownerAccountID.map { AdminURL.account($0) },
      rule: recorded.decision.rule.rawValue, because: report.because,
      decidedAt: Moment(recorded.decidedAt), correctedAt: recorded.correctedAt.map(Moment.init),
      evidence: Self.evidence(of: report, in: family, facts: facts),
      history: facts.rows(about: charge, statusDates: recorded.decision.finding.statusDates),
      aliases: charge.aliases.map(\.transactionID.rawValue), transferHref: charge.id.transferHref,
      releaseHref: charge.id.releaseHref)
  }

  private static func evidence(
    of report: ChargeReport, in family: RecordedOriginalTransaction, facts: OriginalTransactionFacts
  ) -> [Property] {
    let finding = report.recorded.decision.finding
    let evidence = DecisionEvidence(on: report, in: family)
    var properties = [
      Property(label: "Summary", value: evidence.sentences),
      Property(label: "Kind", value: report.charge.kind.rawValue),
      Property(label: "Reason", value: finding.ground.rawValue, isCode: true),
    ]
    let decision = report.recorded.decision
    if let act = facts.placement(of: report.charge, by: decision) {
      properties.append(
        Property(
          label: decision.rule == .administrator ? "Assigned by" : "Released by",
          value: act.administrator, note: act.reason))
    }
    if let previous = finding.previous {
      properties.append(
        Property(
          label: "Previous charge", value: previous.transactionID.rawValue,
          href: "#\(previous.anchor)", isCode: true))
    }
    if let account = finding.account {
      properties.append(
        Property(
          label: "Auto-renewing account", value: facts.name(account),
          href: AdminURL.account(facts.name(account)), isCode: true))
    }
    if let statusAsOf = finding.statusAsOf {
      properties.append(Property(label: "Renewal status as of", value: Moment(statusAsOf).text))
    }
    if let switchedOffAt = finding.switchedOffAt {
      properties.append(Property(label: "Auto-renew off since", value: Moment(switchedOffAt).text))
    }
    if let order = report.orderID {
      properties.append(
        Property(label: "Order", value: order.uuidString.lowercased(), isCode: true))
    }
    if let deliveredAt = report.deliveredAt {
      properties.append(Property(label: "Delivered", value: Moment(deliveredAt).text))
    }
    if report.recorded.decision.isProvisional {
      properties.append(
        Property(label: "Provisional", value: "The first submission can change the owner."))
    }
    return properties
  }
}

/// The context of the template `original-transaction`, whose title is the id.
struct OriginalTransactionPage: Sendable {
  var page: PageFrame
  var isSandbox: Bool
  /// The current state, in a sentence or two.
  var verdict: String
  /// One of ``Tone``.
  var verdictTone: String
  var properties: [Property]
  /// Other original transactions that Apple links with this one.
  var linked: [PageLink]
  var timeline: TimelinePicture
  /// Latest first, as `facts`.
  var charges: [ChargeCard]
  var facts: [FactRow]
}

/// A charge, with the decision on it.
struct ChargeCard: Sendable {
  /// The HTML id, used by links of the timeline.
  var anchor: String
  var transactionID: String
  var productID: String
  var badges: [Badge]
  var chargedAt: Moment
  var until: Moment?
  var price: String
  /// The owner's CSS class, `owner-0` (unclaimed) to `owner-6`.
  var ownerClass: String
  /// The owner's letter in the timeline.
  var letter: String
  /// The owner's account id, or nil if unclaimed.
  var owner: String?
  var ownerHref: String?
  /// The API's name of the rule.
  var rule: String
  var because: String
  var decidedAt: Moment
  var correctedAt: Moment?
  var evidence: [Property]
  /// Oldest first.
  var history: [FactRow]
  var aliases: [String]
  var transferHref: String
  var releaseHref: String
}

/// A ledger entry, event or administrator action, with its source.
struct FactRow: Sendable {
  /// The HTML id, used by links of the timeline.
  var anchor: String?
  /// The date reported by Apple, or of the action.
  var at: Moment
  var sentence: String
  /// The original transaction, unless the page is about it.
  var subject: PageLink?
  /// For example `Notification`, `Submission`, `Poll` or `Administrator`.
  var source: String
  /// The CSS class of the mark, such as `mark-notification`.
  var sourceClass: String
  /// For example `DID_RENEW`.
  var sourceDetail: String?
  /// The id of the notification or submission.
  var sourceID: String?
  var sourceHref: String?
  /// The administrator's reason.
  var reason: String?
  /// The time of recording, if it differs from `at`.
  var recordedAt: Moment?
}

/// The verdict and properties of an original transaction.
struct LineState: Sendable {
  let verdict: String
  let tone: String
  let properties: [Property]

  init(
    of line: OriginalTransactionKey, in family: RecordedOriginalTransaction,
    facts: OriginalTransactionFacts, catalogue: Catalogue,
    at now: Timestamp
  ) {
    let bindings = Binding.bindings(of: family.rule.charges, decisions: family.rule.decisions)
    let account = bindings.account(asOf: now)
    let current = family.current(in: catalogue, at: now)
    let summary = OriginalTransactionState(line: family.line, rule: family.rule)
    let owner =
      account.map { "Renewals belong to \(facts.name($0))." } ?? "Not bound to an account."
    if let current {
      verdict = "\(current.inWords) \(owner)"
      tone = Badge(current.state).tone
    } else {
      verdict = "No active entitlement. \(owner)"
      tone = account == nil ? Tone.warning : Tone.quiet
    }
    var properties = [
      Property(
        label: "Renewals go to", value: account.map(facts.name) ?? "no account",
        href: account.map { AdminURL.account(facts.name($0)) }, isCode: account != nil),
      Property(label: "Environment", value: line.environment.rawValue),
      Property(label: "Charges", value: ChartUnit.count.text(Int64(family.rule.charges.count))),
    ]
    if let product = current?.productID ?? summary.latest?.productID {
      properties.append(Property(label: "Product", value: product.rawValue, isCode: true))
    }
    if let paidThrough = summary.paidThrough {
      properties.append(Property(label: "Paid through", value: Moment(paidThrough).text))
    }
    if let autoRenews = summary.autoRenews {
      properties.append(
        Property(
          label: "Auto-renew", value: autoRenews ? "on" : "off",
          note: summary.autoRenewProductID.map { "to \($0)" }))
    }
    if let statusAsOf = summary.statusAsOf {
      properties.append(
        Property(label: "Last renewal status from Apple", value: Moment(statusAsOf).text))
    }
    self.properties = properties
  }
}

/// All ledger entries of an original transaction and those linked with it, with their sources, and
/// the latest write-backs.
struct OriginalTransactionFacts: Sendable {
  private static let mostWriteBacks = 10

  /// In order of recording.
  let events: [ChargeEvent]
  let names: [AccountKey: String]
  let sources: SourceText
  /// Latest first.
  private let tellings: [WriteBack]

  init(of family: RecordedOriginalTransaction, in ledger: Ledger) async throws {
    var entries: [HistoryEntry] = []
    for line in family.line.heads.keys.sorted() {
      entries += try await ledger.ownership.history(of: line)
    }
    entries.sort {
      ($0.entry.recordedAt, $0.entry.line, $0.entry.number)
        < ($1.entry.recordedAt, $1.entry.line, $1.entry.number)
    }
    tellings = try await ledger.writeBacks.appleTellings(
      of: family.line.heads.keys.sorted(), limit: Self.mostWriteBacks)
    let unnamed = Set(
      entries.flatMap { $0.entry.content.accounts } + tellings.compactMap(\.account)
    ).subtracting(family.names.keys)
    let names = family.names.merging(try await ledger.ownership.accountIDs(of: unnamed)) {
      first, _ in first
    }
    events = entries.map { ChargeEvent($0.entry, source: $0.source) { names[$0] ?? "erased" } }
    self.names = names
    sources = try await SourceText(of: entries, in: ledger)
  }

  func name(_ account: AccountKey) -> String { names[account] ?? "erased" }

  /// Entries and write-backs, latest first, with anchors.
  var rows: [FactRow] {
    var rows: [FactRow] = []
    var told = tellings[...]
    for event in events.reversed() {
      while let writeBack = told.first, writeBack.toldAt > event.entry.recordedAt {
        rows.append(FactRow(writeBack, name: name))
        told.removeFirst()
      }
      rows.append(sources.fact(event, anchor: Self.anchor(event.entry)))
    }
    return rows + told.map { FactRow($0, name: name) }
  }

  /// The entries about a charge, oldest first.
  func rows(about charge: Charge, statusDates: Set<Timestamp>) -> [FactRow] {
    events.filter { $0.entry.content.concerns(charge, statusDates: statusDates) }
      .map { sources.fact($0) }
  }

  /// One message per source: a submission or notification can cause many entries.
  var messages: [TimelineChart.Message] {
    var seen: Set<EntrySource> = []
    return events.filter { event in
      event.source.id == nil || seen.insert(event.source).inserted
    }.map { event in
      TimelineChart.Message(
        source: event.source.kind.symbol, at: event.entry.recordedAt,
        text: "\(sources.text(of: event.source)), recorded \(Moment(event.entry.recordedAt).text)",
        href: "#\(Self.anchor(event.entry))")
    }
  }

  /// The administrator action that assigned or released a charge, if it still applies.
  func placement(of charge: Charge, by decision: Decision) -> AdministratorAction? {
    guard decision.isByAdministrator else { return nil }
    return events.last { $0.entry.content.places(charge.id) }.flatMap(sources.act(behind:))
  }

  private static func anchor(_ entry: LedgerEntry) -> String {
    "fact-\(entry.line.originalTransactionID.rawValue.anchorName)-\(entry.number)"
  }
}
