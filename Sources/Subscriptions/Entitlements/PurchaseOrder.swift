package import struct Foundation.UUID

/// An account's intent to buy a product, recorded before it pays.
package struct PurchaseOrder: Hashable, Sendable {
  package enum Status: String, Codable, CaseIterable, Sendable {
    case open
    case fulfilled
    case refunded
    case expired
  }

  package var id: UUID
  package var account: AccountKey
  package var productID: ProductID
  package var createdAt: Timestamp
  package var status: Status

  package init(
    id: UUID, account: AccountKey, productID: ProductID, createdAt: Timestamp, status: Status
  ) {
    self.id = id
    self.account = account
    self.productID = productID
    self.createdAt = createdAt
    self.status = status
  }

  /// Whether a charge can still fulfil the order, even a late one after it has expired.
  package var awaitsPayment: Bool { status == .open || status == .expired }

  package enum NamedOrder: Hashable, Sendable {
    case fulfilled(by: Charge.ID)
    case unknown
    /// The order belongs to another account, or every charge for its product does.
    case accountMismatch
    /// No charge of the submission pays for the order's product.
    case productMismatch
    /// Another charge fulfilled the order, or the charge fulfils another named order.
    case alreadyFulfilled
  }

  package struct Payment: Hashable, Sendable {
    package var charge: Charge
    package var decision: Decision
    package var fulfils: UUID?

    package init(charge: Charge, decision: Decision, fulfils: UUID?) {
      (self.charge, self.decision, self.fulfils) = (charge, decision, fulfils)
    }

    /// Whether the charge gives the account something that can have been ordered.
    fileprivate func pays(_ account: AccountKey) -> Bool {
      decision.owner == account && charge.revocation == nil && charge.supersededAt == nil
    }

    /// Whether Apple charged automatically, so that nothing can have been ordered.
    package var isAutomaticRenewal: Bool {
      decision.isAutomaticRenewal(charge.kind) && !isBoughtByAnother
    }

    fileprivate var isCalledAutomatic: Bool { charge.kind == .renewal && !isBoughtByAnother }

    /// Whether another account bought it, though Apple charged at the period's end.
    private var isBoughtByAnother: Bool {
      [.orderedByAnotherAccount, .tokenOfAnotherAccount].contains(decision.renewal.reason)
    }
  }

  /// Matches the order that a submission names, whatever the dates, but not with a charge that
  /// Apple reports as an automatic renewal.
  ///
  /// - Parameter yielding: Orders that were matched without being named.
  package func match(
    submittedBy account: AccountKey, among payments: [Payment], yielding: Set<UUID> = []
  ) -> NamedOrder {
    guard self.account == account else { return .accountMismatch }
    let payments = payments.filter { $0.charge.productID == productID }
    if let payment = payments.first(where: { $0.fulfils == id }) {
      return .fulfilled(by: payment.charge.id)
    }
    guard awaitsPayment else { return .alreadyFulfilled }
    let candidates = payments.filter { !$0.isCalledAutomatic && $0.pays(account) }
    let payment =
      candidates.first { $0.fulfils == nil }
      ?? candidates.first { $0.fulfils.map(yielding.contains) ?? false }
    if let payment { return .fulfilled(by: payment.charge.id) }
    if !candidates.isEmpty { return .alreadyFulfilled }
    let isOthers = !payments.isEmpty && payments.allSatisfy { $0.decision.owner != account }
    return isOthers ? .accountMismatch : .productMismatch
  }

  /// The age at a purchase up to which an expired order still matches.
  private static let longestExpired: Duration = .days(60)

  package struct OpeningTimes: Hashable, Sendable {
    /// For expired orders; open ones have no lower limit.
    package var earliest: Timestamp
    package var latest: Timestamp

    package init(purchasedAt date: Timestamp) {
      earliest = date - longestExpired
      latest = date + .clockTolerance
    }

    package init?(purchasedAt dates: some Collection<Timestamp>) {
      guard let first = dates.min(), let last = dates.max() else { return nil }
      earliest = OpeningTimes(purchasedAt: first).earliest
      latest = OpeningTimes(purchasedAt: last).latest
    }

    package func contains(_ other: OpeningTimes) -> Bool {
      earliest <= other.earliest && other.latest <= latest
    }

    fileprivate func contains(_ order: PurchaseOrder) -> Bool {
      order.createdAt <= latest && (order.status == .open || earliest <= order.createdAt)
    }
  }

  /// Finds the order that a charge fulfils without being named: the owner's latest open one for the
  /// product, opened no later than five minutes after the purchase, because each cancelled payment
  /// leaves an open order behind, or else the latest expired one of the 60 days before.
  package static func latest(among orders: [PurchaseOrder], for payment: Payment)
    -> PurchaseOrder?
  {
    guard let owner = payment.decision.owner, payment.fulfils == nil, payment.pays(owner),
      !payment.isAutomaticRenewal
    else { return nil }
    let times = OpeningTimes(purchasedAt: payment.charge.date)
    let candidates = orders.filter { order in
      order.awaitsPayment && order.account == owner
        && order.productID == payment.charge.productID && times.contains(order)
    }
    let open = candidates.filter { $0.status == .open }
    return (open.isEmpty ? candidates : open).max { ($0.createdAt, $0.id) < ($1.createdAt, $1.id) }
  }
}
