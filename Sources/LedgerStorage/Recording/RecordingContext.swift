import Foundation
import Postgres
import Subscriptions

extension Recorder {
  /// Everything about accounts that the rule needs.
  struct Context: Sendable {
    var names: [AccountKey: String] = [:]
    var erasures: [AccountKey: Timestamp] = [:]
    var tokenHolders: [UUID: AccountKey] = [:]
    var orders: Set<OpenedOrder> = []
    var merges: [AccountKey: AccountMerge] = [:]
    /// Includes accounts whose charges are still being moved.
    var mergedInto: [AccountKey: AccountKey] = [:]

    func apply(to history: inout EvidenceHistory) {
      history.erasures = erasures
      history.orders = orders
      history.merges = merges
      history.tokenHolders.merge(tokenHolders) { $1 }
    }
  }

  func context(
    of original: StoredOriginalTransaction, claimant: AccountKey?, evidence: [Evidence],
    placing placed: Set<AccountKey> = [],
    knowing known: [AccountKey: KnownAccount] = [:], in transaction: Transaction
  ) async throws -> Context {
    let (records, statuses) = (
      evidence.compactMap(\.transaction), evidence.compactMap(\.renewalStatus)
    )
    let tokens = Set(
      records.compactMap(\.appAccountToken) + statuses.compactMap(\.appAccountToken)
    ).sorted()
    var context = Context()
    if !tokens.isEmpty {
      let holders = try await transaction.query(
        """
        SELECT app_account_token, account_key FROM tenure.account_by_token
        WHERE app_account_token \(anyOf: tokens)
        """)
      for (token, holder) in try holders.decode(UUID.self, AccountKey.self) {
        context.tokenHolders[token] = holder
      }
    }

    let accounts = original.accounts.union(context.tokenHolders.values)
      .union(original.line.history.tokenHolders.values).union(placed)
      .union([claimant].compactMap(\.self))
    guard !accounts.isEmpty else { return context }
    // Orders matter only after auto-renew was switched off: see `AutoRenewal.wasSwitchedOn`.
    let wasSwitchedOff =
      (original.line.history.statuses + statuses).contains { $0.autoRenews == false }
    let claimants = wasSwitchedOff ? original.claimants.union([claimant].compactMap(\.self)) : []
    let products = Set(
      original.line.history.transactions.map(\.key.productID) + records.map(\.key.productID))

    var known = known.filter { accounts.contains($0.key) }
    var (missing, asked, heirs) = (accounts.subtracting(known.keys), accounts, claimants)
    repeat {
      let (found, opened) = try await transaction.read(
        KnownAccount.query(missing), OpenedOrder.query(of: heirs, for: products))
      known.merge(found) { $1 }
      context.orders.formUnion(opened)
      // Accounts that opened orders before a merge, and those that have them now.
      missing = Set(context.orders.map(\.account)).union(known.values.compactMap(\.mergedInto))
        .subtracting(asked)
      asked.formUnion(missing)
      heirs = missing.filter { heir in
        known.contains { $0.value.mergedInto == heir && claimants.contains($0.key) }
      }
    } while !missing.isEmpty
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
}

extension OpenedOrder {
  /// Reads the orders of accounts, each under the account that opened it.
  fileprivate static func query(of accounts: Set<AccountKey>, for products: Set<ProductID>)
    -> Query<Set<OpenedOrder>>
  {
    Query.all(
      accounts.sorted().map { account in
        Query(
          """
          SELECT coalesce(opened_by_key, account_key), product_id, created_at
          FROM tenure.purchase_order
          WHERE account_key = \(account) AND product_id \(anyOf: products.sorted())
          """
        ) {
          try $0.decode(AccountKey.self, ProductID.self, Timestamp.self).map {
            OpenedOrder(account: $0, productID: $1, openedAt: $2)
          }
        }
      }
    ).map { Set($0.joined()) }
  }
}

/// An account as the rule needs it.
struct KnownAccount: Hashable, Sendable {
  var id: String
  var erasedAt: Timestamp?
  var mergedInto: AccountKey?
  /// From here on the rule treats both as one; nil while charges are still being moved.
  var mergedAt: Timestamp?

  /// Reads accounts; unknown keys are left out.
  static func query(_ keys: Set<AccountKey>) -> Query<[AccountKey: KnownAccount]> {
    guard !keys.isEmpty else { return Query([]).map { [:] } }
    return Query(
      """
      SELECT account_key, account_id, erased_at, merged_into_key, merged_at
      FROM tenure.account_by_key
      WHERE account_key \(anyOf: keys.sorted())
      """
    ) {
      Dictionary(
        uniqueKeysWithValues: try $0.decode(
          AccountKey.self, String.self, Timestamp?.self, AccountKey?.self, Timestamp?.self
        ).map { ($0, KnownAccount(id: $1, erasedAt: $2, mergedInto: $3, mergedAt: $4)) })
    }
  }
}

extension StoredOriginalTransaction {
  fileprivate var claimants: Set<AccountKey> {
    Set(
      line.history.actions.compactMap { action in
        if case .claim(let claim) = action.action { claim.account } else { nil }
      })
  }
}
