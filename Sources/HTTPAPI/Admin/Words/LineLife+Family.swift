import LedgerStorage
import Subscriptions

/// The accounts of a timeline, each with its number in the order of appearance.
struct TimelineOwners: Sendable {
  private var numbers: [AccountKey: Int] = [:]
  private var charges: [AccountKey: [Charge]] = [:]
  private var order: [AccountKey] = []

  init(of rule: OwnershipRule) {
    for (charge, decision) in zip(rule.charges, rule.decisions) {
      guard let owner = decision.owner else { continue }
      if numbers[owner] == nil {
        order.append(owner)
        numbers[owner] = order.count
      }
      charges[owner, default: []].append(charge)
    }
  }

  /// 0 is nobody.
  func number(_ account: AccountKey?) -> Int { account.flatMap { numbers[$0] } ?? 0 }

  /// For the legend.
  func owners(named name: (AccountKey) -> String) -> [TimelineOwner] {
    order.map { account in
      let (number, charges) = (number(account), charges[account] ?? [])
      let days = charges.map(\.date.dayText)
      let time = days.first.map { $0 == days.last ? $0 : "\($0) to \(days.last ?? $0)" }
      return TimelineOwner(
        ownerClass: TimelineOwner.ownerClass(number), letter: TimelineOwner.letter(number),
        name: name(account), href: PageAddress.account(name(account)),
        note: [Count.text(charges.count, "charge"), time].compactMap(\.self)
          .joined(separator: ", "))
    }
  }
}

extension LineLife {
  /// The life of a line, and of those that Apple links with it.
  ///
  /// - Parameters:
  ///   - line: The one that was asked for.
  ///   - family: All of them.
  ///   - facts: Their entries.
  ///   - catalogue: The products.
  ///   - now: The present.
  init(
    of line: LineID, in family: RecordedFamily, facts: LineFacts, catalogue: Catalogue,
    at now: Timestamp
  ) {
    let owners = TimelineOwners(of: family.rule)
    let timeline = SubscriptionTimeline(of: family.line, rule: family.rule, in: catalogue)
    let name = { (account: AccountKey?) in account.map(facts.name) ?? "nobody" }
    self.init(
      originalTransactionID: line.originalTransactionID.rawValue, now: now,
      periods: family.rule.charges.compactMap { charge in
        ChargeReport(of: charge.id, in: family, catalogue: catalogue).map {
          Period($0, owner: owners.number($0.recorded.decision.owner), catalogue: catalogue)
        }
      },
      bindings: Subscriptions.Binding.bindings(
        of: family.rule.charges, decisions: family.rule.decisions
      ).map {
        Binding(
          at: $0.boundAt, owner: owners.number($0.account),
          text: "\($0.boundAt.dayText): bound to \(name($0.account))")
      },
      troubles: timeline.spans.compactMap(Trouble.init),
      switches: timeline.switches.map {
        Switch(
          at: $0.at, isOn: $0.isOn,
          text: "\(Moment($0.at).text): auto-renew switched \($0.isOn ? "on" : "off")",
          href: "#\($0.terms.charge.anchor)")
      },
      messages: facts.messages, owners: owners.owners(named: facts.name))
  }
}

extension LineLife.Period {
  /// - Parameters:
  ///   - report: The charge.
  ///   - owner: The number of its owner.
  ///   - catalogue: The products.
  init(_ report: ChargeReport, owner: Int, catalogue: Catalogue) {
    let charge = report.charge
    let end = report.end(in: catalogue)
    let whose = report.ownerAccountID.map { "of \($0)" } ?? "of nobody"
    var text = "\(charge.date.dayText)"
    if let end { text += " to \(end.dayText)" }
    text += ": \(charge.productID) \(whose), \(Price.text(of: report.transaction))"
    if charge.revocation != nil { text += ", refunded" }
    self.init(
      from: charge.date, until: end,
      endedAt: [charge.revocation?.at, charge.supersededAt].compactMap(\.self).min(),
      isRefunded: charge.revocation != nil, isTrial: report.transaction.periodType == .trial,
      productID: charge.productID.rawValue, owner: owner, text: text, href: "#\(charge.id.anchor)")
  }
}

extension LineLife.Trouble {
  /// Nil where nothing is wrong.
  init?(_ span: SubscriptionTimeline.Span) {
    guard span.isInTrouble, let end = span.end else { return nil }
    let isGrace = span.state == .inGracePeriod
    self.init(
      from: span.start, until: end, isGrace: isGrace,
      text: "\(span.start.dayText) to \(end.dayText): "
        + (isGrace ? "in a grace period" : "Apple tries to charge, without access"))
  }
}
