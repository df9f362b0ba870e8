package import struct Foundation.UUID

/// A payment by the customer: usually one transaction, but a restore or another device can report
/// it under another `transaction_id`.
///
/// The first one recorded names the charge; the others are its aliases, never owned, granted,
/// counted or delivered a second time.
package struct Charge: Hashable, Sendable {
  package typealias ID = TransactionKey

  package let id: ID
  package let aliases: [TransactionKey]
  package let productID: ProductID
  package let kind: ChargeKind
  /// The rule's t.
  package let date: Timestamp
  /// The end of the paid period without grace; nil for purchases without a period.
  package let end: Timestamp?
  package let productType: ProductType?
  package let isCommitment: Bool
  package let appAccountToken: UUID?
  /// The date of Apple's first `is_upgraded`.
  package let upgradedAsOf: Timestamp?
  /// The refund or revocation that ended it early; never an upgrade.
  package internal(set) var revocation: Revocation?
  package internal(set) var supersededAt: Timestamp?

  /// Whether it is of an auto-renewable subscription, so that the rule's first row can hold.
  package var isSubscription: Bool {
    ProductType.known(of: productID, as: productType, hasExpiry: end != nil) == .autoRenewable
  }

  package func type(in catalogue: Catalogue) -> ProductType? {
    ProductType.known(of: productID, as: productType, hasExpiry: end != nil, in: catalogue)
  }

  /// Whether it was replaced before it began, which Apple had dated ahead: nothing follows it.
  package var neverBegan: Bool { supersededAt.map { $0 < date } ?? false }

  /// Every transaction that reports this charge, the naming one first.
  package var transactions: [TransactionKey] { [id] + aliases }

  /// A revocation within this time of another product's charge is an upgrade.
  package static let upgradeTolerance: Duration = .seconds(60)

  package static func charges(in history: EvidenceHistory) -> [Charge] {
    let transactions = history.transactions
    var groups = Partition(count: transactions.count)
    groups.uniteReportsOfOneCharge(transactions)
    var charges = groups.groups.map { Charge(reports: $0.map { transactions[$0] }) }
    // Unlike the naming transaction, the smallest identifier is the same in every order of arrival.
    charges.sort { ($0.date, $0.smallestKey) < ($1.date, $1.smallestKey) }
    charges.separateUpgradesFromRefunds()
    return charges
  }

  /// - Parameter reports: The charge's transactions in recorded order, at least one.
  private init(reports: [StoreTransaction]) {
    // From the report with the smallest key, so that facts don't depend on the order of arrival.
    guard let naming = reports.first, let facts = reports.min(by: { $0.key < $1.key }) else {
      preconditionFailure("A charge has at least one transaction.")
    }
    id = naming.key
    aliases = reports.dropFirst().map(\.key)
    productID = facts.key.productID
    kind = reports.map(\.kind).min() ?? facts.kind
    date = reports.map(\.chargedAt).min() ?? facts.chargedAt
    end = reports.reduce(nil) { latest($0, $1.expiresDate, <) }?.value
    productType = reports.compactMap(\.productType).min()
    isCommitment = reports.contains(where: \.isCommitment)
    appAccountToken = reports.reduce(nil) { latest($0, $1.appAccountToken, <) }?.value
    upgradedAsOf = reports.compactMap(\.upgradedAsOf).min()
    revocation = reports.revocation
    supersededAt = nil
  }

  private var smallestKey: TransactionKey { transactions.min() ?? id }
}

extension [Charge] {
  /// The positions of charges that ran; all of them if none did.
  package func positionsThatRan(among positions: some Collection<Int>) -> [Int] {
    let begun = positions.filter { !self[$0].neverBegan }
    return begun.isEmpty ? positions.map(\.self) : begun
  }

  /// The position of the latest charge that ran, which the next charge follows.
  package var latestPosition: Int? { lastIndex { !$0.neverBegan } ?? indices.last }

  package var latestCharge: Charge? { latestPosition.map { self[$0] } }

  /// The position of the latest charge that ran, dated before the one at `position`.
  func positionBefore(_ position: Int) -> Int? {
    let date = self[position].date
    return self[..<position].lastIndex { $0.date < date && !$0.neverBegan }
  }

  /// Marks upgraded charges as superseded, and neither revoked nor refunded.
  ///
  /// - A charge cancelled within a minute of a charge for another plan, from the cancellation on.
  ///   The other charge may be dated before: a renewal that Apple charged early is dated ahead.
  /// - A charge that Apple reports as `is_upgraded`, from the first sign of it on.
  /// - A charge in whose paid time another plan was bought, if Apple calls that a purchase: only
  ///   one plan is active at a time, and notifications report the new charge alone.
  fileprivate mutating func separateUpgradesFromRefunds() {
    let purchases = indices.filter { self[$0].kind == .purchase && self[$0].isSubscription }
    for index in indices where self[index].isSubscription {
      let charge = self[index]
      func isOfAnotherPlan(_ other: Charge) -> Bool {
        other.isSubscription && other.productID != charge.productID
      }
      if let cancelledAt = charge.revocation?.at,
        contains(where: {
          isOfAnotherPlan($0) && ($0.date - cancelledAt).isWithin(Charge.upgradeTolerance)
        })
      {
        self[index].supersededAt = cancelledAt
      } else if let saidAt = charge.upgradedAsOf {
        let successor = self[(index + 1)...].first(where: isOfAnotherPlan)
        let signs = [
          saidAt, successor?.date, charge.revocation?.at,
          boughtInstead(ofChargeAt: index, among: purchases),
        ]
        self[index].supersededAt = signs.compactMap(\.self).min()
      } else {
        self[index].supersededAt = boughtInstead(ofChargeAt: index, among: purchases)
        continue
      }
      self[index].revocation = nil
    }
  }

  /// The date of another plan's purchase that replaced a charge before it was revoked, if any.
  private func boughtInstead(ofChargeAt index: Int, among purchases: [Int]) -> Timestamp? {
    let charge = self[index]
    guard let end = [charge.end, charge.revocation?.at].compactMap(\.self).min() else { return nil }
    // The purchase may have been replaced itself: the last purchase is the one that renews.
    let lastEnd = purchases.last { self[$0].date < charge.date }.flatMap { self[$0].end }
    return purchases.lazy.map { self[$0] }.first { other in
      guard other.productID != charge.productID else { return false }
      if charge.date < other.date { return other.date < end }
      // Renewals don't begin within a purchased period: Apple dated this one ahead.
      guard charge.kind == .renewal, other.date < charge.date, let otherEnd = other.end,
        let lastEnd
      else { return false }
      return charge.date + Charge.upgradeTolerance < Swift.min(otherEnd, lastEnd)
    }?.date
  }
}

/// Groups of positions, joined pair by pair (a disjoint-set forest).
struct Partition {
  private var parents: [Int]

  init(count: Int) { parents = Array(0..<count) }

  /// The groups, each in ascending order, by their first members.
  var groups: [[Int]] {
    var copy = self
    return Dictionary(grouping: parents.indices) { copy.root(of: $0) }.values
      .sorted { $0[0] < $1[0] }
  }

  mutating func unite(_ one: Int, _ other: Int) { parents[root(of: one)] = root(of: other) }

  private mutating func root(of position: Int) -> Int {
    var position = position
    while parents[position] != position {
      parents[position] = parents[parents[position]]
      position = parents[position]
    }
    return position
  }

  /// Joins the transactions that report the same charge, transitively.
  ///
  /// They share the `web_order_line_item_id` or, if linked, the `transaction_id`. If either lacks
  /// the line item id: a subscription's share the product and the purchase date or the expiry;
  /// others share the product, unless the earlier was revoked before the later was bought.
  mutating func uniteReportsOfOneCharge(_ transactions: [StoreTransaction]) {
    func lacksLineItem(_ positions: [Int]) -> Bool {
      positions.contains { transactions[$0].webOrderLineItemID == nil }
    }
    func areLinked(_ positions: [Int]) -> Bool {
      Set(positions.map { transactions[$0].key.line }).count > 1
    }
    unite(transactions, by: \.webOrderLineItemID)
    unite(transactions, by: \.key.transactionID, where: areLinked)
    unite(transactions, by: \.productAndPurchaseDate, where: lacksLineItem)
    unite(transactions, by: \.productAndExpiry, where: lacksLineItem)
    for positions in positions(in: transactions, by: \.productBoughtOnce) {
      uniteRestores(positions, of: transactions)
    }
  }

  /// Joins the reports of one purchase of a one-time product, by date: each belongs to a purchase
  /// before it, unless any report so far revoked that by then, because a restore may omit the
  /// refund.
  private mutating func uniteRestores(_ positions: [Int], of transactions: [StoreTransaction]) {
    func isBefore(_ one: Int, _ other: Int) -> Bool {
      (transactions[one].chargedAt, transactions[one].key)
        < (transactions[other].chargedAt, transactions[other].key)
    }
    func couldRestore(_ report: [Int], _ purchase: [Int]) -> Bool {
      guard (report + purchase).contains(where: { transactions[$0].webOrderLineItemID == nil })
      else { return false }
      let revocation = purchase.map { transactions[$0] }.revocation
      return revocation.map { $0.at >= transactions[report[0]].chargedAt } ?? true
    }

    // Reports with the same line item or transaction id are joined already.
    let reports = Dictionary(grouping: positions.sorted(by: isBefore)) { root(of: $0) }.values
      .sorted { isBefore($0[0], $1[0]) }
    var purchases: [[Int]] = []
    for report in reports {
      var purchase = report
      for index in purchases.indices.reversed() where couldRestore(report, purchases[index]) {
        let restored = purchases.remove(at: index)
        unite(report[0], restored[0])
        purchase += restored
      }
      purchases.append(purchase)
    }
  }

  private func positions<Feature: Hashable>(
    in transactions: [StoreTransaction], by feature: (StoreTransaction) -> Feature?
  ) -> some Collection<[Int]> {
    var positions: [Feature: [Int]] = [:]
    for (position, transaction) in transactions.enumerated() {
      if let feature = feature(transaction) { positions[feature, default: []].append(position) }
    }
    return positions.values
  }

  private mutating func unite<Feature: Hashable>(
    _ transactions: [StoreTransaction], by feature: (StoreTransaction) -> Feature?,
    where condition: ([Int]) -> Bool = { _ in true }
  ) {
    for group in positions(in: transactions, by: feature) where condition(group) {
      for position in group { unite(group[0], position) }
    }
  }
}

extension StoreTransaction {
  fileprivate struct ProductAndDate: Hashable {
    let productID: ProductID
    let date: Timestamp
  }

  /// Nil for the date of a restore, which everything restored then shares.
  fileprivate var productAndPurchaseDate: ProductAndDate? {
    guard isSubscription, expiresDate.map({ purchaseDate <= $0.value }) ?? true else { return nil }
    return ProductAndDate(productID: key.productID, date: purchaseDate)
  }

  fileprivate var productAndExpiry: ProductAndDate? {
    guard isSubscription else { return nil }
    return expiresDate.map { ProductAndDate(productID: key.productID, date: $0.value) }
  }

  fileprivate var productBoughtOnce: ProductID? { isSubscription ? nil : key.productID }
}
