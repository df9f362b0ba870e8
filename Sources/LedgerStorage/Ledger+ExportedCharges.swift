package import Foundation
import Postgres
package import Subscriptions

/// What was bought, and whose it is, page by page, for who moves out.
extension Ledger {
  /// A charge with its owner.
  package struct ExportedCharge: Hashable, Sendable {
    package var key: TransactionKey
    package var purchasedAt: Timestamp
    package var expiresAt: Timestamp?
    package var revokedAt: Timestamp?
    package var quantity: Int
    package var ownershipType: String
    package var periodType: String
    /// Apple's price of one; nil: Apple named none.
    package var priceMilliunits: Int64?
    package var currency: String?
    /// Nil: nobody's.
    package var accountID: String?
    package var rule: Decision.Rule
    /// The order that it fulfilled.
    package var orderID: UUID?
    /// When the app's server acknowledged that it has delivered; nil: it has not.
    package var deliveredAt: Timestamp?
  }

  /// Reads the charges behind another, in the order of their keys.
  package func exportCharges(after last: TransactionKey?) async throws
    -> ExportPage<ExportedCharge, TransactionKey>
  {
    let rows = try await database.query(
      """
      SELECT environment, original_transaction_id, transaction_id, product_id, charged_at,
        expires_at, revoked_at, owner_account_key, rule, quantity, ownership_type, period_type,
        price_milliunits, currency, order_id, delivered_at
      FROM tenure.store_transaction
      WHERE (environment, original_transaction_id, transaction_id, product_id)
          > (\(last?.line.environment.rawValue ?? ""),
            \(last?.line.originalTransactionID.rawValue ?? ""),
            \(last?.transactionID.rawValue ?? ""), \(last?.productID.rawValue ?? ""))
        AND rule IS NOT NULL
      ORDER BY environment, original_transaction_id, transaction_id, product_id
      LIMIT \(Self.exportPage)
      """
    ).decode(
      Environment.self, OriginalTransactionID.self, TransactionID.self, ProductID.self,
      Timestamp.self, Timestamp?.self, Timestamp?.self, AccountKey?.self, Decision.Rule.self,
      Int.self, String.self, String.self, Int64?.self, String?.self, UUID?.self, Timestamp?.self)
    let names = try await accountIDs(of: Set(rows.compactMap(\.7)))
    let charges = rows.map { row in
      ExportedCharge(
        key: TransactionKey(
          line: LineID(row.0, row.1), transactionID: row.2, productID: row.3),
        purchasedAt: row.4, expiresAt: row.5, revokedAt: row.6, quantity: row.9,
        ownershipType: row.10, periodType: row.11, priceMilliunits: row.12, currency: row.13,
        accountID: row.7.flatMap { names[$0] }, rule: row.8, orderID: row.14,
        deliveredAt: row.15)
    }
    return ExportPage(
      rows: try await addingWhatAliasesFulfilled(to: charges),
      next: charges.count < Self.exportPage ? nil : charges.last?.key)
  }

  /// What is an alias now may have been fulfilled or delivered as a charge of its own.
  private func addingWhatAliasesFulfilled(to charges: [ExportedCharge]) async throws
    -> [ExportedCharge]
  {
    var charges = charges
    let places = Dictionary(uniqueKeysWithValues: zip(charges.map(\.key), charges.indices))
    let lines = try await linesLinked(to: Set(charges.map(\.key.line.originalTransactionID)))
    let aliases = try await database.query(
      """
      SELECT environment, charge_original_transaction_id, charge_transaction_id,
        charge_product_id, order_id, delivered_at
      FROM tenure.store_transaction
      WHERE environment = ANY(\(Environment.allCases)) AND original_transaction_id = ANY(\(lines))
        AND rule IS NULL AND (order_id IS NOT NULL OR delivered_at IS NOT NULL)
      ORDER BY recorded_at, original_transaction_id, number
      """
    ).decode(
      Environment.self, OriginalTransactionID.self, TransactionID.self, ProductID.self,
      UUID?.self, Timestamp?.self)
    for row in aliases {
      let key = TransactionKey(
        line: LineID(row.0, row.1), transactionID: row.2, productID: row.3)
      guard let place = places[key] else { continue }
      charges[place].orderID = charges[place].orderID ?? row.4
      charges[place].deliveredAt = [charges[place].deliveredAt, row.5].compactMap(\.self).min()
    }
    return charges
  }

  /// The ids of lines, and of those that Apple links with them.
  private func linesLinked(to lines: Set<OriginalTransactionID>) async throws
    -> [OriginalTransactionID]
  {
    var (all, new) = (lines, lines)
    while !new.isEmpty {
      let linked = try await database.query(
        """
        SELECT linked_original_transaction_id FROM tenure.line_link
        WHERE environment = ANY(\(Environment.allCases))
          AND original_transaction_id = ANY(\(new.sorted()))
        """
      ).decode(OriginalTransactionID.self)
      new = Set(linked).subtracting(all)
      all.formUnion(new)
    }
    return all.sorted()
  }
}
