import Foundation
import Postgres
import Subscriptions

struct AuditedOrder: Hashable, Sendable {
  var id: UUID
  var account: AccountKey
  /// Another account if that was merged into this one.
  var openedBy: AccountKey
  /// Nil for an open order.
  var charge: Charge.ID?
}

extension LedgerAuditor {
  private static let orderPage = 1000

  /// Finds orders whose charge does not name them; the other direction is audited with charges.
  func brokenOrders() async throws -> (orders: Int, broken: [AuditedOrder]) {
    var orders = 0
    var broken: [AuditedOrder] = []
    var last: AuditedOrder?
    while true {
      let after: SQL =
        last.map { "WHERE (account_key, order_id) > (\($0.account), \($0.id))" } ?? ""
      let (page, suspects) = try await withSnapshot { transaction in
        let page = try await self.orders(
          "\(after) ORDER BY account_key, order_id LIMIT \(Self.orderPage)",
          deadline: Self.auditDeadline, in: transaction)
        return (page, try await self.broken(among: page, in: transaction))
      }
      guard let end = page.last else { return (orders, broken) }
      last = end
      orders += page.count
      for order in suspects {
        // Once locked, no transaction is fulfilling it any more.
        broken += try await withLocks { transaction in
          let locked = try await self.orders(
            "WHERE account_key = \(order.account) AND order_id = \(order.id) FOR UPDATE",
            in: transaction)
          return try await self.broken(among: locked, in: transaction)
        }
      }
    }
  }

  func auditedOrders(_ ids: [UUID], in transaction: Transaction) async throws
    -> [UUID: AuditedOrder]
  {
    guard !ids.isEmpty else { return [:] }
    let accounts = try await transaction.query(
      "SELECT account_key FROM tenure.purchase_order_account WHERE order_id = ANY(\(ids))"
    ).decode(AccountKey.self)
    let orders = try await self.orders(
      "WHERE account_key = ANY(\(Set(accounts).sorted())) AND order_id = ANY(\(ids))",
      in: transaction)
    return Dictionary(orders.map { ($0.id, $0) }) { first, _ in first }
  }

  private func broken(among orders: [AuditedOrder], in transaction: Transaction) async throws
    -> [AuditedOrder]
  {
    let lines = Set(orders.compactMap(\.charge?.line.originalTransactionID)).sorted()
    guard !lines.isEmpty else { return [] }
    let rows = try await transaction.query(
      """
      SELECT environment, original_transaction_id, transaction_id, product_id, order_id
      FROM tenure.store_transaction
      WHERE environment IN ('production', 'sandbox') AND original_transaction_id = ANY(\(lines))
        AND order_id IS NOT NULL
      """, deadline: Self.auditDeadline)
    var fulfilments: [UUID: [Charge.ID]] = [:]
    for (charge, order) in try rows.decode(TransactionKey.self, UUID.self) {
      fulfilments[order, default: []].append(charge)
    }
    return orders.filter { order in order.charge.map { fulfilments[order.id] != [$0] } ?? false }
  }

  private func orders(
    _ condition: SQL, deadline: Duration? = nil, in transaction: Transaction
  ) async throws -> [AuditedOrder] {
    try await transaction.query(
      """
      SELECT order_id, account_key, coalesce(opened_by_key, account_key), product_id, environment,
        original_transaction_id, transaction_id
      FROM tenure.purchase_order \(condition)
      """, deadline: deadline
    ).decode(
      UUID.self, AccountKey.self, AccountKey.self, ProductID.self, Environment?.self,
      OriginalTransactionID?.self, TransactionID?.self
    ).map { id, account, openedBy, product, environment, original, transaction in
      var order = AuditedOrder(id: id, account: account, openedBy: openedBy)
      if let environment, let original, let transaction {
        order.charge = TransactionKey(environment, original, transaction, product)
      }
      return order
    }
  }
}
