package import Foundation
import Postgres
package import Subscriptions

/// An order as it stands.
package struct StoredOrder: Hashable, Sendable {
  package let order: PurchaseOrder
  package let accountID: String
  package let appAccountToken: UUID
  package let fulfilledAt: Timestamp?
  package let environment: Environment?
  package let transactionID: TransactionID?

  /// How long an order is answered as open before it is answered as expired.
  package static let lifetime: Duration = .days(7)

  /// The order as it is answered at a moment: expired if nobody has paid for it in time.
  ///
  /// Nothing has to run for that, and nothing is lost by it: the money of a late charge has been
  /// paid, so the charge fulfils the order all the same.
  package func answered(at now: Timestamp) -> StoredOrder {
    guard order.status == .open, now >= order.createdAt + Self.lifetime else { return self }
    var order = order
    order.status = .expired
    return StoredOrder(
      order: order, accountID: accountID, appAccountToken: appAccountToken,
      fulfilledAt: fulfilledAt, environment: environment, transactionID: transactionID)
  }
}

extension Ledger {
  /// Opens an order, creating the account if it is new.
  ///
  /// - Throws: ``LedgerError/unknownProduct(_:)``.
  package func openOrder(
    accountID: String, productID: ProductID, at now: Timestamp
  ) async throws -> StoredOrder {
    let known = try await database.query(
      "SELECT 1 FROM tenure.product WHERE product_id = \(productID) LIMIT 1")
    guard known.count == 1 else { throw LedgerError.unknownProduct(productID) }
    let account = try await findOrCreateAccount(accountID, at: now)
    let order = PurchaseOrder(
      id: UUID(), account: account.key, productID: productID, createdAt: now, status: .open)
    _ = try await database.batch([
      """
      INSERT INTO tenure.purchase_order (account_key, order_id, product_id, status, created_at)
      VALUES (\(order.account), \(order.id), \(order.productID), \(order.status),
        \(order.createdAt))
      """,
      """
      INSERT INTO tenure.purchase_order_account (order_id, account_key)
      VALUES (\(order.id), \(order.account))
      """,
    ])
    return StoredOrder(
      order: order, accountID: account.id, appAccountToken: account.appAccountToken,
      fulfilledAt: nil, environment: nil, transactionID: nil)
  }

  /// Finds an order; nil if there is none of this id.
  package func order(_ id: UUID) async throws -> StoredOrder? {
    let rows = try await database.query(
      """
      SELECT o.account_key, o.product_id, o.status, o.created_at, o.fulfilled_at, o.environment,
        o.transaction_id, k.account_id, a.app_account_token
      FROM tenure.purchase_order_account AS l
      JOIN tenure.purchase_order AS o ON o.account_key = l.account_key AND o.order_id = l.order_id
      JOIN tenure.account_by_key AS k ON k.account_key = o.account_key
      JOIN tenure.account AS a ON a.account_id = k.account_id
      WHERE l.order_id = \(id)
      """)
    return try rows.decodeFirst(
      AccountKey.self, ProductID.self, PurchaseOrder.Status.self, Timestamp.self,
      Timestamp?.self, Environment?.self, TransactionID?.self, String.self, UUID.self
    ).map {
      account, product, status, createdAt, fulfilledAt, environment, transaction, name, token in
      StoredOrder(
        order: PurchaseOrder(
          id: id, account: account, productID: product, createdAt: createdAt, status: status),
        accountID: name, appAccountToken: token, fulfilledAt: fulfilledAt,
        environment: environment, transactionID: transaction)
    }
  }

  /// Locks and reads the order of an id, whoever it belongs to.
  func lockOrder(_ id: UUID, in transaction: Transaction) async throws -> PurchaseOrder? {
    let owner = try await transaction.query(
      "SELECT account_key FROM tenure.purchase_order_account WHERE order_id = \(id)"
    ).decodeFirst(AccountKey.self)
    guard let owner else { return nil }
    return try await orders(
      transaction.query(
        """
        SELECT order_id, account_key, product_id, created_at, status FROM tenure.purchase_order
        WHERE account_key = \(owner) AND order_id = \(id)
        FOR UPDATE
        """)
    ).first
  }

  /// Locks and reads the orders of an account for some products that still wait for their payment.
  func lockOrdersAwaitingPayment(
    of account: AccountKey, for products: Set<ProductID>, in transaction: Transaction
  ) async throws -> [PurchaseOrder] {
    try await orders(
      transaction.query(
        """
        SELECT order_id, account_key, product_id, created_at, status FROM tenure.purchase_order
        WHERE account_key = \(account) AND product_id = ANY(\(products.sorted()))
          AND status = 'open'
        ORDER BY order_id
        FOR UPDATE
        """))
  }

  private func orders(_ rows: Rows) throws -> [PurchaseOrder] {
    try rows.decode(
      UUID.self, AccountKey.self, ProductID.self, Timestamp.self, PurchaseOrder.Status.self
    ).map {
      PurchaseOrder(id: $0, account: $1, productID: $2, createdAt: $3, status: $4)
    }
  }

  /// The statements that let a charge fulfil an order.
  static func fulfil(_ order: PurchaseOrder, by charge: Charge, at now: Timestamp) -> [SQL] {
    [
      """
      UPDATE tenure.purchase_order SET status = 'fulfilled', fulfilled_at = \(now),
        environment = \(charge.id.line.environment),
        original_transaction_id = \(charge.id.line.originalTransactionID),
        transaction_id = \(charge.id.transactionID)
      WHERE account_key = \(order.account) AND order_id = \(order.id)
      """,
      """
      UPDATE tenure.store_transaction SET order_id = \(order.id)
      WHERE environment = \(charge.id.line.environment)
        AND original_transaction_id = \(charge.id.line.originalTransactionID)
        AND transaction_id = \(charge.id.transactionID) AND product_id = \(charge.id.productID)
      """,
    ]
  }

  /// The statement that follows a charge's refund, or the refund's reversal, on its order.
  static func refund(_ order: UUID, of account: AccountKey, isRefunded: Bool) -> SQL {
    """
    UPDATE tenure.purchase_order SET status = \(isRefunded ? "refunded" : "fulfilled")
    WHERE account_key = \(account) AND order_id = \(order)
      AND status = \(isRefunded ? "fulfilled" : "refunded")
    """
  }
}
