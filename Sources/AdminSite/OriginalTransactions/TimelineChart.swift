import HTTPAPI
import LedgerStorage
import Subscriptions

/// The life of an original transaction, as its timeline tells it.
struct LineLife: Sendable {
  var originalTransactionID: String
  var now: Timestamp
  var periods: [Period]
  var bindings: [Binding]
  var troubles: [Trouble] = []
  var switches: [Switch] = []
  var messages: [Message] = []
  /// By number, beginning with 1; 0 is nobody.
  var owners: [TimelineOwner]

  /// What was paid for.
  struct Period: Sendable {
    var from: Timestamp
    /// What Apple said; nil: it has no end.
    var until: Timestamp?
    /// When it ended before that: refunded, or replaced by an upgrade.
    var endedAt: Timestamp?
    var isRefunded = false
    var isTrial = false
    var productID: String
    /// Of ``LineLife/owners``.
    var owner: Int
    /// All about it in a sentence.
    var text: String
    var href: String?
  }

  /// Whom the line is bound to, from a moment on.
  struct Binding: Sendable {
    var at: Timestamp
    var owner: Int
    var text: String
  }

  /// When the customer's money could not be had.
  struct Trouble: Sendable {
    var from: Timestamp
    var until: Timestamp
    /// Access goes on meanwhile.
    var isGrace: Bool
    var text: String
  }

  /// The customer switched auto-renew off or on.
  struct Switch: Sendable {
    var at: Timestamp
    var isOn: Bool
    var text: String
    var href: String?
  }

  /// What brought a fact.
  struct Message: Sendable {
    /// A notification, a submission, a poll or an administrator.
    var source: TimelineSketch.Symbol
    var at: Timestamp
    var text: String
    var href: String?
  }
}

extension TimelineSketch {
  /// Lays a life out: products, whom it is bound to, periods, auto-renew, and what was heard of it.
  init(_ life: LineLife) {
    let begin = life.periods.map(\.from).min() ?? life.now
    let end = max(life.periods.compactMap(\.until).max() ?? life.now, life.now)
    let margin = Duration.milliseconds((end.milliseconds - begin.milliseconds) / 60)
    self.init(
      id: "life", title: "The life of original transaction \(life.originalTransactionID)",
      description: life.description, from: begin - margin, until: end + margin, now: life.now,
      lanes: [
        Lane(label: "Product", height: 16, spans: life.productSpans(until: end)),
        Lane(
          label: "Bound to", height: 18, spans: life.bindingSpans(until: end),
          marks: life.moves.map { binding in
            Mark(at: binding.at, symbol: .move, text: binding.text, offset: 23)
          }),
        Lane(
          label: "Periods", height: 30,
          spans: life.periodSpans(until: end) + life.troubles.map(\.span),
          marks: life.refundMarks),
        Lane(
          label: "Auto-renew", height: 12, spans: life.renewingSpans,
          marks: life.switches.map { change in
            Mark(
              at: change.at, symbol: change.isOn ? .on : .off, text: change.text,
              href: change.href, offset: 6)
          }),
        Lane(
          label: "Heard from", height: 34,
          marks: life.messages.map { message in
            Mark(
              at: message.at, symbol: message.source, text: message.text, href: message.href,
              offset: message.offset)
          }),
      ],
      rules: life.moves.map { Rule(at: $0.at, text: $0.text) }, owners: life.owners)
  }
}

extension LineLife {
  /// More letters than this can't be told apart, and the owner's lane has them too.
  private static let mostLetters = 60

  fileprivate var description: String {
    let refunds = periods.count(where: \.isRefunded)
    return "\(Count.text(periods.count, "charge")), \(refunds) of them refunded; moved "
      + "\(Count.text(max(bindings.count - 1, 0), "time")). The lists below tell it in words."
  }

  /// Each binding but the first.
  fileprivate var moves: ArraySlice<Binding> { bindings.dropFirst() }

  /// One for each run of the same product.
  fileprivate func productSpans(until end: Timestamp) -> [TimelineSketch.Span] {
    var spans: [TimelineSketch.Span] = []
    for period in periods.sorted(by: { $0.from < $1.from }) {
      let until = max(period.endedAt ?? period.until ?? end, period.from)
      if let last = spans.last, last.text == period.productID {
        spans[spans.count - 1].until = max(last.until, until)
      } else {
        if let last = spans.last { spans[spans.count - 1].until = min(last.until, period.from) }
        spans.append(
          TimelineSketch.Span(
            from: period.from, until: until, classNames: "span-product", label: period.productID,
            text: period.productID))
      }
    }
    return spans
  }

  fileprivate func bindingSpans(until end: Timestamp) -> [TimelineSketch.Span] {
    bindings.indices.map { index in
      let binding = bindings[index]
      let next = index + 1 < bindings.count ? bindings[index + 1].at : end
      return TimelineSketch.Span(
        from: binding.at, until: max(next, binding.at),
        classNames: "span-bound \(TimelineOwner.ownerClass(binding.owner))",
        label: "\(TimelineOwner.letter(binding.owner)) \(name(binding.owner))",
        text: binding.text)
    }
  }

  private func name(_ owner: Int) -> String {
    owners.indices.contains(owner - 1) ? owners[owner - 1].name : "nobody"
  }

  fileprivate func periodSpans(until end: Timestamp) -> [TimelineSketch.Span] {
    periods.flatMap { period in
      let until = max(period.until ?? end, period.from)
      let ended = min(period.endedAt ?? until, until)
      var names = "span-period \(TimelineOwner.ownerClass(period.owner))"
      if period.isTrial { names += " trial" }
      let span = TimelineSketch.Span(
        from: period.from, until: max(ended, period.from), classNames: names,
        pattern: period.isRefunded ? .refunded : nil,
        label: periods.count <= Self.mostLetters ? TimelineOwner.letter(period.owner) : nil,
        text: period.text, href: period.href)
      guard ended < until else { return [span] }
      // What was paid for and taken back.
      let lost = TimelineSketch.Span(
        from: max(ended, period.from), until: until, classNames: "span-lost", text: period.text,
        href: period.href, inset: 6)
      return [lost, span]
    }
  }

  fileprivate var refundMarks: [TimelineSketch.Mark] {
    periods.filter(\.isRefunded).compactMap { period in
      period.endedAt.map { endedAt in
        TimelineSketch.Mark(
          at: endedAt, symbol: .refund, text: period.text, href: period.href, offset: 15)
      }
    }
  }

  /// From the first period on, unless it was switched off, to where it is switched off again or
  /// the last period ends.
  fileprivate var renewingSpans: [TimelineSketch.Span] {
    guard let first = periods.map(\.from).min(),
      let last = periods.compactMap(\.until).max()
    else { return [] }
    var spans: [TimelineSketch.Span] = []
    var begin: Timestamp? = first
    for change in switches.sorted(by: { $0.at < $1.at }) {
      if let from = begin, !change.isOn {
        spans.append(Self.renewingSpan(from: from, until: change.at))
        begin = nil
      } else if begin == nil, change.isOn {
        begin = change.at
      }
    }
    if let from = begin { spans.append(Self.renewingSpan(from: from, until: last)) }
    return spans
  }

  private static func renewingSpan(from: Timestamp, until: Timestamp) -> TimelineSketch.Span {
    TimelineSketch.Span(
      from: from, until: max(until, from), classNames: "span-on", text: "Auto-renew on", inset: 4)
  }
}

extension LineLife.Trouble {
  fileprivate var span: TimelineSketch.Span {
    TimelineSketch.Span(
      from: from, until: until, classNames: "span-lost", pattern: isGrace ? .grace : .retry,
      text: text, inset: isGrace ? 4 : 8)
  }
}

extension LineLife.Message {
  /// Each source has its own height, so that what came at once does not cover itself.
  fileprivate var offset: Int {
    switch source {
    case .notification: 5
    case .submission, .administrator: 17
    default: 29
    }
  }
}

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
