import Foundation
import JSONText
import Postgres
import Subscriptions

/// Matches orders with a recording: charges fulfil them, refunds mark them as refunded, and a
/// charge that turns out to be another account's reopens the order that it fulfilled.
struct OrderMatching: Sendable {
  private let recording: Recording
  private let submitted: SubmittedOrders?
  private let terms: AccessTerms
  private let lifetime: Duration
  private let now: Timestamp
  /// The fulfilled orders whose charges got another owner; not by an override, which leaves the
  /// paid order fulfilled.
  private let corrected: [UUID: (charge: Charge, owner: AccountKey?)]
  private var fulfilments: [Charge.ID: UUID]
  /// The orders to write to transactions; nil: none any more.
  private(set) var assigned: [TransactionKey: UUID?] = [:]

  private(set) var statements: [SQL] = []
  /// The changed orders' seals.
  private(set) var seals: [AccountChain.Seal] = []
  private(set) var events: [LedgerEvent] = []
  /// The result of naming an order; nil if the submission named none.
  private(set) var namedOrder: PurchaseOrder.NamedOrder?
  /// The order that the submission's charge fulfilled, named or not.
  private(set) var fulfilledOrder: UUID?

  /// - Parameter lifetime: How long an order waits for its payment.
  init(
    _ recording: Recording, submitted: SubmittedOrders?, terms: AccessTerms, lifetime: Duration,
    at now: Timestamp
  ) {
    self.recording = recording
    self.submitted = submitted
    self.terms = terms
    self.lifetime = lifetime
    self.now = now
    fulfilments = [:]
    var corrected: [UUID: (charge: Charge, owner: AccountKey?)] = [:]
    for original in recording.distinctOriginals {
      fulfilments.merge(original.orders) { first, _ in first }
      for change in original.changes where change.changesOwner && change.action != .placed {
        guard let (charge, recorded) = original.charge(of: change.charge) else { continue }
        for (_, order) in Self.orders(of: charge, in: original) {
          corrected[order] = (charge, recorded.decision.owner)
        }
      }
    }
    self.corrected = corrected
  }

  // MARK: Orders to read

  var fulfilledOrders: Set<UUID> { Set(corrected.keys).union(revoked.keys) }

  /// The orders among them to reopen, with their accounts, in the order of locking.
  func misassigned(_ accounts: [UUID: AccountKey]) -> [(order: UUID, account: AccountKey)] {
    accounts.filter { order, account in corrected[order].map { $0.owner != account } ?? false }
      .sorted { ($0.value, $0.key) < ($1.value, $1.key) }
      .map { ($0.key, $0.value) }
  }

  /// The named order, if it was not read with the submission.
  var missingOrder: (id: UUID, account: AccountKey)? {
    guard let submitted, let id = submitted.orderID, submitted.named == nil else { return nil }
    return (id, submitted.account)
  }

  /// The orders that payments may fulfil without naming them.
  var wanted: [WantedOrders] {
    let reopened = Set(corrected.values.map(\.charge.id))
    return payments { fulfilments[$0] == nil || reopened.contains($0) }.compactMap {
      owner, payments in
      guard let times = PurchaseOrder.OpeningTimes(purchasedAt: payments.map(\.charge.date)) else {
        return nil
      }
      let wanted = WantedOrders(
        account: owner, products: Set(payments.map(\.charge.productID)), times: times)
      return submitted.map { $0.include(wanted) } ?? false ? nil : wanted
    }
  }

  private func payments(where isWanted: (Charge.ID) -> Bool)
    -> [(owner: AccountKey, payments: [PurchaseOrder.Payment])]
  {
    var seen: Set<Charge.ID> = []
    let decided = recording.distinctOriginals.flatMap(\.changes).filter(\.changesOwner)
    let open = (submittedPayments + decided.compactMap { payment($0.charge) })
      .filter { seen.insert($0.charge.id).inserted }
      .filter { isWanted($0.charge.id) && !$0.isAutomaticRenewal }
      .sorted { ($0.charge.date, $0.charge.id) > ($1.charge.date, $1.charge.id) }
    return Set(open.compactMap(\.decision.owner)).sorted().map { owner in
      (owner, open.filter { $0.decision.owner == owner })
    }
  }

  private var submittedPayments: [PurchaseOrder.Payment] {
    submitted?.transactions.compactMap(payment) ?? []
  }

  /// The charge that a transaction reports as a payment; nil if it grants its owner nothing.
  private func payment(_ key: TransactionKey) -> PurchaseOrder.Payment? {
    guard let original = recording.original(of: key),
      let (charge, recorded) = original.charge(of: key)
    else { return nil }
    if let owner = recorded.decision.owner, let name = original.names[owner],
      !terms.sandboxAccess.grants(charge.id.line.environment, to: name)
    {
      return nil
    }
    return PurchaseOrder.Payment(
      charge: charge, decision: recorded.decision, fulfils: fulfilments[charge.id])
  }

  // MARK: Matching

  /// Matches the order that a submission names, then every charge that got an owner or was
  /// submitted.
  ///
  /// A charge that does not fulfil the named order is matched as if none had been named, because
  /// the money has been paid.
  mutating func match(among orders: OrdersInReach) {
    for order in orders.misassigned {
      if let charge = corrected[order.id]?.charge { reopen(order, fulfilledBy: charge) }
    }
    followRefunds(orders.accounts)
    if let submitted, let id = submitted.orderID {
      if let order = submitted.named ?? orders.named {
        match(order, of: submitted)
      } else {
        namedOrder = orders.accounts[id] == nil ? .unknown : .accountMismatch
      }
    }
    fulfilLatest(among: orders)
    if let submitted, fulfilledOrder == nil {
      fulfilledOrder =
        submittedPayments
        .first { $0.decision.owner == submitted.account && $0.fulfils != nil }?.fulfils
    }
  }

  /// Lets a submitted charge fulfil the order that was named; an order that the charge was matched
  /// with without being named is open again.
  private mutating func match(_ order: PurchaseOrder, of submitted: SubmittedOrders) {
    let (payments, yielding) = (submittedPayments, submitted.yielding)
    let match = order.match(
      submittedBy: submitted.account, among: payments, yielding: Set(yielding.keys))
    namedOrder = match
    guard case .fulfilled(let id) = match else { return }
    fulfilledOrder = order.id
    guard let payment = payments.first(where: { $0.charge.id == id }) else { return }
    if payment.fulfils == order.id {
      write([OrderStore.nameOrder(order)], order.id, of: order.account)
    } else {
      if let matched = payment.fulfils.flatMap({ yielding[$0] }) {
        reopen(matched, fulfilledBy: payment.charge)
      }
      fulfil(order, by: payment.charge, isNamed: true)
    }
  }

  /// Lets each payment that fulfils no order yet fulfil its owner's latest one, the latest payment
  /// first.
  private mutating func fulfilLatest(among reach: OrdersInReach) {
    for (owner, payments) in payments(where: { fulfilments[$0] == nil }) {
      var orders = reach.awaiting[owner] ?? submitted?.awaiting ?? []
      let taken = Set(fulfilments.values)
      orders.removeAll { taken.contains($0.id) }
      for payment in payments {
        guard let order = PurchaseOrder.latest(among: orders, for: payment) else { continue }
        orders.removeAll { $0.id == order.id }
        fulfil(order, by: payment.charge, isNamed: false)
      }
    }
  }

  private mutating func fulfil(_ order: PurchaseOrder, by charge: Charge, isNamed: Bool) {
    fulfilments[charge.id] = order.id
    write(
      OrderStore.fulfil(order, by: charge, isNamed: isNamed, at: now), order.id, of: order.account)
    assigned[charge.id] = order.id
    note(.orderFulfilled, order.id, of: order.account, order.productID, charge)
  }

  private mutating func reopen(_ order: PurchaseOrder, fulfilledBy charge: Charge) {
    fulfilments[charge.id] = nil
    write(
      OrderStore.reopen(order, lifetime: lifetime, at: now), order.id, of: order.account)
    if let original = recording.original(of: charge.id) {
      for (key, _) in Self.orders(of: charge, in: original).filter({ $0.order == order.id }) {
        assigned[key] = .some(nil)
      }
    }
    note(.orderReopened, order.id, of: order.account, order.productID, charge)
  }

  private mutating func write(_ statements: [SQL], _ order: UUID, of account: AccountKey) {
    self.statements += statements
    seals.append(AccountChain.seal(account, .order, order))
  }

  private mutating func note(
    _ kind: LedgerEvent.Kind, _ order: UUID, of account: AccountKey, _ productID: ProductID,
    _ charge: Charge
  ) {
    var data = EventData(charge)
    data.orderID = order.text
    data.productID = productID
    data.terms = recording.original(of: charge.id)?.line.reportedTerms(of: charge)
    events.append(LedgerEvent(kind, at: now, account: account, data: data))
  }

  private static func orders(of charge: Charge, in original: RecordedOriginalTransaction)
    -> [(key: TransactionKey, order: UUID)]
  {
    charge.transactions.compactMap { key in
      original.before.members[key.line]?.fulfilments[key]?.orderID.map { (key, $0) }
    }
  }

  /// The charges with orders that the recording found revoked, or restored.
  private var revoked: [UUID: Charge] {
    Dictionary(
      recording.distinctOriginals.flatMap(\.revocationChanges).compactMap { charge in
        fulfilments[charge.id].map { ($0, charge) }
      }
    ) { first, _ in first }
  }

  private mutating func followRefunds(_ accounts: [UUID: AccountKey]) {
    // The charge may be another account's after an override.
    for (order, charge) in revoked.sorted(by: { $0.value.id < $1.value.id }) {
      guard let account = accounts[order] else { continue }
      let isRefunded = charge.revocation != nil
      write(
        [OrderStore.refund(order, of: account, isRefunded: isRefunded)], order, of: account)
      guard wasRefunded(charge) != isRefunded else { continue }
      let kind: LedgerEvent.Kind = isRefunded ? .orderRefunded : .orderFulfilled
      note(kind, order, of: account, charge.productID, charge)
    }
  }

  /// Whether the charge was refunded before: a new date is not a change.
  private func wasRefunded(_ charge: Charge) -> Bool {
    guard let rule = recording.original(of: charge.id)?.before.rule,
      let position = rule.position(of: charge.id)
    else { return false }
    return rule.charges[position].revocation != nil
  }
}

/// An account's orders for products that were opened at some time.
struct WantedOrders: Sendable {
  let account: AccountKey
  let products: Set<ProductID>
  let times: PurchaseOrder.OpeningTimes
}

/// The orders that a recording may change beyond those that were read with a submission, locked.
struct OrdersInReach: Sendable {
  /// The accounts of fulfilled and named orders.
  fileprivate(set) var accounts: [UUID: AccountKey] = [:]
  /// Fulfilled by charges of other accounts.
  fileprivate(set) var misassigned: [PurchaseOrder] = []
  fileprivate(set) var named: PurchaseOrder?
  fileprivate(set) var awaiting: [AccountKey: [PurchaseOrder]] = [:]
}

extension Recorder {
  /// Locks and reads the orders that a recording may change; most often there are none.
  func ordersInReach(of matching: OrderMatching, in transaction: Transaction) async throws
    -> OrdersInReach
  {
    var orders = OrdersInReach()
    let missing = matching.missingOrder
    let ids = matching.fulfilledOrders.union(missing.map { [$0.id] } ?? [])
    if !ids.isEmpty {
      orders.accounts = try await self.orders.accounts(ofOrders: ids, in: transaction)
    }
    func lock(_ statements: [SQL]) async throws -> [PurchaseOrder] {
      guard !statements.isEmpty else { return [] }
      return try await transaction.batch(statements).flatMap(OrderStore.orders)
    }
    orders.misassigned = try await lock(
      matching.misassigned(orders.accounts).map { OrderStore.lock(order: $0.order, of: $0.account) }
    )
    // A merge may have moved it since the orders were read.
    if let missing, orders.accounts[missing.id] == missing.account {
      orders.named = try await lock([OrderStore.lock(order: missing.id, of: missing.account)]).first
    }
    for wanted in matching.wanted {
      orders.awaiting[wanted.account] = try await lock([
        OrderStore.lockOrdersAwaitingPayment(
          of: wanted.account, for: wanted.products, opened: wanted.times)
      ])
    }
    return orders
  }
}

/// The charges that a submission claims, and the orders that it most likely needs, read with its
/// original transactions.
struct SubmittedOrders: Sendable {
  let account: AccountKey
  let transactions: [TransactionKey]
  let orderID: UUID?
  /// The named order, if it is the account's.
  let named: PurchaseOrder?
  let awaiting: [PurchaseOrder]
  /// If an order is named: the orders that charges fulfilled without naming them.
  let yielding: [UUID: PurchaseOrder]
  private let read: WantedOrders

  /// Locks and reads them in one statement and one order, so that submissions of an account never
  /// wait for each other in a circle.
  static func query(for verified: SubmissionStore.VerifiedSubmission) -> Query<SubmittedOrders> {
    let (wanted, orderID) = (WantedOrders(by: verified), verified.submission.orderID)
    let named = orderID.map { id in
      let lines = verified.evidence.flatMap { item in
        if case .link(let line, let previous) = item { [line, previous] } else { [item.line] }
      }
      return (id: id, lines: Set(lines.map(\.originalTransactionID)))
    }
    return Query(
      OrderStore.lockOrdersAwaitingPayment(
        of: wanted.account, for: wanted.products, opened: wanted.times, and: named)
    ) {
      let orders = try OrderStore.orders(from: $0)
      return SubmittedOrders(
        account: wanted.account, transactions: verified.selected, orderID: orderID,
        named: orders.first { $0.id == orderID }, awaiting: orders.filter(\.awaitsPayment),
        yielding: Dictionary(
          uniqueKeysWithValues: orders.filter { !$0.awaitsPayment && $0.id != orderID }
            .map { ($0.id, $0) }), read: wanted)
    }
  }

  func include(_ wanted: WantedOrders) -> Bool {
    wanted.account == read.account && wanted.products.isSubset(of: read.products)
      && read.times.contains(wanted.times)
  }
}

extension WantedOrders {
  fileprivate init(by verified: SubmissionStore.VerifiedSubmission) {
    account = verified.submission.account
    let selected = Set(verified.selected)
    let dates = verified.evidence.compactMap(\.transaction)
      .filter { selected.contains($0.key) }.map(\.chargedAt)
    if let times = PurchaseOrder.OpeningTimes(purchasedAt: dates) {
      (products, self.times) = (Set(selected.map(\.productID)), times)
    } else {
      products = []
      times = PurchaseOrder.OpeningTimes(purchasedAt: verified.submission.receivedAt)
    }
  }
}
