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

    func apply(to history: inout LineHistory) {
      history.erasures = erasures
      history.orders = orders
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
      names
        + claimants.sorted().map { account in
          """
          SELECT account_key, product_id, created_at FROM tenure.purchase_order
          WHERE account_key = \(account) AND product_id = ANY(\(products.sorted()))
          """
        })
    var known = known.filter { accounts.contains($0.key) }
    for rows in results.prefix(names.count) {
      known.merge(try KnownAccount.accounts(from: rows)) { $1 }
    }
    for (key, account) in known {
      context.names[key] = account.id
      context.erasures[key] = account.erasedAt
    }
    for rows in results.dropFirst(names.count) {
      for (account, product, openedAt) in try rows.decode(
        AccountKey.self, ProductID.self, Timestamp.self)
      {
        context.orders.insert(
          OpenedOrder(account: account, productID: product, openedAt: openedAt))
      }
    }
    return context
  }
}

/// What the rule needs to know of an account whatever it does.
struct KnownAccount: Hashable, Sendable {
  var id: String
  var erasedAt: Timestamp?

  /// ``accounts(from:)`` reads the result.
  static func select(_ keys: Set<AccountKey>) -> SQL {
    """
    SELECT account_key, account_id, erased_at FROM tenure.account_by_key
    WHERE account_key = ANY(\(keys.sorted()))
    """
  }

  static func accounts(from rows: Rows) throws -> [AccountKey: KnownAccount] {
    var accounts: [AccountKey: KnownAccount] = [:]
    for (key, id, erasedAt) in try rows.decode(AccountKey.self, String.self, Timestamp?.self) {
      accounts[key] = KnownAccount(id: id, erasedAt: erasedAt)
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
