import Postgres
import Subscriptions

/// A row of `store_transaction`, but for what is no projection (its order and its delivery).
struct TransactionRow: Hashable, Sendable {
  var transaction: StoreTransaction
  /// The account that the transaction's token was issued to.
  var tokenHolder: AccountKey?
  /// The transaction that names the charge.
  var charge: Charge.ID
  /// When the transaction was revoked; nil: never, or that was lifted.
  var revokedAt: Timestamp?
  /// Nil for an alias.
  var recorded: Line.RecordedDecision?

  /// Writes the row, whether there is one or not.
  var upsert: SQL {
    let (key, charge, decision) = (transaction.key, charge, recorded?.decision)
    let (finding, revocation) = (decision?.finding, transaction.revocation)
    return """
      INSERT INTO tenure.store_transaction (
        environment, original_transaction_id, transaction_id, product_id, number, recorded_at,
        kind, purchased_at, original_purchased_at, charged_at, expires_at, expires_as_of,
        revoked_at, revocation_at, revocation_reason, revocation_type, revocation_percentage,
        revocation_as_of, unsigned_revocation_at, unsigned_revocation_reason,
        unsigned_revocation_as_of, known_revocation_at, revocation_known_at, not_revoked_as_of,
        not_mentioned_as_of, upgraded_as_of, app_account_token,
        app_account_token_as_of, token_account_key, web_order_line_item_id, product_type,
        subscription_group, quantity, ownership_type, period_type, offer_id, price_milliunits,
        currency, is_commitment, charge_original_transaction_id, charge_transaction_id,
        charge_product_id, owner_account_key, rule, ground, renewing_account_key,
        previous_original_transaction_id, previous_transaction_id, previous_product_id,
        ground_status_as_of, switched_off_at, is_provisional, decided_at, corrected_at
      ) VALUES (
        \(key.line.environment), \(key.line.originalTransactionID), \(key.transactionID),
        \(key.productID), \(transaction.recorded.number), \(transaction.recorded.at),
        \(transaction.kind), \(transaction.purchaseDate), \(transaction.originalPurchaseDate),
        \(transaction.chargedAt), \(transaction.expiresDate?.value),
        \(transaction.expiresDate?.asOf), \(revokedAt),
        \(revocation.signed?.value.at), \(revocation.signed?.value.reason),
        \(revocation.signed?.value.type), \(revocation.signed?.value.percentage),
        \(revocation.signed?.asOf), \(revocation.unsigned?.value.at),
        \(revocation.unsigned?.value.reason), \(revocation.unsigned?.asOf),
        \(revocation.known?.value), \(revocation.known?.asOf),
        \(revocation.notRevokedAsOf), \(revocation.notMentionedAsOf),
        \(transaction.upgradedAsOf), \(transaction.appAccountToken?.value),
        \(transaction.appAccountToken?.asOf), \(tokenHolder), \(transaction.webOrderLineItemID),
        \(transaction.productType), \(transaction.subscriptionGroup), \(transaction.quantity),
        \(transaction.ownershipType), \(transaction.periodType), \(transaction.offerID),
        \(transaction.priceMilliunits), \(transaction.currency), \(transaction.isCommitment),
        \(charge.line.originalTransactionID), \(charge.transactionID), \(charge.productID),
        \(decision?.owner), \(decision?.rule), \(finding?.ground), \(finding?.account),
        \(finding?.previous?.line.originalTransactionID), \(finding?.previous?.transactionID),
        \(finding?.previous?.productID), \(finding?.statusAsOf), \(finding?.switchedOffAt),
        \(decision?.isProvisional), \(recorded?.decidedAt), \(recorded?.correctedAt)
      )
      ON CONFLICT (environment, original_transaction_id, transaction_id, product_id) DO UPDATE SET
        number = excluded.number, recorded_at = excluded.recorded_at, kind = excluded.kind,
        purchased_at = excluded.purchased_at,
        original_purchased_at = excluded.original_purchased_at, charged_at = excluded.charged_at,
        expires_at = excluded.expires_at, expires_as_of = excluded.expires_as_of,
        revoked_at = excluded.revoked_at, revocation_at = excluded.revocation_at,
        revocation_reason = excluded.revocation_reason, revocation_type = excluded.revocation_type,
        revocation_percentage = excluded.revocation_percentage,
        revocation_as_of = excluded.revocation_as_of,
        unsigned_revocation_at = excluded.unsigned_revocation_at,
        unsigned_revocation_reason = excluded.unsigned_revocation_reason,
        unsigned_revocation_as_of = excluded.unsigned_revocation_as_of,
        known_revocation_at = excluded.known_revocation_at,
        revocation_known_at = excluded.revocation_known_at,
        not_revoked_as_of = excluded.not_revoked_as_of,
        not_mentioned_as_of = excluded.not_mentioned_as_of,
        upgraded_as_of = excluded.upgraded_as_of,
        app_account_token = excluded.app_account_token,
        app_account_token_as_of = excluded.app_account_token_as_of,
        token_account_key = excluded.token_account_key,
        web_order_line_item_id = excluded.web_order_line_item_id,
        product_type = excluded.product_type, subscription_group = excluded.subscription_group,
        quantity = excluded.quantity, ownership_type = excluded.ownership_type,
        period_type = excluded.period_type, offer_id = excluded.offer_id,
        price_milliunits = excluded.price_milliunits, currency = excluded.currency,
        is_commitment = excluded.is_commitment,
        charge_original_transaction_id = excluded.charge_original_transaction_id,
        charge_transaction_id = excluded.charge_transaction_id,
        charge_product_id = excluded.charge_product_id,
        owner_account_key = excluded.owner_account_key, rule = excluded.rule,
        ground = excluded.ground, renewing_account_key = excluded.renewing_account_key,
        previous_original_transaction_id = excluded.previous_original_transaction_id,
        previous_transaction_id = excluded.previous_transaction_id,
        previous_product_id = excluded.previous_product_id,
        ground_status_as_of = excluded.ground_status_as_of,
        switched_off_at = excluded.switched_off_at, is_provisional = excluded.is_provisional,
        decided_at = excluded.decided_at, corrected_at = excluded.corrected_at
      """
  }

  /// Reads a line's rows in the order in which they were recorded.
  ///
  /// Two statements, since a tuple of all columns would be beyond a reader: see
  /// ``rows(facts:decisions:line:)``.
  static func select(_ line: LineID) -> [SQL] {
    [
      """
      SELECT transaction_id, product_id, number, recorded_at, kind, purchased_at,
        original_purchased_at, charged_at, expires_at, expires_as_of, revoked_at, revocation_at,
        revocation_reason, revocation_type, revocation_percentage, revocation_as_of,
        unsigned_revocation_at, unsigned_revocation_reason, unsigned_revocation_as_of,
        known_revocation_at, revocation_known_at, not_revoked_as_of, not_mentioned_as_of,
        upgraded_as_of,
        app_account_token,
        app_account_token_as_of, token_account_key, web_order_line_item_id, product_type,
        subscription_group, quantity, ownership_type, period_type, offer_id, price_milliunits,
        currency, is_commitment
      FROM tenure.store_transaction
      WHERE environment = \(line.environment)
        AND original_transaction_id = \(line.originalTransactionID)
      ORDER BY number
      """,
      """
      SELECT charge_original_transaction_id, charge_transaction_id, charge_product_id,
        owner_account_key, rule, ground, renewing_account_key, previous_original_transaction_id,
        previous_transaction_id, previous_product_id, ground_status_as_of, switched_off_at,
        is_provisional, decided_at, corrected_at, order_id, delivered_at
      FROM tenure.store_transaction
      WHERE environment = \(line.environment)
        AND original_transaction_id = \(line.originalTransactionID)
      ORDER BY number
      """,
    ]
  }
}
