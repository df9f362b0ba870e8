import HTTPAPI
import LedgerStorage
import Subscriptions

/// The data of an original transaction's timeline.
struct TimelineChart: Sendable {
  var originalTransactionID: String
  var now: Timestamp
  var periods: [Period]
  var bindings: [Binding]
  /// The times in which accounts owned charges that were then found to be others'.
  var former: [(from: Timestamp, until: Timestamp, owner: Int, text: String)] = []
  var troubles: [TimelineLayout.Span] = []
  /// The times with auto-renew on.
  var renewing: [(from: Timestamp, until: Timestamp)] = []
  var switches: [Switch] = []
  /// The sources of entries.
  var messages: [TimelineLayout.Mark] = []
  /// Numbered from 1; 0 stands for no owner.
  var owners: [TimelineOwner]

  /// A paid period.
  struct Period: Sendable {
    var from: Timestamp
    /// The end reported by Apple, or nil if it does not end.
    var until: Timestamp?
    /// The date of a refund or upgrade.
    var endedAt: Timestamp?
    var refundedAt: Timestamp?
    /// The move to another account, or from it.
    var move: (at: Timestamp, isLoss: Bool)?
    var isTrial = false
    var productID: String
    /// A number of ``TimelineChart/owners``.
    var owner: Int
    /// The tooltip.
    var text: String
    var href: String?
  }

  /// The account that renewals go to, from a date on.
  typealias Binding = (at: Timestamp, owner: Int, text: String)
  /// A change of auto-renew by the customer.
  typealias Switch = (at: Timestamp, isOn: Bool, text: String, href: String?)
}

extension TimelineLayout {
  init(_ life: TimelineChart) {
    let (begin, end, margin) = life.periods.extent(
      at: life.now, showing: (life.messages.map(\.at) + life.troubles.map(\.until)).max())
    let last = life.periods.contains(where: \.isOpen) ? .max : end
    self.init(
      id: "life", title: "Timeline of original transaction \(life.originalTransactionID)",
      description: life.description, from: begin - margin, until: end + margin, now: life.now,
      lanes: [
        Lane(label: "Product", height: 16, spans: life.productSpans(until: last)),
        Lane(
          label: "Owner", height: 18, spans: life.bindingSpans(until: last),
          marks: life.moves.map { Mark(at: $0.at, symbol: .move, text: $0.text, offset: 23) }),
      ]
        + (life.former.isEmpty
          ? [] : [Lane(label: "Former owner", height: 18, spans: life.formerSpans)])
        + [
          Lane(
            label: "Periods", height: 30,
            spans: life.periods.flatMap { period in
              period.spans(
                label: life.periods.count <= TimelineChart.mostLetters
                  ? TimelineOwner.letter(period.owner) : nil)
            } + life.troubles,
            marks: life.periods.compactMap { $0.refundMark(offset: 15) }),
          Lane(
            label: "Auto-renew", height: 12,
            spans: life.renewing.map {
              Span(
                from: $0.from, until: $0.until, classNames: "span-on", text: "Auto-renew on",
                inset: 4)
            },
            marks: life.switches.map { change in
              Mark(
                at: change.at, symbol: change.isOn ? .on : .off, text: change.text,
                href: change.href, offset: 6)
            }),
          Lane(label: "Sources", height: 34, marks: life.messages),
        ],
      rules: life.moves.map { ($0.at, $0.text) }, owners: life.owners)
  }
}

extension TimelineChart {
  /// With more periods, letters are too small to read; the owner's lane has them too.
  fileprivate static let mostLetters = 60

  fileprivate var description: String {
    "\(Count.text(periods.count, "charge")), \(periods.count { $0.refundedAt != nil }) refunded, "
      + Count.text(max(bindings.count - 1, 0), "owner change")
      + (former.isEmpty
        ? "" : ", \(Count.text(Set(former.map(\.owner)).count, "former owner"))")
      + ". The lists below have the details."
  }

  fileprivate var moves: ArraySlice<Binding> { bindings.dropFirst() }

  /// One span per run of the same product.
  fileprivate func productSpans(until end: Timestamp) -> [TimelineLayout.Span] {
    var spans: [TimelineLayout.Span] = []
    for period in periods.sorted(by: { $0.from < $1.from }) {
      let until = max(period.endedAt ?? period.until ?? end, period.from)
      if let last = spans.last, last.text == period.productID {
        spans[spans.count - 1].until = max(last.until, until)
      } else {
        if let last = spans.last { spans[spans.count - 1].until = min(last.until, period.from) }
        spans.append(
          TimelineLayout.Span(
            from: period.from, until: until, classNames: "span-product", label: period.productID,
            text: period.productID))
      }
    }
    return spans
  }

  fileprivate func bindingSpans(until end: Timestamp) -> [TimelineLayout.Span] {
    bindings.indices.map { index in
      let binding = bindings[index]
      let next = index + 1 < bindings.count ? bindings[index + 1].at : end
      return TimelineLayout.Span(
        from: binding.at, until: max(next, binding.at),
        classNames: "span-bound \(TimelineOwner.ownerClass(binding.owner))",
        label: "\(TimelineOwner.letter(binding.owner)) \(name(binding.owner))", text: binding.text)
    }
  }

  fileprivate var formerSpans: [TimelineLayout.Span] {
    former.map { time in
      TimelineLayout.Span(
        from: time.from, until: time.until,
        classNames: "span-bound \(TimelineOwner.ownerClass(time.owner))",
        label: "\(TimelineOwner.letter(time.owner)) \(name(time.owner))", text: time.text)
    }
  }

  private func name(_ owner: Int) -> String {
    owners.indices.contains(owner - 1) ? owners[owner - 1].name : "no account"
  }
}

extension [TimelineChart.Period] {
  /// From the first period to the end of the last one, or beyond the present if one has no end, and
  /// the room on both sides.
  ///
  /// - Parameter last: A later end, of what else is shown.
  func extent(at now: Timestamp, showing last: Timestamp? = nil)
    -> (begin: Timestamp, end: Timestamp, margin: Duration)
  {
    let begin = map(\.from).min() ?? now
    // So that a period without an end is seen to go on.
    let rest: Duration = Swift.max((now - begin) / 8, .days(1))
    let open: Timestamp = now + rest
    let ends: [Timestamp] = map { $0.until ?? ($0.isOpen ? open : now) }
    let end = (ends + [last].compactMap(\.self)).max() ?? now
    return (begin, end, .milliseconds((end.milliseconds - begin.milliseconds) / 60))
  }
}

extension Timestamp {
  fileprivate static let max = Timestamp(milliseconds: .max)
}

extension TimelineChart.Period {
  fileprivate var isOpen: Bool { until == nil && endedAt == nil }

  /// The paid period, and the part of it that was revoked.
  ///
  /// One without an end lasts to the edge of the picture.
  func spans(label: String?) -> [TimelineLayout.Span] {
    let end = max(until ?? .max, from)
    let ended = max(min(endedAt ?? end, end), from)
    let span = TimelineLayout.Span(
      from: from, until: ended,
      classNames: "span-period \(TimelineOwner.ownerClass(owner))" + (isTrial ? " trial" : ""),
      pattern: refundedAt != nil ? .refunded : move?.isLoss ?? false ? .lost : nil, label: label,
      text: text, href: href)
    guard ended < end else { return [span] }
    let lost = TimelineLayout.Span(
      from: ended, until: end, classNames: "span-lost", text: text, href: href, inset: 6)
    return [lost, span]
  }

  func moveMark(offset: Int) -> TimelineLayout.Mark? {
    move.map {
      TimelineLayout.Mark(at: $0.at, symbol: .move, text: text, href: href, offset: offset)
    }
  }

  func refundMark(offset: Int) -> TimelineLayout.Mark? {
    guard let refundedAt else { return nil }
    return TimelineLayout.Mark(
      at: refundedAt, symbol: .refund, text: text, href: href, offset: offset)
  }
}

extension TimelineLayout.Mark {
  /// A source of entries, at a separate height, so that simultaneous ones don't overlap.
  init(source: TimelineLayout.Symbol, at moment: Timestamp, text: String, href: String? = nil) {
    let offset =
      switch source {
      case .notification: 5
      case .submission, .administrator: 17
      default: 29
      }
    self.init(at: moment, symbol: source, text: text, href: href, offset: offset)
  }
}

extension TimelineLayout.Span {
  /// A grace period, or a billing retry without access.
  init(from: Timestamp, until: Timestamp, isGrace: Bool) {
    let text =
      "\(from.dayName) to \(until.dayName): "
      + (isGrace ? "grace period" : "billing retry without access")
    self.init(
      from: from, until: until, classNames: "span-lost", pattern: isGrace ? .grace : .retry,
      text: text, inset: isGrace ? 4 : 8)
  }

  /// Nil for a span without billing trouble.
  init?(_ span: SubscriptionTimeline.Span) {
    guard span.isInTrouble, let end = span.end else { return nil }
    self.init(from: span.start, until: end, isGrace: span.state == .inGracePeriod)
  }
}

extension SubscriptionTimeline {
  /// Grace periods and billing retries, with the charges before them.
  var troubles: [(charge: Charge.ID, span: TimelineLayout.Span)] {
    spans.compactMap { span in
      TimelineLayout.Span(span).map { (charge: span.terms.charge, span: $0) }
    }
  }

  /// The times with auto-renew on: a charge switches it on, too, and an end off, unless Apple
  /// retried the charge.
  fileprivate var renewing: [(from: Timestamp, until: Timestamp)] {
    let states = spans.compactMap { span -> (at: Timestamp, isOn: Bool)? in
      switch span.state {
      case .activeRenewing, .trialRenewing: (span.start, true)
      case .activeCancelled, .trialCancelled, .expired, .revoked: (span.start, false)
      case .inGracePeriod, .inBillingRetry: nil
      }
    }
    var (times, begin): ([(from: Timestamp, until: Timestamp)], Timestamp?) = ([], nil)
    for (at, isOn) in (states + switches.map { ($0.at, $0.isOn) }).sorted(by: { $0.0 < $1.0 }) {
      if let from = begin, !isOn {
        times.append((from, at))
        begin = nil
      } else if begin == nil, isOn {
        begin = at
      }
    }
    return times
  }
}

/// The accounts of a timeline, numbered in order of appearance, those that lost all charges last.
struct TimelineOwners: Sendable {
  private var numbers: [AccountKey: Int] = [:]
  private var charges: [(account: AccountKey, charges: [Charge])] = []

  init(of original: RecordedOriginalTransaction) {
    for (charge, decision) in zip(original.rule.charges, original.rule.decisions) {
      guard let owner = decision.owner else { continue }
      if let number = numbers[owner] {
        charges[number - 1].charges.append(charge)
      } else {
        charges.append((owner, [charge]))
        numbers[owner] = charges.count
      }
    }
    for loss in original.line.decisions.values.flatMap(\.losses).sorted(by: { $0.at < $1.at })
    where numbers[loss.account] == nil {
      charges.append((loss.account, []))
      numbers[loss.account] = charges.count
    }
  }

  /// The number of an account, or 0 for no owner.
  func number(_ account: AccountKey?) -> Int { account.flatMap { numbers[$0] } ?? 0 }

  /// The entries of the legend.
  func owners(named name: (AccountKey) -> String) -> [TimelineOwner] {
    charges.map { account, charges in
      let number = number(account)
      let days = charges.map(\.date.dayName)
      let time = days.first.map { $0 == days.last ? $0 : "\($0) to \(days.last ?? $0)" }
      return TimelineOwner(
        ownerClass: TimelineOwner.ownerClass(number), letter: TimelineOwner.letter(number),
        name: name(account), href: AdminURL.account(name(account)),
        note: time.map { "\(Count.text(charges.count, "charge")), \($0)" } ?? "former owner")
    }
  }
}

extension TimelineChart {
  init(
    of line: OriginalTransactionKey, in original: RecordedOriginalTransaction,
    facts: OriginalTransactionFacts, catalogue: Catalogue, at now: Timestamp
  ) {
    let owners = TimelineOwners(of: original)
    let timeline = SubscriptionTimeline(of: original.line, rule: original.rule, in: catalogue)
    let name = { (account: AccountKey?) in account.map(facts.name) ?? "no account" }
    self.init(
      originalTransactionID: line.originalTransactionID.rawValue, now: now,
      periods: original.rule.charges.compactMap { charge in
        ChargeReport(of: charge.id, in: original, catalogue: catalogue).map {
          Period(
            $0, of: " (\($0.ownerAccountID ?? "unclaimed"))",
            owner: owners.number($0.recorded.decision.owner), end: $0.end(in: catalogue),
            href: "#\(charge.id.anchor)")
        }
      },
      bindings: Subscriptions.Binding.bindings(
        of: original.rule.charges, decisions: original.rule.decisions
      ).map {
        (
          $0.boundAt, owners.number($0.account),
          "\($0.boundAt.dayName): renewals go to \(name($0.account))"
        )
      },
      former: original.rule.charges.flatMap { charge in
        let recorded = original.line.decisions[charge.id]
        return (recorded?.losses ?? []).map { loss in
          let from = min(charge.date, loss.at)
          let until = max(from, min(charge.end ?? loss.at, loss.at))
          return (
            from, until, owners.number(loss.account),
            "\(from.dayName) to \(until.dayName): \(name(loss.account)) owned "
              + "\(charge.productID) until \(loss.at.dayName)"
          )
        }
      }.sorted { ($0.0, $0.3) < ($1.0, $1.3) },
      troubles: timeline.troubles.map { $0.span }, renewing: timeline.renewing,
      switches: timeline.switches.map {
        (
          $0.at, $0.isOn, "\(Moment($0.at).text): auto-renew turned \($0.isOn ? "on" : "off")",
          "#\($0.terms.charge.anchor)"
        )
      },
      messages: facts.messages, owners: owners.owners(named: facts.name))
  }
}

extension TimelineChart.Period {
  /// The period of a charge; `name` follows the product in its text.
  init(_ report: ChargeReport, of name: String, owner: Int, end: Timestamp?, href: String) {
    let charge = report.charge
    self.init(
      // A consumable is used up at once, so it is a point.
      from: charge.date, until: report.productType == .consumable ? charge.date : end,
      endedAt: [charge.revocation?.at, charge.supersededAt].compactMap(\.self).min(),
      refundedAt: charge.revocation.flatMap { $0.isRefund ? $0.at : nil },
      isTrial: report.transaction.periodType == .trial,
      productID: charge.productID.rawValue, owner: owner,
      text: charge.date.dayName + (end.map { " to \($0.dayName)" } ?? "")
        + ": \(charge.productID)\(name), \(Price.text(of: report))"
        + (charge.revocation.map { $0.isRefund ? ", refunded" : ", no longer shared" } ?? ""),
      href: href)
  }
}
