import Foundation
import Postgres
import Subscriptions

extension Ledger {
  /// What the rule needs to know of the accounts on a family's lines.
  struct Context: Sendable {
    var names: [AccountKey: String] = [:]
    var erasures: [AccountKey: Timestamp] = [:]
    var tokenHolders: [UUID: AccountKey] = [:]
    var orders: Set<OpenedOrder> = []
    var merges: [AccountKey: AccountMerge] = [:]
    /// The accounts into which others were merged, those included whose charges are still placed.
    var mergedInto: [AccountKey: AccountKey] = [:]

    func apply(to history: inout LineHistory) {
      history.erasures = erasures
      history.orders = orders
      history.merges = merges
      history.tokenHolders.merge(tokenHolders) { $1 }
    }
  }

  func context(
    of family: StoredFamily, claimant: AccountKey?, evidence: [Evidence],
    placing placed: Set<AccountKey> = [],
    knowing known: [AccountKey: KnownAccount] = [:], in transaction: Transaction
  ) async throws -> Context {
    let tokens = Set(evidence.compactMap(\.appAccountToken)).sorted {
      $0.uuidString < $1.uuidString
    }
    var context = Context()
    if !tokens.isEmpty {
      let holders = try await transaction.query(
        """
        SELECT app_account_token, account_key FROM tenure.account_by_token
        WHERE app_account_token = ANY(\(tokens))
        """)
      for (token, holder) in try holders.decode(UUID.self, AccountKey.self) {
        context.tokenHolders[token] = holder
      }
    }

    var accounts = family.accounts
    accounts.formUnion(context.tokenHolders.values)
    accounts.formUnion(family.line.history.tokenHolders.values)
    if let claimant { accounts.insert(claimant) }
    accounts.formUnion(placed)
    guard !accounts.isEmpty else { return context }
    // Orders matter only after auto-renew was switched off: see `AutoRenewal.wasSwitchedOn`.
    let wasSwitchedOff =
      family.line.history.statuses.contains { $0.autoRenews == false }
      || evidence.contains(where: \.saysOff)
    var claimants = wasSwitchedOff ? family.claimants : []
    if wasSwitchedOff, let claimant { claimants.insert(claimant) }
    let products = Set(
      family.line.history.transactions.map(\.key.productID) + evidence.compactMap(\.productID))

    let unknown = accounts.subtracting(known.keys)
    let names = unknown.isEmpty ? [] : [KnownAccount.select(unknown)]
    let results = try await transaction.batch(
      names + claimants.sorted().map { OpenedOrder.select(of: $0, for: products) })
    var known = known.filter { accounts.contains($0.key) }
    for rows in results.prefix(names.count) {
      known.merge(try KnownAccount.accounts(from: rows)) { $1 }
    }
    for rows in results.dropFirst(names.count) {
      context.orders.formUnion(try OpenedOrder.orders(from: rows))
    }
    try await followMerges(
      of: claimants, for: products, knowing: &known, orders: &context.orders, in: transaction)
    for (key, account) in known {
      context.names[key] = account.id
      context.erasures[key] = account.erasedAt
      context.mergedInto[key] = account.mergedInto
      if let into = account.mergedInto, let mergedAt = account.mergedAt {
        context.merges[key] = AccountMerge(into: into, at: mergedAt)
      }
    }
    return context
  }

  /// Reads the accounts into which others were merged, and the orders that went along.
  private func followMerges(
    of claimants: Set<AccountKey>, for products: Set<ProductID>,
    knowing known: inout [AccountKey: KnownAccount], orders: inout Set<OpenedOrder>,
    in transaction: Transaction
  ) async throws {
    while true {
      // Those that opened orders before they were merged, and those that have them now.
      let missing = Set(orders.map(\.account)).union(known.values.compactMap(\.mergedInto))
        .subtracting(known.keys)
      guard !missing.isEmpty else { return }
      let heirs = missing.filter { heir in
        known.contains { $0.value.mergedInto == heir && claimants.contains($0.key) }
      }
      let results = try await transaction.batch(
        [KnownAccount.select(missing)]
          + heirs.sorted().map { OpenedOrder.select(of: $0, for: products) })
      let found = try KnownAccount.accounts(from: results[0])
      guard !found.isEmpty else { return }
      known.merge(found) { $1 }
      for rows in results.dropFirst() { orders.formUnion(try OpenedOrder.orders(from: rows)) }
    }
  }
}

extension OpenedOrder {
  /// Reads the orders of an account, each under the account that opened it; ``orders(from:)``
  /// understands them.
  fileprivate static func select(of account: AccountKey, for products: Set<ProductID>) -> SQL {
    """
    SELECT coalesce(opened_by_key, account_key), product_id, created_at
    FROM tenure.purchase_order
    WHERE account_key = \(account) AND product_id = ANY(\(products.sorted()))
    """
  }

  fileprivate static func orders(from rows: Rows) throws -> Set<OpenedOrder> {
    Set(
      try rows.decode(AccountKey.self, ProductID.self, Timestamp.self).map {
        OpenedOrder(account: $0, productID: $1, openedAt: $2)
      })
  }
}

/// What the rule needs to know of an account whatever it does.
struct KnownAccount: Hashable, Sendable {
  var id: String
  var erasedAt: Timestamp?
  /// The account into which it was merged; nil: it stands for itself.
  var mergedInto: AccountKey?
  /// From when on the rule takes both for one; nil while charges are still to be placed.
  var mergedAt: Timestamp?

  /// ``accounts(from:)`` reads the result.
  static func select(_ keys: Set<AccountKey>) -> SQL {
    """
    SELECT account_key, account_id, erased_at, merged_into_key, merged_at
    FROM tenure.account_by_key
    WHERE account_key = ANY(\(keys.sorted()))
    """
  }

  static func accounts(from rows: Rows) throws -> [AccountKey: KnownAccount] {
    var accounts: [AccountKey: KnownAccount] = [:]
    for (key, id, erasedAt, mergedInto, mergedAt) in try rows.decode(
      AccountKey.self, String.self, Timestamp?.self, AccountKey?.self, Timestamp?.self)
    {
      accounts[key] = KnownAccount(
        id: id, erasedAt: erasedAt, mergedInto: mergedInto, mergedAt: mergedAt)
    }
    return accounts
  }
}

extension StoredFamily {
  /// Everybody who ever claimed something here.
  fileprivate var claimants: Set<AccountKey> {
    Set(
      line.history.acts.compactMap { act in
        if case .claim(let claim) = act.act { claim.account } else { nil }
      })
  }
}

extension Evidence {
  fileprivate var productID: ProductID? {
    if case .transaction(let record) = self { record.key.productID } else { nil }
  }

  fileprivate var appAccountToken: UUID? {
    switch self {
    case .transaction(let record): record.appAccountToken
    case .renewalStatus(let status, _): status.appAccountToken
    case .link: nil
    }
  }

  fileprivate var saysOff: Bool {
    if case .renewalStatus(let status, _) = self { status.autoRenews == false } else { false }
  }
}
