/// Groups of positions, joined pair by pair (a disjoint-set forest).
struct Partition {
  private var parents: [Int]

  init(count: Int) { parents = Array(0..<count) }

  /// The groups, each in ascending order, by their first members.
  var groups: [[Int]] {
    var copy = self
    var members: [Int: [Int]] = [:]
    var roots: [Int] = []
    for position in parents.indices {
      let root = copy.root(of: position)
      if members[root] == nil { roots.append(root) }
      members[root, default: []].append(position)
    }
    return roots.compactMap { members[$0] }
  }

  mutating func unite(_ one: Int, _ other: Int) {
    parents[root(of: one)] = root(of: other)
  }

  private mutating func root(of position: Int) -> Int {
    var position = position
    while parents[position] != position {
      parents[position] = parents[parents[position]]
      position = parents[position]
    }
    return position
  }
}

extension Partition {
  /// Joins the transactions that report one and the same charge.
  ///
  /// They do if they share the `web_order_line_item_id` or, on linked lines, the `transaction_id`;
  /// where either lacks the line item id, a subscription's do if they share the product and the
  /// purchase date or the expiry; anything else's if they share the product, unless the earlier was
  /// revoked before the later was bought. What several such steps connect is one charge too.
  mutating func uniteReportsOfOneCharge(_ transactions: [StoreTransaction]) {
    uniteAll(positions(in: transactions, by: \.webOrderLineItemID))
    uniteAll(
      positions(in: transactions, by: \.key.transactionID).filter { positions in
        Set(positions.map { transactions[$0].key.line }).count > 1
      })

    func lacksLineItem(_ position: Int) -> Bool {
      transactions[position].webOrderLineItemID == nil
    }
    uniteAll(
      positions(in: transactions, by: \.productAndPurchaseDate)
        .filter { $0.contains(where: lacksLineItem) })
    uniteAll(
      positions(in: transactions, by: \.productAndExpiry)
        .filter { $0.contains(where: lacksLineItem) })

    for positions in positions(in: transactions, by: \.productBoughtOnce) {
      uniteRestores(positions, of: transactions)
    }
  }

  /// Joins what reports the same purchase of a product that is bought once.
  ///
  /// By date, each report is one of a purchase before it unless that was revoked by then, as far as
  /// anything says that reports it so far: a restore may not tell of the refund.
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

    // What shares a line item or a transaction id is one already.
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

  private mutating func uniteAll(_ groups: some Sequence<[Int]>) {
    for group in groups {
      for position in group { unite(group[0], position) }
    }
  }
}

extension StoreTransaction {
  fileprivate struct ProductAndDate: Hashable {
    let productID: ProductID
    let date: Timestamp
  }

  /// Nil where the date is that of a restore, which all that was restored then shares.
  fileprivate var productAndPurchaseDate: ProductAndDate? {
    guard isSubscription, expiresDate.map({ purchaseDate <= $0.value }) ?? true else { return nil }
    return ProductAndDate(productID: key.productID, date: purchaseDate)
  }

  fileprivate var productAndExpiry: ProductAndDate? {
    guard isSubscription, let expiresDate else { return nil }
    return ProductAndDate(productID: key.productID, date: expiresDate.value)
  }

  fileprivate var productBoughtOnce: ProductID? { isSubscription ? nil : key.productID }
}
