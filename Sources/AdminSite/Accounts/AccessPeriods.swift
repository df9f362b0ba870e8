import LedgerStorage
import Subscriptions

/// The times in which an account had an entitlement, by its charges and grants as they are known
/// now: a charge that moved counts for each account while that owned it.
struct AccessPeriods: Sendable {
  /// A charge of an account, who has what followed it, as in `the next charge belongs to mona`,
  /// whether Apple could not charge the renewal, and when the charge or its first owner was known.
  typealias Holding = (
    holding: Subscriptions.Holding, next: String?, isUnpaid: Bool, knownAt: Timestamp
  )
  /// A time in which the account owned a charge; nil: from its beginning, and until now.
  typealias Ownership = (from: Timestamp?, until: Timestamp?)

  private struct Period {
    var from: Timestamp
    /// Nil: no end.
    var until: Timestamp?
    /// Why access ended, as in `refunded`.
    var ending: String
  }

  private let entitlement: String
  /// By date, none of which touch.
  private let periods: [Period]
  /// The parts of them that were over, or had begun days before, when they became known, by date.
  private let late: [(from: Timestamp, until: Timestamp)]

  /// The charges of an original transaction that an account owns or owned.
  ///
  /// - Parameter unpaid: Those whose renewal Apple could not charge at first.
  static func holdings(
    of account: AccountKey, on line: OriginalTransactionKey,
    in original: RecordedOriginalTransaction, unpaid: Set<Charge.ID>
  ) -> [Holding] {
    original.rule.charges.indices.compactMap { position in
      let charge = original.rule.charges[position]
      guard charge.id.line == line, charge.productType != .consumable,
        let recorded = original.line.decisions[charge.id],
        recorded.decision.owner == account
          || recorded.losses.contains(where: { $0.account == account })
      else { return nil }
      return (
        original.line.holding(ofChargeAt: position, in: original.rule),
        original.next(after: charge, of: account), unpaid.contains(charge.id),
        original.known(charge, recorded)
      )
    }
  }

  /// The periods of each entitlement, by name.
  ///
  /// - Parameters:
  ///   - times: The times in which the account owned a charge.
  ///   - move: How a charge left the account at a moment, as in `moved to klara`.
  static func all(
    _ holdings: [Holding], grants: [Grant], in catalogue: Catalogue,
    owning times: (Charge.ID) -> [Ownership], move: (Charge.ID, Timestamp) -> String
  ) -> [AccessPeriods] {
    var periods: [ExactText: [Period]] = [:]
    var late: [ExactText: [(from: Timestamp, until: Timestamp)]] = [:]
    for (holding, next, isUnpaid, knownAt) in holdings {
      let end = holding.accessEnd(in: catalogue)
      let ending: String =
        switch end {
        case nil: "no end"
        case holding.revokedAt: holding.isSharingEnded ? "Family Sharing ended" : "refunded"
        case holding.supersededAt: "replaced by an upgrade"
        case _ where next != nil: next ?? ""
        default:
          isUnpaid || holding.graceEndsAt != nil
            ? "payment failed" : "\(holding.productID) expired"
        }
      for time in times(holding.charge) {
        var period = Period(
          from: max(holding.startsAt, time.from ?? holding.startsAt), until: end, ending: ending)
        if let lostAt = time.until, end.map({ lostAt < $0 }) ?? true {
          (period.until, period.ending) = (lostAt, move(holding.charge, lostAt))
        }
        guard period.until.map({ period.from < $0 }) ?? true else { continue }
        let known = min(knownAt, period.until ?? knownAt)
        for name in holding.entitlements(in: catalogue) ?? [] {
          periods[name, default: []].append(period)
          if period.from + .days(1) < known { late[name, default: []].append((period.from, known)) }
        }
      }
    }
    for grant in grants where grant.accessEnd.map({ grant.startsAt < $0 }) ?? true {
      periods[ExactText(grant.entitlement), default: []].append(
        Period(
          from: grant.startsAt, until: grant.accessEnd,
          ending: grant.revokedAt != nil && grant.revokedAt == grant.accessEnd
            ? "the grant was revoked" : "the grant ended"))
    }
    return periods.sorted { $0.key < $1.key }.map {
      AccessPeriods(
        entitlement: $0.key.rawValue, periods: joined($0.value),
        late: late[$0.key, default: []].sorted { $0.from < $1.from }.reduce(into: []) {
          joined, next in
          if let last = joined.last, next.from <= last.until + .gapTolerance {
            joined[joined.count - 1].until = max(last.until, next.until)
          } else {
            joined.append(next)
          }
        })
    }
  }

  /// The periods by date, those that follow each other without a gap as one.
  private static func joined(_ periods: [Period]) -> [Period] {
    periods.sorted { $0.from < $1.from }.reduce(into: []) { joined, next in
      guard let last = joined.last, last.until.map({ next.from <= $0 + .gapTolerance }) ?? true
      else { return joined.append(next) }
      if let until = last.until, next.until.map({ $0 > until }) ?? true {
        joined[joined.count - 1].until = next.until
        joined[joined.count - 1].ending = next.ending
      }
    }
  }

  // MARK: Gaps

  /// The times without access after a period, the last one without an end if it lasts.
  private func gaps(at now: Timestamp) -> [(from: Timestamp, until: Timestamp?, cause: String)] {
    periods.indices.compactMap { index in
      guard let from = periods[index].until, from <= now else { return nil }
      return (
        from, index + 1 < periods.count ? periods[index + 1].from : nil, periods[index].ending
      )
    }
  }

  /// Gaps that are named; of several more, the latest.
  private static let mostGaps = 3

  /// The times that are named, and how many come before them.
  private static func latest<Time>(_ times: [Time]) -> (rest: Int, named: ArraySlice<Time>) {
    let rest = times.count > mostGaps + 1 ? times.count - mostGaps : 0
    return (rest, times.dropFirst(rest))
  }

  /// For example `No access to pro: 27 Aug 2026 to 16 Sep 2026 (payment failed).`; nil without a gap.
  func gapsInWords(at now: Timestamp) -> String? {
    let gaps = gaps(at: now)
    guard !gaps.isEmpty else { return nil }
    let (rest, latest) = Self.latest(gaps)
    let named = latest.map { "\(Self.time(of: $0)) (\($0.cause))" }
    return "No access to \(entitlement): "
      + ((rest > 0 ? ["\(Count.text(rest, "earlier gap"))"] : []) + named)
      .joined(separator: "; ") + "."
  }

  /// For example `Paid, but without access to pro until Tenure knew the charge and its owner: 17
  /// Oct 2026 to 23 Oct 2026.`; entitlements of the same times are named together.
  static func lateInWords(_ all: [AccessPeriods]) -> [String] {
    var sentences: [(times: String, entitlements: [String])] = []
    for periods in all where !periods.late.isEmpty {
      let (rest, latest) = latest(periods.late)
      let named = latest.map { "\($0.from.dayName) to \($0.until.dayName)" }
      let times =
        named.joined(separator: "; ")
        + (rest > 0 ? "; and \(Count.text(rest, "earlier time"))" : "")
      if let place = sentences.firstIndex(where: { $0.times == times }) {
        sentences[place].entitlements.append(periods.entitlement)
      } else {
        sentences.append((times, [periods.entitlement]))
      }
    }
    return sentences.map { times, entitlements in
      "Paid, but without access to \(entitlements.joined(separator: " and ")) until Tenure knew the "
        + "charge and its owner: \(times)."
    }
  }

  /// The parts of a period in which the charge was known.
  private func known(_ period: Period) -> [(from: Timestamp, until: Timestamp?)] {
    var (parts, from): ([(from: Timestamp, until: Timestamp?)], Timestamp) = ([], period.from)
    for time in late
    where time.until > from && period.until.map({ time.from < $0 }) ?? true {
      if time.from > from { parts.append((from, time.from)) }
      from = time.until
    }
    if period.until.map({ from < $0 }) ?? true { parts.append((from, period.until)) }
    return parts
  }

  private static func time(of gap: (from: Timestamp, until: Timestamp?, cause: String)) -> String {
    gap.until.map { "\(gap.from.dayName) to \($0.dayName)" } ?? "since \(gap.from.dayName)"
  }

  /// A bar for each period and a dashed one for each gap.
  ///
  /// - Parameter last: The end of the axis.
  func lane(until last: Timestamp, at now: Timestamp) -> TimelineLayout.Lane {
    let access = periods.flatMap { period in
      known(period).map { part in
        let end = part.until.map { " to \($0.dayName)" } ?? ", no end date"
        let hasEnded = part.until == period.until && part.until.map { $0 <= now } ?? false
        return TimelineLayout.Span(
          from: part.from, until: min(part.until ?? last, last), classNames: "span-on",
          text: "\(part.from.dayName)\(end): access to \(entitlement)"
            + (hasEnded ? "; ended: \(period.ending)" : ""), inset: 4)
      }
    }
    let none = gaps(at: now).compactMap { gap -> TimelineLayout.Span? in
      let until = gap.until ?? min(now, last)
      guard gap.from < until else { return nil }
      return TimelineLayout.Span(
        from: gap.from, until: until, classNames: "span-lost", label: "no access",
        text: "\(Self.time(of: gap)): no access to \(entitlement) (\(gap.cause))")
    }
    let unknown = late.map { time in
      TimelineLayout.Span(
        from: time.from, until: time.until, classNames: "span-lost", pattern: .late,
        text: "\(time.from.dayName) to \(time.until.dayName): paid, without access", inset: 4)
    }
    return TimelineLayout.Lane(
      label: "Access to \(entitlement)", height: 16, spans: access + none + unknown)
  }
}

extension RecordedOriginalTransaction {
  /// When a charge and its owner were known; of one that has moved, when the charge was.
  fileprivate func known(_ charge: Charge, _ recorded: OriginalTransaction.RecordedDecision)
    -> Timestamp
  {
    let at = line.history[charge.id]?.recorded.at ?? charge.date
    return recorded.losses.isEmpty && !recorded.decision.isByAdministrator
      ? max(at, recorded.decidedAt) : at
  }

  /// Who has what followed a charge at once, or its other product; nil without that.
  fileprivate func next(after charge: Charge, of account: AccountKey) -> String? {
    let next = rule.charges.first {
      line.decisions[$0.id]?.decision.renewal.previous == charge.id
    }
    guard let next, let end = charge.end, next.date <= end + .gapTolerance else { return nil }
    switch line.decisions[next.id]?.decision.owner {
    case account?:
      if let loss = line.decisions[next.id]?.losses.last {
        let owner = names[loss.account] ?? "another account"
        return "\(owner) had the next charge until \(loss.at.dayName)"
      }
      return next.productID == charge.productID ? nil : "changed to \(next.productID)"
    case let owner?: return "the next charge belongs to \(names[owner] ?? "erased")"
    case nil: return "the next charge is unclaimed"
    }
  }
}
