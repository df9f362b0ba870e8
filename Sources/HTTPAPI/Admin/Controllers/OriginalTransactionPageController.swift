import Foundation
import Hummingbird
import HummingbirdCore
import LedgerStorage
import Subscriptions

/// The life of an original transaction, as a page.
struct OriginalTransactionPageController: Sendable {
  let pages: PageMaker
  let ledger: Ledger
  let catalogue: CatalogueCache

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let id = OriginalTransactionID(try context.parameter(.originalTransactionID))
    let query = FormFields(query: request.uri)
    let environments = try await ledger.environments(of: id)
    let wanted = query["environment"].flatMap {
      Subscriptions.Environment(exactly: $0.rawValue)
    }
    // Production first, where both have it; the page links the other.
    guard let environment = environments.first(where: { $0 == wanted ?? $0 }),
      let family = try await ledger.family(of: LineID(environment, id))
    else {
      throw Problem(
        .unknownOriginalTransaction, "Original transaction \(id) was never recorded.")
    }
    let line = LineID(environment, id)
    let facts = try await LineFacts(of: family, in: ledger)
    let (catalogue, now) = (catalogue.catalogue, pages.now())
    var frame = try await pages.frame(id.rawValue, context)
    frame.searchText = id.rawValue
    let state = LineState(of: line, in: family, facts: facts, catalogue: catalogue, at: now)
    let others = environments.filter { $0 != environment }.map { LineID($0, id) }
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
          TimelineSketch(
            LineLife(of: line, in: family, facts: facts, catalogue: catalogue, at: now))),
        charges: Self.cards(of: family, facts: facts, catalogue: catalogue, at: now),
        facts: facts.rows),
      .originalTransaction)
  }

  private static func cards(
    of family: RecordedFamily, facts: LineFacts, catalogue: Catalogue, at now: Timestamp
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
  /// - Parameters:
  ///   - report: The charge.
  ///   - family: Its line, and those that Apple links.
  ///   - facts: Their entries.
  ///   - owner: The number of the charge's owner in the timeline.
  ///   - end: The end of what was paid for.
  ///   - now: The present.
  fileprivate init(
    _ report: ChargeReport, in family: RecordedFamily, facts: LineFacts, owner: Int,
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
      ownerHref: report.ownerAccountID.map { PageAddress.account($0) },
      rule: recorded.decision.rule.rawValue, because: report.because,
      decidedAt: Moment(recorded.decidedAt), correctedAt: recorded.correctedAt.map(Moment.init),
      evidence: Self.evidence(of: report, in: family, facts: facts),
      history: facts.rows(about: charge, statusDates: recorded.decision.finding.statusDates),
      aliases: charge.aliases.map(\.transactionID.rawValue), transferHref: charge.id.transferHref,
      releaseHref: charge.id.releaseHref)
  }

  private static func evidence(
    of report: ChargeReport, in family: RecordedFamily, facts: LineFacts
  ) -> [Property] {
    let finding = report.recorded.decision.finding
    let evidence = DecisionEvidence(on: report, in: family)
    var properties = [
      Property(label: "In words", value: evidence.sentences),
      Property(label: "Kind", value: report.charge.kind.rawValue),
      Property(label: "Ground", value: finding.ground.rawValue, isCode: true),
    ]
    let decision = report.recorded.decision
    if let act = facts.placement(of: report.charge, by: decision) {
      properties.append(
        Property(
          label: decision.rule == .administrator ? "Placed by" : "Released by",
          value: act.administrator, note: act.reason))
    }
    if let previous = finding.previous {
      properties.append(
        Property(
          label: "Charge before", value: previous.transactionID.rawValue,
          href: "#\(previous.anchor)", isCode: true))
    }
    if let account = finding.account {
      properties.append(
        Property(
          label: "Was renewing", value: facts.name(account),
          href: PageAddress.account(facts.name(account)), isCode: true))
    }
    if let statusAsOf = finding.statusAsOf {
      properties.append(Property(label: "Apple's word of", value: Moment(statusAsOf).text))
    }
    if let switchedOffAt = finding.switchedOffAt {
      properties.append(Property(label: "Auto-renew off since", value: Moment(switchedOffAt).text))
    }
    if let order = report.orderID {
      properties.append(
        Property(label: "Fulfils order", value: order.uuidString.lowercased(), isCode: true))
    }
    if let deliveredAt = report.deliveredAt {
      properties.append(Property(label: "Delivered", value: Moment(deliveredAt).text))
    }
    if report.recorded.decision.isProvisional {
      properties.append(
        Property(label: "Provisional", value: "A first claim can still change the owner."))
    }
    return properties
  }
}
