import struct Foundation.UUID
import Subscriptions

// The life of a subscription after its purchase. Apple tries to renew up to 24 hours before the end
// and retries failed payments for up to 60 days, at first with access if the app has a grace
// period. https://developer.apple.com/documentation/storekit/reducing-involuntary-subscriber-churn
extension AppStoreState {
  private static let retryPeriod = Duration.days(60)
  /// Weekly subscriptions have at most six days of grace.
  private static let longestWeeklyGrace = Duration.days(6)
  /// Seconds by which sandbox renewals are late.
  private static let sandboxDelaySeconds = 0...30

  mutating func perform(_ due: Due) {
    guard let renewal = lines[due.line].renewal, renewal.schedule == due.schedule else { return }
    switch due.step {
    case .renewalAttempt:
      if obstacle(to: renewal, of: due.line) == nil { renew(due.line) }
    case .periodEnd: endPeriod(of: due.line, renewal)
    case .graceEnd: note(.gracePeriodExpired, line: due.line)
    case .retryEnd:
      switchRenewal(of: due.line, on: false)
      expire(due.line, intent: 2)
    }
  }

  // MARK: Planning

  /// Schedules the renewal attempt and the period's end, and cancels what was scheduled before.
  mutating func scheduleRenewal(of line: Int) {
    guard let charge = validCharge(of: line), let end = charges[charge].expiresDate else {
      return
    }
    let environment = lines[line].environment
    let attempt: Timestamp
    if periodLengths(environment).areSandboxRates {
      attempt = end + .seconds(life.number(in: Self.sandboxDelaySeconds))
    } else {
      // A lead as long as the period would charge the entire future at once.
      let length = end - charges[charge].purchaseDate
      attempt = end - min(drawRenewalLead(), length / 4)
    }
    let schedule = nextSchedule(of: line)
    plan(.renewalAttempt, at: attempt, line: line, schedule: schedule)
    plan(.periodEnd, at: max(end, attempt), line: line, schedule: schedule)
  }

  private mutating func nextSchedule(of line: Int) -> Int {
    lines[line].renewal?.schedule += 1
    return lines[line].renewal?.schedule ?? 0
  }

  private mutating func drawRenewalLead() -> Duration {
    let range = configuration.renewalLead
    let seconds = range.lowerBound.components.seconds...range.upperBound.components.seconds
    return .seconds(life.number(in: Int(seconds.lowerBound)...Int(seconds.upperBound)))
  }

  // MARK: Renewing

  /// The reason why a subscription can't renew, as Apple's `expiration_intent`; nil if it can.
  private func obstacle(to renewal: Renewal, of line: Int) -> Int? {
    let isOnSandboxRates = periodLengths(lines[line].environment).areSandboxRates
    let isOver =
      isOnSandboxRates && renewal.renewalsInARow >= PeriodLengths.sandboxRenewalLimit
    if !renewal.isOn || isOver { return 1 }
    if withdrawn.contains(renewal.product.id) { return 4 }
    if renewal.priceConsent == .asked { return 3 }
    return customers[lines[line].customer].cardWorks ? nil : 2
  }

  private mutating func renew(
    _ line: Int, as kind: SimulatedCharge.Kind = .renewal, from start: Timestamp? = nil
  ) {
    guard let renewal = lines[line].renewal, let last = validCharge(of: line),
      let end = charges[last].expiresDate
    else { return }
    let start = start ?? max(end, now.wholeSecond)
    if renewal.product.id != charges[last].product.id || start != end {
      lines[line].renewal?.anchor = start
      lines[line].renewal?.periodsSinceAnchor = 0
    }
    let charge = record(
      Terms(
        line: line, product: renewal.product, kind: kind, start: start,
        end: advancePeriod(of: line), periodType: renewal.offer == nil ? .normal : .offer,
        offer: renewal.offer, priceMilliunits: renewal.price,
        appAccountToken: renewal.appAccountToken, account: renewal.account))
    lines[line].renewal?.phase = .paid
    lines[line].renewal?.priceConsent = nil
    lines[line].renewal?.offer = nil
    lines[line].renewal?.renewalsInARow += 1
    scheduleRenewal(of: line)
    note(kind == .recovery ? .recovered : .renewed, charge: charge)
  }

  /// Counts another period of the renewing product and returns its end.
  mutating func advancePeriod(of line: Int) -> Timestamp? {
    lines[line].renewal?.periodsSinceAnchor += 1
    guard let renewal = lines[line].renewal, let period = renewal.product.period else { return nil }
    return periodLengths(lines[line].environment)
      .end(of: period, count: renewal.periodsSinceAnchor, from: renewal.anchor)
  }

  // MARK: Ending

  private mutating func endPeriod(of line: Int, _ renewal: Renewal) {
    switch obstacle(to: renewal, of: line) {
    case nil: renew(line)
    case 2: beginRetry(of: line)
    case .some(let intent):
      if intent == 1 { switchRenewal(of: line, on: false) }
      expire(line, intent: intent)
    }
  }

  private mutating func beginRetry(of line: Int) {
    guard let charge = validCharge(of: line), let end = charges[charge].expiresDate else {
      return
    }
    let lengths = periodLengths(lines[line].environment)
    let graceUntil = graceLength(of: line).map { end + lengths.span($0) }
    lines[line].renewal?.phase = .retrying(since: end, graceUntil: graceUntil)
    let schedule = nextSchedule(of: line)
    if let graceUntil { plan(.graceEnd, at: graceUntil, line: line, schedule: schedule) }
    let giveUp = end + lengths.span(Self.retryPeriod)
    plan(.retryEnd, at: giveUp, line: line, schedule: schedule)
    note(.renewalFailed(graceUntil: graceUntil), line: line)
  }

  private func graceLength(of line: Int) -> Duration? {
    guard let grace = apps[lines[line].app].gracePeriod else { return nil }
    let length = Duration.days(grace.rawValue)
    let period = lines[line].renewal?.product.period
    let isWeekly = period.map { $0.months == 0 && $0.days <= 7 } ?? false
    return isWeekly ? min(length, Self.longestWeeklyGrace) : length
  }

  private mutating func expire(_ line: Int, intent: Int) {
    lines[line].renewal?.phase = .expired(intent: intent)
    _ = nextSchedule(of: line)
    note(.expired(intent: intent), line: line)
  }

  mutating func switchRenewal(of line: Int, on isOn: Bool) {
    guard lines[line].renewal?.isOn != isOn else { return }
    lines[line].renewal?.isOn = isOn
    lines[line].renewal?.switchedAt = now
  }

  // MARK: Customers' actions

  mutating func setAutoRenew(
    _ isOn: Bool, line: Int, by account: AppAccountID?
  ) throws -> SimulatedEvent {
    guard let renewal = lines[line].renewal else {
      throw SimulationError(.notPossible, "\(lines[line].id) has no auto-renewal.")
    }
    if case .expired = renewal.phase {
      throw SimulationError(.notPossible, "\(lines[line].id) has expired; buy again.")
    }
    guard renewal.isOn != isOn else {
      throw SimulationError(
        .notPossible, "Auto-renewal of \(lines[line].id) is already \(isOn ? "on" : "off").")
    }
    switchRenewal(of: line, on: isOn)
    if isOn, let account { lines[line].renewal?.account = account }
    let event = note(isOn ? .autoRenewTurnedOn : .autoRenewTurnedOff, line: line, by: account)
    if !isOn, case .retrying(_, let graceUntil) = renewal.phase {
      lines[line].renewal?.wasLeftDuringGrace = graceUntil.map { now < $0 } ?? false
      expire(line, intent: 1)
    }
    return event
  }

  /// Makes an Apple ID's card work again and collects outstanding payments.
  mutating func repairCard(of customer: Int) {
    customers[customer].cardWorks = true
    for line in customers[customer].lines {
      guard let renewal = lines[line].renewal,
        case .retrying(let since, let graceUntil) = renewal.phase
      else { continue }
      if let intent = obstacle(to: renewal, of: line) {
        expire(line, intent: intent)
        continue
      }
      // During the grace period the billing date stays; after it, a new one begins.
      let keepsBillingDate = graceUntil.map { now < $0 } ?? false
      renew(line, as: .recovery, from: keepsBillingDate ? since : now.wholeSecond)
    }
  }

  mutating func raisePrice(of id: ProductID, to milliunits: Int64, needsConsent: Bool) throws {
    var offering = try offering(id)
    offering.product.priceMilliunits = milliunits
    shelf[id] = offering
    for line in lines.indices {
      guard let renewal = lines[line].renewal, renewal.product.id == id else { continue }
      if case .expired = renewal.phase { continue }
      lines[line].renewal?.product = offering.product
      lines[line].renewal?.priceConsent = needsConsent ? .asked : .accepted
      note(needsConsent ? .priceIncreaseAsked : .priceIncreaseAccepted, line: line)
    }
  }

  mutating func acceptPrice(line: Int) throws -> SimulatedEvent {
    guard lines[line].renewal?.priceConsent == .asked else {
      throw SimulationError(.notPossible, "\(lines[line].id) was not asked for consent.")
    }
    lines[line].renewal?.priceConsent = .accepted
    return note(.priceIncreaseAccepted, line: line)
  }
}

struct MassExtension: Sendable {
  let app: Int
  let environment: Environment
  let identifier: String
  let product: ProductID
  let completedAt: Timestamp
  let succeeded: Int
  let failed: Int
}

// Extensions and migrations.
extension AppStoreState {
  /// The number of days that Apple accepts.
  ///
  /// https://developer.apple.com/documentation/appstoreserverapi/extendbydays
  static let extensionDays = 1...90
  /// StoreKit documentation, "Extending the renewal date for auto-renewable subscriptions".
  private static let mostExtensions = 2
  private static let extensionYear = Duration.days(365)

  /// Apple's reason for not extending; nil if it does.
  func refusal(toExtend number: Int, days: Int) -> ServerAPIError? {
    let line = lines[number]
    guard Self.extensionDays.contains(days) else { return .invalidExtendByDays }
    guard line.ownership == .purchased else { return .familySharedExtensionIneligible }
    guard let renewal = line.renewal, renewal.phase == .paid,
      let current = validCharge(of: number), let end = charges[current].expiresDate, end > now,
      charges[current].priceMilliunits > 0
    else { return .extensionIneligible }
    let recent = customers[line.customer].lines.filter { lines[$0].app == line.app }
      .flatMap { lines[$0].renewal?.extensions ?? [] }
      .filter { now - $0 < Self.extensionYear }
    return recent.count < Self.mostExtensions ? nil : .maxExtensions
  }

  /// Moves the end of the latest paid period, also for the family.
  mutating func extend(_ line: Int, days: Int) -> SimulatedEvent {
    if let current = validCharge(of: line), let end = charges[current].expiresDate {
      let extended = end + .days(days)
      for number in [current] + charges[current].shares where charges[number].stands {
        charges[number].expiresDate = extended
        touch(number)
      }
      lines[line].renewal?.anchor = extended
      lines[line].renewal?.periodsSinceAnchor = 0
      lines[line].renewal?.extensions.append(now)
      scheduleRenewal(of: line)
    }
    return note(.renewalExtended(days: days), line: line)
  }

  /// Extends all active subscriptions to a product, as far as Apple permits.
  mutating func extendAll(
    of product: ProductID, days: Int, in countries: [String]?, identifier: String, app: Int,
    environment: Environment
  ) {
    var succeeded = 0
    var failed: [Subject] = []
    for number in lines.indices {
      let line = lines[number]
      guard line.app == app, line.environment == environment, line.renewal?.phase == .paid,
        let charge = validCharge(of: number), charges[charge].product.id == product,
        countries?.contains(Storefront(currency: charges[charge].product.currency).country)
          ?? true
      else { continue }
      if refusal(toExtend: number, days: days) == nil {
        _ = extend(number, days: days)
        succeeded += 1
      } else {
        failed.append(Subject(charge: charge, line: number))
      }
    }
    let result = MassExtension(
      app: app, environment: environment, identifier: identifier, product: product,
      completedAt: now, succeeded: succeeded, failed: failed.count)
    massExtensions.append(result)
    settle()
    for subject in failed { writeExtensionFailure(subject) }
    writeSummary(of: result, countries: countries)
  }

  /// Continues an active subscription under a new original transaction ID.
  mutating func migrate(_ line: Int) throws -> SimulatedEvent {
    let old = lines[line]
    let running = old.charges.filter { number in
      charges[number].stands && (charges[number].expiresDate.map { $0 > now } ?? false)
    }
    guard let renewal = old.renewal, renewal.phase == .paid, !running.isEmpty else {
      throw SimulationError(.notPossible, "\(old.id) is not an active subscription.")
    }
    let new = openLine(customer: old.customer, app: old.app, group: old.group)
    lines[new].previous = line
    lines[line].next = new
    lines[line].renewal = nil
    lines[new].renewal = renewal
    lines[line].charges.removeAll { running.contains($0) }
    lines[new].charges = running
    for number in running {
      charges[number].line = new
      touch(number)
    }
    for number in lines.indices where lines[number].sharedFrom == line {
      lines[number].sharedFrom = new
    }
    scheduleRenewal(of: new)
    return note(.migrated(from: old.id), line: new)
  }
}

extension AppStoreState {
  /// Refunds a charge, which also ends the family's shares.
  mutating func refund(_ number: Int, reason: String) throws -> SimulatedEvent {
    try checkRefundable(number)
    let charge = charges[number]
    let wasLatest = validCharge(of: charge.line) == number
    // Apple turns auto-renew off with the refund of the latest charge.
    if wasLatest, lines[charge.line].renewal?.isOn == true {
      switchRenewal(of: charge.line, on: false)
      note(.autoRenewTurnedOff, charge: number)
    }
    let event = revoke(number, reason: reason, as: .refunded)
    for share in charge.shares where charges[share].stands {
      revoke(share, reason: reason, as: .familyAccessRevoked)
    }
    if wasLatest { endRenewal(of: charge.line) }
    return event
  }

  /// Reverses a refund; the charge counts again, and auto-renew stays unchanged.
  mutating func reverseRefund(_ number: Int) throws -> SimulatedEvent {
    guard charges[number].revocation(asOf: now) != nil,
      lines[charges[number].line].ownership == .purchased
    else {
      throw SimulationError(
        .notPossible, "\(charges[number].transactionID) is not refunded.")
    }
    for revoked in [number] + charges[number].shares {
      for index in charges[revoked].revocations.indices
      where charges[revoked].revocations[index].reversedAt == nil {
        charges[revoked].revocations[index].reversedAt = now
        touch(revoked)
      }
    }
    let line = charges[number].line
    if validCharge(of: line) == number { resumePaidPeriod(of: line) }
    return note(.refundReversed, charge: number)
  }

  // MARK: Requests

  mutating func requestRefund(_ number: Int, reason: SimulatedEvent.RefundRequestReason) throws
    -> SimulatedEvent
  {
    try checkRefundable(number)
    return note(.refundRequested(reason), charge: number)
  }

  mutating func declineRefund(_ number: Int) throws -> SimulatedEvent {
    try checkRefundable(number)
    return note(.refundDeclined, charge: number)
  }

  private func checkRefundable(_ number: Int) throws {
    let charge = charges[number]
    guard lines[charge.line].ownership == .purchased else {
      throw SimulationError(.notPossible, "Only the purchaser's charge can be refunded.")
    }
    guard charge.revocation(asOf: now) == nil else {
      throw SimulationError(.notPossible, "\(charge.transactionID) is already refunded.")
    }
  }

  // MARK: Revocations

  @discardableResult
  mutating func revoke(_ number: Int, reason: String, as kind: SimulatedEvent.Kind)
    -> SimulatedEvent
  {
    charges[number].revocations.append(Charge.Revocation(at: now.wholeSecond, reason: reason))
    touch(number)
    return note(kind, charge: number)
  }

  private mutating func endRenewal(of line: Int) {
    guard lines[line].renewal != nil else { return }
    lines[line].renewal?.schedule += 1
    lines[line].renewal?.phase = .expired(intent: 1)
    // After the refund of an early renewal, the previous period is still active.
    resumePaidPeriod(of: line)
  }

  private mutating func resumePaidPeriod(of line: Int) {
    guard lines[line].renewal != nil, let charge = validCharge(of: line),
      let end = charges[charge].expiresDate, end > now
    else { return }
    lines[line].renewal?.phase = .paid
    scheduleRenewal(of: line)
  }
}
