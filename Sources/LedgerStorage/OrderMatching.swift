import Foundation
import Postgres
import Subscriptions

/// Lets what was just recorded fulfil orders, and follows refunds on those fulfilled before.
struct OrderMatching {
  private let recording: Recording
  private let grantsAccess: @Sendable (String, Environment) -> Bool
  private let now: Timestamp
  /// The statements that write what was matched.
  private(set) var statements: [SQL] = []
  private var fulfilments: [Charge.ID: UUID]

  init(
    recording: Recording, grantsAccess: @escaping @Sendable (String, Environment) -> Bool,
    now: Timestamp
  ) {
    self.recording = recording
    self.grantsAccess = grantsAccess
    self.now = now
    fulfilments = [:]
    for family in recording.families.values {
      fulfilments.merge(family.orders) { first, _ in first }
    }
  }

  /// Matches the order that a submission names, then every charge that got an owner or was
  /// submitted.
  mutating func match(
    named orderID: UUID?, by account: AccountKey, among selected: [TransactionKey],
    in ledger: Ledger, _ transaction: Transaction, result: inout Ledger.RecordedSubmission
  ) async throws {
    followRefunds()
    let submitted = selected.compactMap { payment($0) }
    if let orderID {
      guard let order = try await ledger.lockOrder(orderID, in: transaction) else {
        result.namedOrder = .unknown
        return
      }
      let match = order.match(submittedBy: account, among: submitted)
      result.namedOrder = .matched(match)
      if case .fulfilled(let id) = match, let payment = payment(id) {
        fulfil(order, by: payment.charge)
        result.fulfilledOrder = order.id
      }
    }

    let decided = recording.families.values.flatMap(\.changes).filter(\.changesOwner)
      .compactMap { payment($0.charge) }
    var seen: Set<Charge.ID> = []
    let payments = (submitted + decided).filter { seen.insert($0.charge.id).inserted }
    let open = payments.filter { fulfilments[$0.charge.id] == nil && !$0.isAutomaticRenewal }
    for owner in Set(open.compactMap(\.decision.owner)).sorted() {
      let products = Set(open.filter { $0.decision.owner == owner }.map(\.charge.productID))
      var orders = try await ledger.lockOrdersAwaitingPayment(
        of: owner, for: products, in: transaction)
      let taken = Set(fulfilments.values)
      orders.removeAll { taken.contains($0.id) }
      for payment in open where payment.decision.owner == owner {
        guard let order = PurchaseOrder.oldestOpen(among: orders, for: payment) else { continue }
        orders.removeAll { $0.id == order.id }
        fulfil(order, by: payment.charge)
      }
    }
    if result.fulfilledOrder == nil {
      result.fulfilledOrder =
        submitted
        .first { $0.decision.owner == account && fulfilments[$0.charge.id] != nil }
        .flatMap { fulfilments[$0.charge.id] }
    }
  }

  private mutating func fulfil(_ order: PurchaseOrder, by charge: Charge) {
    fulfilments[charge.id] = order.id
    statements += Ledger.fulfil(order, by: charge, at: now)
  }

  /// The charge that a transaction reports as a payment; nil if it grants its owner nothing.
  private func payment(_ key: TransactionKey) -> PurchaseOrder.Payment? {
    guard let family = recording.family(of: key), let (charge, recorded) = family.charge(of: key)
    else { return nil }
    if let owner = recorded.decision.owner, let name = family.names[owner],
      !grantsAccess(name, charge.id.line.environment)
    {
      return nil
    }
    return PurchaseOrder.Payment(
      charge: charge, decision: recorded.decision, fulfils: fulfilments[charge.id])
  }

  private mutating func followRefunds() {
    let changed = Dictionary(
      recording.families.values.flatMap { family in family.revocationChanges.map { ($0.id, $0) } }
    ) { first, _ in first }
    for charge in changed.values.sorted(by: { $0.id < $1.id }) {
      guard let order = fulfilments[charge.id],
        let owner = recording.family(of: charge.id)?.charge(of: charge.id)?.recorded.decision.owner
      else { continue }
      statements.append(
        Ledger.refund(order, of: owner, isRefunded: charge.revocation != nil))
    }
  }
}
