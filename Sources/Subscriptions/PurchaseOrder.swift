package import struct Foundation.UUID

/// What an account set out to buy, before it paid.
package struct PurchaseOrder: Hashable, Sendable {
  /// Where an order stands.
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

  /// Whether an order is still to be paid, or was given up too early.
  ///
  /// A paid transaction that arrives after the order expired still fulfils it.
  package var awaitsPayment: Bool { status == .open || status == .expired }

  /// What comes of naming an order in a submission.
  package enum NamedOrder: Hashable, Sendable {
    case fulfilled(by: Charge.ID)
    /// It is another account's: reported, and stays open.
    case accountMismatch
    /// No charge of the submission is for its product: reported, and stays open.
    case productMismatch
    /// It was fulfilled before, or is refunded; nothing changes.
    case notAwaitingPayment
    /// Nothing in the submission can fulfil it yet.
    case stillOpen
  }

  /// A charge that could fulfil an order.
  package struct Payment: Hashable, Sendable {
    package var charge: Charge
    package var decision: Decision
    /// The order that it fulfilled already.
    package var fulfils: UUID?

    package init(charge: Charge, decision: Decision, fulfils: UUID?) {
      self.charge = charge
      self.decision = decision
      self.fulfils = fulfils
    }

    /// Whether this pays for something that its owner was still to get.
    fileprivate func canFulfil(ordersOf account: AccountKey) -> Bool {
      fulfils == nil && decision.owner == account && charge.revocation == nil
        && charge.supersededAt == nil
    }
  }

  /// Matches the order that a submission names.
  ///
  /// Whatever the dates are, and whatever the period's end suggests of a charge whose kind Apple
  /// does not tell; but never by what Apple says it charged by itself.
  package func match(submittedBy account: AccountKey, among payments: [Payment]) -> NamedOrder {
    guard self.account == account else { return .accountMismatch }
    guard awaitsPayment else { return .notAwaitingPayment }
    guard payments.contains(where: { $0.charge.productID == productID }) else {
      return payments.isEmpty ? .stillOpen : .productMismatch
    }
    let payment = payments.first {
      $0.charge.productID == productID && !$0.isCalledAutomatic
        && $0.canFulfil(ordersOf: account)
    }
    return payment.map { .fulfilled(by: $0.charge.id) } ?? .stillOpen
  }

  /// Finds the order that a charge fulfils without being told.
  ///
  /// It is the owner's oldest open one for the product, made no later than five minutes after the
  /// purchase.
  package static func oldestOpen(among orders: [PurchaseOrder], for payment: Payment)
    -> PurchaseOrder?
  {
    guard let owner = payment.decision.owner, payment.canFulfil(ordersOf: owner),
      !payment.isAutomaticRenewal
    else { return nil }
    return
      orders
      .filter { order in
        order.awaitsPayment && order.account == owner
          && order.productID == payment.charge.productID
          && order.createdAt <= payment.charge.date + .clockTolerance
      }
      .min { ($0.createdAt, $0.id) < ($1.createdAt, $1.id) }
  }
}

extension PurchaseOrder.Payment {
  /// Whether Apple charged without anybody buying.
  package var isAutomaticRenewal: Bool {
    switch decision.finding.ground {
    case .renewedAtPeriodEnd, .recoveredFromBillingProblem: charge.kind != .purchase
    default: isCalledAutomatic
    }
  }

  /// Whether Apple says so.
  fileprivate var isCalledAutomatic: Bool {
    switch decision.finding.ground {
    // Apple charged at the period's end what another account had bought before.
    case .orderedByAnotherAccount, .tokenOfAnotherAccount: false
    default: charge.kind == .renewal
    }
  }
}
