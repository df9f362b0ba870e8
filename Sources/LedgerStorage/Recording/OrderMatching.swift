import Foundation
import Postgres
import Subscriptions

/// Matches orders with what was just recorded: charges fulfil them, refunds mark them as refunded,
/// and a charge that turns out to be another account's opens the order that it fulfilled again.
struct OrderMatching {
  private let recording: Recording
  private let terms: AccessTerms
  private let now: Timestamp
  /// The statements that write the result.
  private(set) var statements: [SQL] = []
  private(set) var changes: [OrderChange] = []
  private var fulfilments: [Charge.ID: UUID]
  /// The orders that transactions name after the statements, where these say so.
  private var named: [TransactionKey: UUID?] = [:]

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
  /// A charge that does not fulfil the named order is matched as if none had been named, because
  /// the money has been paid.
  mutating func match(
    named orderID: UUID?, by account: AccountKey, among selected: [TransactionKey],
    atHand: OrdersAtHand, in ledger: Ledger, _ transaction: Transaction,
    result: inout Ledger.RecordedSubmission
  ) async throws {
    try await reopenCorrected(in: ledger, transaction)
    try await followRefunds(in: ledger, transaction)
    if let orderID {
      var order = atHand.named
      var owner = order?.account
      if order == nil {
        owner = try await ledger.accounts(ofOrders: [orderID], in: transaction)[orderID]
      }
      if order == nil, owner == account {
        // A merge has moved it here since the orders were read.
        order = try await Ledger.orders(
          from: transaction.query(Ledger.lock(order: orderID, of: account))
        ).first
      }
      if let order {
        let match = match(
          order, by: account, among: selected.compactMap { payment($0) },
          yielding: atHand.yielding, in: ledger)
        result.namedOrder = .matched(match)
        if case .fulfilled = match { result.fulfilledOrder = order.id }
      } else {
        result.namedOrder = owner == nil ? .unknown : .matched(.accountMismatch)
      }
    }

    let submitted = selected.compactMap { payment($0) }
    try await fulfilLatest(by: submitted + decided, atHand: atHand, transaction)
    if result.fulfilledOrder == nil {
      result.fulfilledOrder =
        submitted
        .first { $0.decision.owner == account && fulfilments[$0.charge.id] != nil }
        .flatMap { fulfilments[$0.charge.id] }
    }
  }

  /// Matches every charge that got an owner without a submission.
  mutating func matchDecided(in ledger: Ledger, _ transaction: Transaction) async throws {
    try await reopenCorrected(in: ledger, transaction)
    try await followRefunds(in: ledger, transaction)
    try await fulfilLatest(by: decided, atHand: nil, transaction)
  }

  /// The charges that got an owner by this recording, as payments.
  private var decided: [PurchaseOrder.Payment] {
    recording.families.values.flatMap(\.changes).filter(\.changesOwner)
      .compactMap { payment($0.charge) }
  }

  /// Lets a submitted charge fulfil the order that was named; an order that the charge was matched
  /// with without being named is open again.
  private mutating func match(
    _ order: PurchaseOrder, by account: AccountKey, among payments: [PurchaseOrder.Payment],
    yielding: [UUID: PurchaseOrder], in ledger: Ledger
  ) -> PurchaseOrder.NamedOrder {
    let match = order.match(
      submittedBy: account, among: payments, yielding: Set(yielding.keys))
    guard case .fulfilled(let id) = match,
      let payment = payments.first(where: { $0.charge.id == id })
    else { return match }
    if payment.fulfils == order.id {
      statements.append(Ledger.nameOrder(order))
    } else {
      if let matched = payment.fulfils.flatMap({ yielding[$0] }) {
        reopen(matched, fulfilledBy: payment.charge, in: ledger)
      }
      fulfil(order, by: payment.charge, isNamed: true)
    }
    return match
  }

  /// Lets each payment that fulfils no order yet fulfil its owner's latest one, the latest payment
  /// first.
  private mutating func fulfilLatest(
    by payments: [PurchaseOrder.Payment], atHand: OrdersAtHand?, _ transaction: Transaction
  ) async throws {
    var seen: Set<Charge.ID> = []
    let open = payments.filter { seen.insert($0.charge.id).inserted }
      .filter { fulfilments[$0.charge.id] == nil && !$0.isAutomaticRenewal }
      .sorted { ($0.charge.date, $0.charge.id) > ($1.charge.date, $1.charge.id) }
    for owner in Set(open.compactMap(\.decision.owner)).sorted() {
      let payments = open.filter { $0.decision.owner == owner }
      guard let times = PurchaseOrder.OpeningTimes(purchasedAt: payments.map(\.charge.date)) else {
        continue
      }
      var orders = try await orders(
        of: owner, for: Set(payments.map(\.charge.productID)), opened: times, atHand: atHand,
        transaction)
      let taken = Set(fulfilments.values)
      orders.removeAll { taken.contains($0.id) }
      for payment in payments {
        guard let order = PurchaseOrder.latest(among: orders, for: payment) else { continue }
        orders.removeAll { $0.id == order.id }
        fulfil(order, by: payment.charge, isNamed: false)
      }
    }
  }

  private func orders(
    of account: AccountKey, for products: Set<ProductID>, opened times: PurchaseOrder.OpeningTimes,
    atHand: OrdersAtHand?, _ transaction: Transaction
  ) async throws -> [PurchaseOrder] {
    if let atHand, account == atHand.account, products.isSubset(of: atHand.products),
      atHand.times.contains(times)
    {
      return atHand.awaiting
    }
    return try await Ledger.orders(
      from: transaction.query(
        Ledger.lockOrdersAwaitingPayment(of: account, for: products, opened: times)))
  }

  private mutating func fulfil(_ order: PurchaseOrder, by charge: Charge, isNamed: Bool) {
    fulfilments[charge.id] = order.id
    statements += Ledger.fulfil(order, by: charge, isNamed: isNamed, at: now)
    set(order.id, on: charge.id)
    note(.fulfilled, order, charge)
  }

  private mutating func reopen(
    _ order: PurchaseOrder, fulfilledBy charge: Charge, in ledger: Ledger
  ) {
    fulfilments[charge.id] = nil
    let transactions = self.transactions(of: charge).filter { $0.order == order.id }.map(\.key)
    statements += ledger.reopen(order, at: now)
    for transaction in transactions { set(nil, on: transaction) }
    note(.reopened, order, charge)
  }

  /// Lets a transaction name an order, and notes how its charge is counted then.
  private mutating func set(_ order: UUID?, on key: TransactionKey) {
    guard let family = recording.family(of: key) else {
      preconditionFailure("Orders are matched with what was recorded.")
    }
    var fulfilment = family.before.members[key.line]?.fulfilments[key] ?? Fulfilment()
    if let order = named[key] { fulfilment.orderID = order }
    named[key] = .some(order)
    var after = fulfilment
    after.orderID = order
    statements.append(Ledger.set(order, on: key))
    guard let row = TransactionRow.row(of: key, in: family.line, rule: family.rule) else { return }
    statements += ChargeSums.change(
      of: key, from: CountedCharge(row, fulfilment), to: CountedCharge(row, after))
  }

  private mutating func note(
    _ change: OrderChange.Change, _ order: PurchaseOrder, _ charge: Charge
  ) {
    changes.append(
      OrderChange(
        order: order.id, account: order.account, productID: order.productID, charge: charge.id,
        change: change))
  }

  /// The orders that transactions of a charge are stored to have fulfilled.
  private func transactions(of charge: Charge) -> [(key: TransactionKey, order: UUID)] {
    guard let members = recording.family(of: charge.id)?.before.members else { return [] }
    return charge.transactions.compactMap { key in
      members[key.line]?.fulfilments[key]?.orderID.map { (key, $0) }
    }
  }

  /// Opens the orders of accounts again whose charges the rule has given to others.
  ///
  /// An administrator's placement leaves the order fulfilled: it was paid for.
  private mutating func reopenCorrected(in ledger: Ledger, _ transaction: Transaction)
    async throws
  {
    var corrected: [UUID: (charge: Charge, owner: AccountKey?)] = [:]
    for family in recording.distinctFamilies {
      for change in family.changes where change.changesOwner && change.action != .placed {
        guard let (charge, recorded) = family.charge(of: change.charge) else { continue }
        for (_, order) in transactions(of: charge) {
          corrected[order] = (charge, recorded.decision.owner)
        }
      }
    }
    guard !corrected.isEmpty else { return }
    let accounts = try await ledger.accounts(ofOrders: Set(corrected.keys), in: transaction)
    let wrong = accounts.filter { corrected[$0.key]?.owner != $0.value }
      .sorted { ($0.value, $0.key) < ($1.value, $1.key) }
    guard !wrong.isEmpty else { return }
    let results = try await transaction.batch(
      wrong.map { Ledger.lock(order: $0.key, of: $0.value) })
    for order in try results.flatMap(Ledger.orders(from:)) {
      guard let charge = corrected[order.id]?.charge else { continue }
      reopen(order, fulfilledBy: charge, in: ledger)
    }
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
    // The charge may be another account's since an administrator placed it there.
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
    guard let rule = recording.family(of: charge.id)?.before.rule,
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
  let named: PurchaseOrder?
  /// The account's orders for `products`, opened at `times`, that a charge can fulfil.
  let awaiting: [PurchaseOrder]
  /// Where an order is named: the orders that charges were matched with without naming them.
  let yielding: [UUID: PurchaseOrder]
  let products: Set<ProductID>
  let times: PurchaseOrder.OpeningTimes

  /// The statement that locks and reads them; ``init(for:from:)`` reads its result.
  ///
  /// One statement locks all of them in one order, so that submissions of an account that name
  /// orders and others that don't never wait for each other in a circle.
  static func lock(for verified: Ledger.VerifiedSubmission) -> SQL {
    let (products, times) = wanted(for: verified)
    let named = verified.submission.orderID.map { id in
      let lines = verified.evidence.flatMap { item in
        if case .link(let line, let previous) = item { [line, previous] } else { [item.line] }
      }
      return (id: id, lines: Set(lines.map(\.originalTransactionID)))
    }
    return Ledger.lockOrdersAwaitingPayment(
      of: verified.submission.account, for: products, opened: times, and: named)
  }

  init(for verified: Ledger.VerifiedSubmission, from rows: Rows) throws {
    account = verified.submission.account
    let (orders, orderID) = (try Ledger.orders(from: rows), verified.submission.orderID)
    (products, times) = Self.wanted(for: verified)
    named = orders.first { $0.id == orderID }
    awaiting = orders.filter(\.awaitsPayment)
    yielding = Dictionary(
      uniqueKeysWithValues: orders.filter { !$0.awaitsPayment && $0.id != orderID }
        .map { ($0.id, $0) })
  }

  /// The products that the selected transactions are of, and when orders for them were opened.
  private static func wanted(for verified: Ledger.VerifiedSubmission)
    -> (products: Set<ProductID>, times: PurchaseOrder.OpeningTimes)
  {
    let selected = Set(verified.selected)
    let dates = verified.evidence.compactMap { item -> Timestamp? in
      guard case .transaction(let record) = item, selected.contains(record.key) else { return nil }
      return record.chargedAt
    }
    guard let times = PurchaseOrder.OpeningTimes(purchasedAt: dates) else {
      return ([], PurchaseOrder.OpeningTimes(purchasedAt: verified.submission.receivedAt))
    }
    return (Set(selected.map(\.productID)), times)
  }
}

/// A change of an order by a recording.
struct OrderChange: Hashable, Sendable {
  enum Change: Hashable, Sendable {
    /// Paid, or its refund was reversed.
    case fulfilled
    case refunded
    /// The charge that had fulfilled it fulfils another order, or is another account's.
    case reopened
  }

  var order: UUID
  var account: AccountKey
  var productID: ProductID
  var charge: Charge.ID
  var change: Change
}
