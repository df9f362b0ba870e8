import Foundation
import Postgres
import Subscriptions

/// Lets what was just recorded fulfil orders, and follows refunds on those fulfilled before.
struct OrderMatching {
  private let recording: Recording
  private let terms: AccessTerms
  private let now: Timestamp
  /// The statements that write what was matched.
  private(set) var statements: [SQL] = []
  /// What became of orders.
  private(set) var changes: [OrderChange] = []
  private var fulfilments: [Charge.ID: UUID]

  init(recording: Recording, terms: AccessTerms, now: Timestamp) {
    self.recording = recording
    self.terms = terms
    self.now = now
    fulfilments = [:]
    for family in recording.families.values {
      fulfilments.merge(family.orders) { first, _ in first }
    }
  }

  /// Matches the order that a submission names, then every charge that got an owner or was
  /// submitted.
  ///
  /// An order that is unknown, or another account's or product's, is reported, and otherwise it is
  /// as if none had been named: the money has been paid, so the account's oldest open order for the
  /// product is fulfilled.
  mutating func match(
    named orderID: UUID?, by account: AccountKey, among selected: [TransactionKey],
    atHand: OrdersAtHand, in ledger: Ledger, _ transaction: Transaction,
    result: inout Ledger.RecordedSubmission
  ) async throws {
    try await followRefunds(in: ledger, transaction)
    let submitted = selected.compactMap { payment($0) }
    if let orderID {
      // One that the account does not have may be another's: only then is it looked for.
      var order = atHand.named
      if order == nil { order = try await ledger.lockOrder(orderID, in: transaction) }
      if let order {
        let match = order.match(submittedBy: account, among: submitted)
        result.namedOrder = .matched(match)
        if case .fulfilled(let id) = match, let payment = payment(id) {
          fulfil(order, by: payment.charge)
          result.fulfilledOrder = order.id
        }
      } else {
        result.namedOrder = .unknown
      }
    }

    try await fulfilOldest(by: submitted + decided, atHand: atHand, transaction)
    if result.fulfilledOrder == nil {
      result.fulfilledOrder =
        submitted
        .first { $0.decision.owner == account && fulfilments[$0.charge.id] != nil }
        .flatMap { fulfilments[$0.charge.id] }
    }
  }

  /// Matches every charge that got an owner, where nobody submitted anything.
  mutating func matchDecided(in ledger: Ledger, _ transaction: Transaction) async throws {
    try await followRefunds(in: ledger, transaction)
    try await fulfilOldest(by: decided, atHand: nil, transaction)
  }

  /// The charges that got an owner by this recording, as payments.
  private var decided: [PurchaseOrder.Payment] {
    recording.families.values.flatMap(\.changes).filter(\.changesOwner)
      .compactMap { payment($0.charge) }
  }

  /// Lets each payment that nobody bought anything else with fulfil its owner's oldest open order.
  private mutating func fulfilOldest(
    by payments: [PurchaseOrder.Payment], atHand: OrdersAtHand?, _ transaction: Transaction
  ) async throws {
    var seen: Set<Charge.ID> = []
    let open = payments.filter { seen.insert($0.charge.id).inserted }
      .filter { fulfilments[$0.charge.id] == nil && !$0.isAutomaticRenewal }
    for owner in Set(open.compactMap(\.decision.owner)).sorted() {
      let products = Set(open.filter { $0.decision.owner == owner }.map(\.charge.productID))
      var orders = try await orders(of: owner, for: products, atHand: atHand, transaction)
      let taken = Set(fulfilments.values)
      orders.removeAll { taken.contains($0.id) }
      for payment in open where payment.decision.owner == owner {
        guard let order = PurchaseOrder.oldestOpen(among: orders, for: payment) else { continue }
        orders.removeAll { $0.id == order.id }
        fulfil(order, by: payment.charge)
      }
    }
  }

  private func orders(
    of account: AccountKey, for products: Set<ProductID>, atHand: OrdersAtHand?,
    _ transaction: Transaction
  ) async throws -> [PurchaseOrder] {
    if let atHand, account == atHand.account, products.isSubset(of: atHand.products) {
      return atHand.awaiting
    }
    return try await Ledger.orders(
      from: transaction.query(Ledger.lockOrdersAwaitingPayment(of: account, for: products)))
  }

  private mutating func fulfil(_ order: PurchaseOrder, by charge: Charge) {
    fulfilments[charge.id] = order.id
    statements += Ledger.fulfil(order, by: charge, at: now)
    changes.append(
      OrderChange(
        order: order.id, account: order.account, productID: order.productID, charge: charge.id,
        change: .fulfilled))
  }

  /// The charge that a transaction reports as a payment; nil if it grants its owner nothing.
  private func payment(_ key: TransactionKey) -> PurchaseOrder.Payment? {
    guard let family = recording.family(of: key), let (charge, recorded) = family.charge(of: key)
    else { return nil }
    if let owner = recorded.decision.owner, let name = family.names[owner],
      !terms.grantsAccess(in: charge.id.line.environment, to: name)
    {
      return nil
    }
    return PurchaseOrder.Payment(
      charge: charge, decision: recorded.decision, fulfils: fulfilments[charge.id])
  }

  private mutating func followRefunds(in ledger: Ledger, _ transaction: Transaction) async throws {
    let changed = Dictionary(
      recording.families.values.flatMap(\.revocationChanges).compactMap { charge in
        fulfilments[charge.id].map { ($0, charge) }
      }
    ) { first, _ in first }
    guard !changed.isEmpty else { return }
    // A correction may have given the charge to somebody else since: the order is its account's.
    let accounts = try await ledger.accounts(ofOrders: Set(changed.keys), in: transaction)
    for (order, charge) in changed.sorted(by: { $0.value.id < $1.value.id }) {
      guard let account = accounts[order] else { continue }
      let isRefunded = charge.revocation != nil
      statements.append(Ledger.refund(order, of: account, isRefunded: isRefunded))
      guard wasRefunded(charge) != isRefunded else { continue }
      changes.append(
        OrderChange(
          order: order, account: account, productID: charge.productID, charge: charge.id,
          change: isRefunded ? .refunded : .fulfilled))
    }
  }

  /// Whether a charge was known to be refunded before: another date of it is no change.
  private func wasRefunded(_ charge: Charge) -> Bool {
    guard let rule = recording.family(of: charge.id)?.ruleBefore,
      let position = rule.position(of: charge.id)
    else { return false }
    return rule.charges[position].revocation != nil
  }
}

/// The orders that a submission most likely needs, read along with its lines before it is known
/// which it does.
struct OrdersAtHand: Sendable {
  let account: AccountKey
  /// The order that was named, if it is the account's.
  private(set) var named: PurchaseOrder?
  /// The account's orders for `products` that wait for their payment.
  private(set) var awaiting: [PurchaseOrder] = []
  private(set) var products: Set<ProductID> = []

  /// The statement that locks and reads them; ``init(of:named:selected:from:)`` reads its result.
  static func lock(
    of account: AccountKey, named orderID: UUID?, selected: [TransactionKey]
  ) -> SQL {
    if let orderID { return Ledger.lock(order: orderID, of: account) }
    return Ledger.lockOrdersAwaitingPayment(of: account, for: Set(selected.map(\.productID)))
  }

  init(
    of account: AccountKey, named orderID: UUID?, selected: [TransactionKey], from rows: Rows
  ) throws {
    self.account = account
    let orders = try Ledger.orders(from: rows)
    if orderID == nil {
      awaiting = orders
      products = Set(selected.map(\.productID))
    } else {
      named = orders.first
    }
  }
}

/// What became of an order by a recording.
struct OrderChange: Hashable, Sendable {
  enum Change: Hashable, Sendable {
    /// Paid, or its refund was reversed.
    case fulfilled
    case refunded
  }

  var order: UUID
  var account: AccountKey
  var productID: ProductID
  var charge: Charge.ID
  var change: Change
}
