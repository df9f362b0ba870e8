package import Foundation
import JSONText
import Postgres
package import Subscriptions

package struct StoredOrder: Hashable, Sendable {
  package private(set) var order: PurchaseOrder
  package let accountID: String
  package let appAccountToken: UUID
  package let fulfilledAt: Timestamp?
  package let environment: Environment?
  package let transactionID: TransactionID?
  /// When it expires unless a charge fulfils it.
  package let expiresAt: Timestamp

  /// The default time that an order waits for its payment.
  package static let lifetime: Duration = .days(7)

  /// The order at a moment: expired if it is open and overdue.
  ///
  /// Needs no job to have run. A late charge still fulfils the order, because the customer has
  /// paid.
  package func answered(at now: Timestamp) -> StoredOrder {
    guard order.status == .open, now >= expiresAt else { return self }
    var expired = self
    expired.order.status = .expired
    return expired
  }

  static func query(_ id: UUID, of key: AccountKey, lifetime: Duration) -> Query<StoredOrder?> {
    Query(
      Query(select("account_key = \(key) AND order_id = \(id)")) { $0 },
      Query(
        """
        SELECT account_id, app_account_token FROM tenure.account_by_key
        WHERE account_key = \(key)
        """
      ) { try $0.decodeFirst(String.self, UUID.self) }
    ).map { orders, account in
      try account.flatMap { name, token in
        try Self.orders(from: orders, of: (key, name, token), lifetime: lifetime).first
      }
    }
  }

  /// Reads orders of an account, for ``orders(from:of:lifetime:)``.
  static func select(_ condition: SQL) -> SQL {
    """
    SELECT order_id, product_id, status, created_at, fulfilled_at, environment, transaction_id
    FROM tenure.purchase_order WHERE \(condition)
    """
  }

  static func orders(
    from rows: Rows, of account: (key: AccountKey, id: String, token: UUID), lifetime: Duration
  ) throws -> [StoredOrder] {
    try rows.decode(
      UUID.self, ProductID.self, PurchaseOrder.Status.self, Timestamp.self, Timestamp?.self,
      Environment?.self, TransactionID?.self
    ).map {
      StoredOrder(
        order: PurchaseOrder(
          id: $0, account: account.key, productID: $1, createdAt: $3, status: $2),
        accountID: account.id, appAccountToken: account.token, fulfilledAt: $4, environment: $5,
        transactionID: $6, expiresAt: $3 + lifetime)
    }
  }
}

package struct OrderStore: LedgerStore {
  package let core: LedgerCore

  /// Opens an order and schedules its expiry, creating the account if necessary.
  ///
  /// ```swift
  /// let order = try await ledger.orders.openOrder(
  ///   accountID: "klara", productID: "pro.monthly", at: now)
  /// // The app passes order.appAccountToken to StoreKit, and order.order.id with the receipt.
  /// ```
  ///
  /// For a merged account, the order belongs to the account it was merged into.
  ///
  /// - Throws: ``LedgerError/unknownProduct(_:)``, ``LedgerError/erasedAccount(_:)``.
  package func openOrder(
    accountID: String, productID: ProductID, at now: Timestamp
  ) async throws -> StoredOrder {
    let known = try await database.query(
      "SELECT 1 FROM tenure.product WHERE product_id = \(productID) LIMIT 1")
    guard known.count == 1 else { throw LedgerError.unknownProduct(productID) }
    while true {
      let account = try await accounts.successor(
        of: accounts.findOrCreateAccount(accountID, at: now))
      guard !account.isErased else { throw LedgerError.erasedAccount(accountID) }
      let order = PurchaseOrder(
        id: UUID(), account: account.key, productID: productID, createdAt: now, status: .open)
      if try await insert(order, of: account, at: now) {
        return StoredOrder(
          order: order, accountID: account.id, appAccountToken: account.appAccountToken,
          fulfilledAt: nil, environment: nil, transactionID: nil, expiresAt: now + orderLifetime)
      }
    }
  }

  /// Inserts an order, unless its account was merged or erased since it was read.
  private func insert(_ order: PurchaseOrder, of account: Account, at now: Timestamp) async throws
    -> Bool
  {
    try await database.withTransaction { transaction in
      // Merges and erasures lock this row and move the orders that exist by then.
      let rows = try await transaction.query(
        """
        SELECT account_key, merged_into_key FROM tenure.account WHERE account_id = \(account.id)
        FOR KEY SHARE
        """)
      guard let (key, into) = try rows.decodeFirst(AccountKey.self, AccountKey?.self),
        key == account.key, into == nil
      else {
        await transaction.rollBack()
        return false
      }
      try await transaction.commit(with: [
        """
        INSERT INTO tenure.purchase_order (account_key, order_id, product_id, status, created_at)
        VALUES (\(order.account), \(order.id), \(order.productID), \(order.status),
          \(order.createdAt))
        """,
        """
        INSERT INTO tenure.purchase_order_account (order_id, account_key)
        VALUES (\(order.id), \(order.account))
        """,
        AccountChain.seal(order.account, .order, order.id).statement,
        Job.insert(.expireOrder(order.id), runAt: now + orderLifetime, at: now),
      ])
      return true
    }
  }

  package func order(_ id: UUID) async throws -> StoredOrder? {
    guard let account = try await accounts(ofOrders: [id], in: database)[id] else { return nil }
    return try await order(id, of: account)
  }

  package func order(_ id: UUID, of account: AccountKey) async throws -> StoredOrder? {
    try await database.read(StoredOrder.query(id, of: account, lifetime: orderLifetime))
  }

  /// Expires unpaid orders and publishes their events, in one commit.
  ///
  /// - Parameter jobs: Jobs of kind `expire_order`, claimed by one worker.
  /// - Returns: The jobs to run again one by one: a batch skips locked orders, because waiting for
  ///   several locks could deadlock.
  package func expire(_ jobs: [Job], at now: Timestamp) async throws -> [Job] {
    var jobOf: [UUID: Job] = [:]
    for job in jobs { try jobOf[job.subjectID] = job }
    let isAlone = jobs.count == 1
    return try await database.withTransaction { transaction in
      let owners = try await accounts(ofOrders: Set(jobOf.keys), in: transaction)
      let locks = owners.sorted { ($0.value, $0.key.uuidString) < ($1.value, $1.key.uuidString) }
        .map { Self.lock(order: $0.key, of: $0.value, waits: isAlone) }
      let (locked, known) = try await transaction.read(
        Query.all(locks.map { Query($0, decode: Self.orders(from:)) }),
        KnownAccount.query(Set(owners.values)))
      let orders = locked.flatMap(\.self)

      let busy = isAlone ? [] : Set(owners.keys).subtracting(orders.map(\.id))
      let waiting = orders.filter { $0.status == .open && now < $0.createdAt + orderLifetime }
      let expiring = orders.filter { $0.status == .open && $0.createdAt + orderLifetime <= now }
      let undone = busy.union(waiting.map(\.id))
      let expired = expiring.compactMap { order in
        known[order.account].flatMap { $0.erasedAt == nil ? (order, $0.id) : nil }
      }
      var statements: [SQL] = expiring.map { order in
        """
        UPDATE tenure.purchase_order SET status = 'expired'
        WHERE account_key = \(order.account) AND order_id = \(order.id)
        """
      }
      // Locked like every account that events are published to, which keeps its events in order.
      statements += PublishedEntitlements.lock(Set(expired.map(\.1)))
      statements += AccountChain.statements(
        expiring.map { AccountChain.seal($0.account, .order, $0.id) })
      statements += EventRow.insert(expired.map { $0.0.expiry(at: $0.0.createdAt + orderLifetime) })
      statements += jobOf.filter { !undone.contains($0.key) }.map(\.value).completion
      for order in waiting {
        guard let job = jobOf[order.id] else { continue }
        statements += job.repetition(at: order.createdAt + orderLifetime, now: now)
      }
      if !expired.isEmpty { announce([.events], after: transaction) }
      try await transaction.commit(with: statements)
      return busy.compactMap { jobOf[$0] }
    }
  }

  func accounts(
    ofOrders ids: Set<UUID>, in database: some StatementRunner
  ) async throws -> [UUID: AccountKey] {
    let rows = try await database.query(
      """
      SELECT order_id, account_key FROM tenure.purchase_order_account
      WHERE order_id \(anyOf: Array(ids))
      """)
    return Dictionary(uniqueKeysWithValues: try rows.decode(UUID.self, AccountKey.self).map { $0 })
  }

  /// Locks and reads an order, for ``orders(from:)``.
  ///
  /// - Parameter waits: Whether to wait for a locked order instead of skipping it.
  static func lock(order id: UUID, of account: AccountKey, waits: Bool = true) -> SQL {
    """
    SELECT order_id, account_key, product_id, created_at, status FROM tenure.purchase_order
    WHERE account_key = \(account) AND order_id = \(id)
    FOR UPDATE\(waits ? "" : " SKIP LOCKED" as SQL)
    """
  }

  /// Locks and reads the orders that charges may fulfil, for ``orders(from:)``.
  ///
  /// - Parameters:
  ///   - times: The opening times that fit the charges; older expired orders are skipped.
  ///   - named: Also read, as are orders that charges of these original transactions fulfilled.
  static func lockOrdersAwaitingPayment(
    of account: AccountKey, for products: Set<ProductID>, opened times: PurchaseOrder.OpeningTimes,
    and named: (id: UUID, lines: Set<OriginalTransactionID>)? = nil
  ) -> SQL {
    let others: SQL? = named.map { id, lines in
      """
      OR order_id = \(id)
      OR fulfilled_at IS NOT NULL AND NOT is_named
        AND original_transaction_id \(anyOf: Array(lines))
      """
    }
    return """
      SELECT order_id, account_key, product_id, created_at, status FROM tenure.purchase_order
      WHERE account_key = \(account) AND (product_id \(anyOf: products.sorted())
        AND created_at <= \(times.latest)
        AND (status = 'open' OR status = 'expired' AND created_at >= \(times.earliest))
        \(others ?? ""))
      ORDER BY order_id
      FOR UPDATE
      """
  }

  static func orders(from rows: Rows) throws -> [PurchaseOrder] {
    try rows.decode(into: PurchaseOrder.init)
  }

  static func fulfil(
    _ order: PurchaseOrder, by charge: Charge, isNamed: Bool, at now: Timestamp
  ) -> [SQL] {
    [
      """
      UPDATE tenure.purchase_order SET status = 'fulfilled', fulfilled_at = \(now),
        is_named = \(isNamed), environment = \(charge.id.line.environment),
        original_transaction_id = \(charge.id.line.originalTransactionID),
        transaction_id = \(charge.id.transactionID)
      WHERE account_key = \(order.account) AND order_id = \(order.id)
      """,
      Job.delete(.expireOrder(order.id)),
    ]
  }

  /// Marks an order as named: a submission named it after its charge had fulfilled it.
  static func nameOrder(_ order: PurchaseOrder) -> SQL {
    """
    UPDATE tenure.purchase_order SET is_named = true
    WHERE account_key = \(order.account) AND order_id = \(order.id) AND NOT is_named
    """
  }

  /// Opens an order again, with the job that lets it expire.
  static func reopen(_ order: PurchaseOrder, lifetime: Duration, at now: Timestamp) -> [SQL] {
    [
      """
      UPDATE tenure.purchase_order SET status = 'open', fulfilled_at = NULL, is_named = false,
        environment = NULL, original_transaction_id = NULL, transaction_id = NULL
      WHERE account_key = \(order.account) AND order_id = \(order.id)
      """, Job.insert(.expireOrder(order.id), runAt: order.createdAt + lifetime, at: now),
    ]
  }

  /// Marks an order as refunded, or as fulfilled again.
  static func refund(_ order: UUID, of account: AccountKey, isRefunded: Bool) -> SQL {
    """
    UPDATE tenure.purchase_order SET status = \(isRefunded ? "refunded" : "fulfilled")
    WHERE account_key = \(account) AND order_id = \(order)
      AND status = \(isRefunded ? "fulfilled" : "refunded")
    """
  }

  /// Acknowledges the delivery of a charge and its aliases, once; it remains after a refund.
  ///
  /// - Returns: The first acknowledgement's time, and whether this is it; nil: not the account's.
  /// - Throws: ``LedgerError/revokedCharge(_:)`` for the first one of a revoked charge.
  package func acknowledgeDelivery(
    of transaction: TransactionKey, by account: AccountKey, at now: Timestamp
  ) async throws -> (deliveredAt: Timestamp, isFirst: Bool)? {
    try await database.withTransaction { database in
      // Locked, because a delivered transaction may become an alias concurrently.
      guard let original = try await database.originals([transaction.line], locking: true).first,
        let charge = original.rule.position(of: transaction).map({ original.rule.charges[$0] }),
        original.line.decisions[charge.id]?.decision.owner == account
      else { return nil }
      if let deliveredAt = original.fulfilment(of: charge).deliveredAt {
        return (deliveredAt, false)
      }
      guard charge.revocation == nil else { throw LedgerError.revokedCharge(charge.id) }
      try await database.commit(
        with: [
          """
          UPDATE tenure.store_transaction SET delivered_at = \(now)
          WHERE \(charge.id.condition)
          """, AccountChain.seal(deliveryOf: charge.id, by: account, at: now).statement,
        ])
      return (now, true)
    }
  }
}

extension PurchaseOrder {
  fileprivate func expiry(at moment: Timestamp) -> LedgerEvent {
    var data = EventData()
    data.orderID = id.text
    data.productID = productID
    return LedgerEvent(.orderExpired, at: moment, account: account, data: data)
  }
}
