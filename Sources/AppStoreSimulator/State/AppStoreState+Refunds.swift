import Subscriptions

extension AppStoreState {
  /// Gives the money for one charge back; the family's shares in it end with it.
  mutating func refund(_ number: Int, reason: String) throws -> SimulatedEvent {
    try checkRefundable(number)
    let charge = charges[number]
    let wasLatest = standingCharge(of: charge.line) == number
    // Apple switches renewal off with the refund of the latest charge.
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

  /// Undoes a refund: the charge counts again, and renewal stays as it is.
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
    if standingCharge(of: line) == number { resumePaidPeriod(of: line) }
    return note(.refundReversed, charge: number)
  }

  // MARK: Requests

  /// Lets a customer ask for the money: Apple asks the app's server what it knows.
  mutating func requestRefund(_ number: Int, reason: SimulatedEvent.RefundRequestReason) throws
    -> SimulatedEvent
  {
    try checkRefundable(number)
    return note(.refundRequested(reason), charge: number)
  }

  /// Lets Apple keep the money.
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
      throw SimulationError(.notPossible, "\(charge.transactionID) is refunded already.")
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
    // An early renewal was given back: the period before it still runs.
    resumePaidPeriod(of: line)
  }

  private mutating func resumePaidPeriod(of line: Int) {
    guard lines[line].renewal != nil, let charge = standingCharge(of: line),
      let end = charges[charge].expiresDate, end > now
    else { return }
    lines[line].renewal?.phase = .paid
    scheduleRenewal(of: line)
  }
}
