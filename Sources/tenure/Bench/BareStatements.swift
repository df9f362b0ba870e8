import Foundation
import LedgerStorage
import Postgres
import Subscriptions

/// The statements of one submission, batch by batch, as `LedgerStorage` sends them.
struct BareStatements: Sendable {
  let sample: SampleSubmission
  let exchangeAnswer: [UInt8]
  let now: Timestamp
  let submissionID = UUID()

  init(_ sample: SampleSubmission, answer: [UInt8], at now: Timestamp) {
    self.sample = sample
    exchangeAnswer = answer
    self.now = now
  }

  var environment: String { Environment.production.rawValue }
  var product: String { SampleAccounts.productID.rawValue }
  var line: String { sample.originalTransactionID }
  var transaction: String { sample.transactionID }
  var charge: SQL {
    """
    environment = \(environment) AND original_transaction_id = \(line)
      AND transaction_id = \(transaction) AND product_id = \(product)
    """
  }
  private var jobSubject: String { submissionID.uuidString.lowercased() }

  /// Stores the receipt, and the account if it is new.
  var store: [SQL] {
    let retryAt = now + .seconds(60)
    let bundleID: String? = nil
    let transactionID: String? = nil
    return [selectAccount] + (sample.orderID == nil ? insertAccount + [selectAccount] : []) + [
      """
      INSERT INTO tenure.submission (submission_id, account_key, received_at, transaction_id,
        order_id, restore, bundle_id, status, retry_at)
      VALUES (\(submissionID), \(sample.accountKey), \(now), \(transactionID),
        \(sample.orderID), \(false), \(bundleID), 'pending', \(retryAt))
      """,
      """
      INSERT INTO tenure.submission_payload (submission_id, receipt_data)
      VALUES (\(submissionID), \(sample.receiptData))
      """,
      """
      INSERT INTO tenure.job (kind, subject, lane, run_at, created_at)
      VALUES (\("verify_submission"), \(jobSubject), \("submissions"), \(retryAt), \(now))
      ON CONFLICT (kind, subject) DO NOTHING
      """,
    ]
  }

  private var selectAccount: SQL {
    """
    SELECT account_key, app_account_token, created_at FROM tenure.account
    WHERE account_id = \(sample.accountID)
    """
  }

  private var insertAccount: [SQL] {
    let (key, token) = (sample.accountKey, sample.appAccountToken)
    return [
      """
      INSERT INTO tenure.account (account_id, account_key, app_account_token, created_at)
      VALUES (\(sample.accountID), \(key), \(token), \(now))
      ON CONFLICT (account_id) DO NOTHING
      RETURNING account_id
      """,
      """
      INSERT INTO tenure.account_by_key (account_key, account_id, app_account_token)
      VALUES (\(key), \(sample.accountID), \(token))
      """,
      """
      INSERT INTO tenure.account_by_token (app_account_token, account_key)
      VALUES (\(token), \(key))
      """,
    ]
  }

  /// Locks the submission and the line, and reads all that the decision needs.
  var load: [SQL] {
    [
      """
      SELECT status, retry_at, attempts FROM tenure.submission WHERE submission_id = \(submissionID)
      FOR UPDATE
      """,
      """
      SELECT coalesce(max(number), 0) FROM tenure.submission_exchange
      WHERE submission_id = \(submissionID)
      """,
      """
      INSERT INTO tenure.original_transaction (environment, original_transaction_id)
      VALUES (\(environment), \(line))
      ON CONFLICT (environment, original_transaction_id) DO NOTHING
      """,
      """
      SELECT head_number, head_hash, head_recorded_at, confirmed_as_of, confirmed_number
      FROM tenure.original_transaction
      WHERE environment = \(environment) AND original_transaction_id = \(line)
      FOR UPDATE
      """,
    ] + loadLine + loadOrder + loadAccount
  }

  private var loadLine: [SQL] {
    [
      select(
        """
        transaction_id, product_id, number, recorded_at, kind, purchased_at,
        original_purchased_at, charged_at, expires_at, expires_as_of, revoked_at, revocation_at,
        revocation_reason, revocation_type, revocation_percentage, revocation_as_of,
        unsigned_revocation_at, unsigned_revocation_reason, unsigned_revocation_as_of,
        known_revocation_at, revocation_known_at, not_revoked_as_of, not_mentioned_as_of,
        upgraded_as_of,
        app_account_token,
        app_account_token_as_of, token_account_key, web_order_line_item_id, product_type,
        subscription_group, quantity, ownership_type, period_type, offer_id, price_milliunits,
        currency, is_commitment
        """, from: "store_transaction"),
      select(
        """
        charge_original_transaction_id, charge_transaction_id, charge_product_id,
        owner_account_key, rule, ground, renewing_account_key, previous_original_transaction_id,
        previous_transaction_id, previous_product_id, ground_status_as_of, switched_off_at,
        is_provisional, decided_at, corrected_at, order_id, delivered_at
        """, from: "store_transaction"),
      select(
        """
        number, as_of, auto_renews, phase, grace_ends_at, auto_renew_product_id,
        expiration_intent, app_account_token, token_account_key, is_commitment
        """, from: "renewal_status"),
      select(
        "number, recorded_at, transaction_id, product_id, account_key, received_at",
        from: "claim"),
      select(
        "number, recorded_at, transaction_id, product_id, account_key, effective_from",
        from: "placement"),
      """
      SELECT linked_original_transaction_id FROM tenure.line_link
      WHERE environment = \(environment) AND original_transaction_id = \(line)
      """,
      """
      INSERT INTO tenure.transaction_line (transaction_id, environment, original_transaction_id)
      SELECT name, environment, original_transaction_id
      FROM unnest(\([transaction]), \([environment]), \([line]))
        AS occurrence (name, environment, original_transaction_id)
      ON CONFLICT (transaction_id, environment) DO NOTHING
      """,
      """
      INSERT INTO tenure.web_order_line_item (web_order_line_item_id, environment,
        original_transaction_id)
      SELECT name, environment, original_transaction_id
      FROM unnest(\([sample.webOrderLineItemID]), \([environment]), \([line]))
        AS occurrence (name, environment, original_transaction_id)
      ON CONFLICT (web_order_line_item_id, environment) DO NOTHING
      """,
      """
      SELECT transaction_id, environment, original_transaction_id FROM tenure.transaction_line
      WHERE transaction_id = ANY(\([transaction]))
      """,
      """
      SELECT web_order_line_item_id, environment, original_transaction_id
      FROM tenure.web_order_line_item
      WHERE web_order_line_item_id = ANY(\([sample.webOrderLineItemID]))
      """,
      """
      SELECT account_key, account_id, erased_at FROM tenure.account_by_key
      WHERE account_key = ANY(\([sample.accountKey]))
      """,
    ]
  }

  private func select(_ columns: String, from table: String) -> SQL {
    """
    SELECT \(unescaped: columns) FROM tenure.\(unescaped: table)
    WHERE environment = \(environment) AND original_transaction_id = \(line)
    ORDER BY number
    """
  }

  private var loadOrder: [SQL] {
    guard let order = sample.orderID else {
      return [
        """
        SELECT order_id, account_key, product_id, created_at, status FROM tenure.purchase_order
        WHERE account_key = \(sample.accountKey) AND product_id = ANY(\([product]))
          AND status = 'open'
        ORDER BY order_id
        FOR UPDATE
        """
      ]
    }
    return [
      """
      SELECT order_id, account_key, product_id, created_at, status FROM tenure.purchase_order
      WHERE account_key = \(sample.accountKey) AND order_id = \(order)
      FOR UPDATE
      """
    ]
  }

  /// Locks the account, and reads what it holds and was told.
  private var loadAccount: [SQL] {
    [
      """
      SELECT account_id FROM tenure.account WHERE account_id = \(sample.accountID)
      FOR NO KEY UPDATE
      """,
      """
      SELECT a.account_id, a.told_at, t.entitlement, t.access_ends_at
      FROM tenure.account AS a LEFT JOIN tenure.told_entitlement AS t USING (account_id)
      WHERE a.account_id = ANY(\([sample.accountID]))
      """,
      """
      SELECT account_id, environment, original_transaction_id, transaction_id, product_id,
        family_id, product_type, period_type, starts_at, ends_at, revoked_at, superseded_at,
        auto_renews, phase, grace_ends_at
      FROM tenure.holding WHERE account_id = ANY(\([sample.accountID]))
      """,
      """
      SELECT account_id, grant_id, entitlement, starts_at, ends_at, source, environment,
        original_transaction_id, revoked_at
      FROM tenure.account_grant WHERE account_id = ANY(\([sample.accountID]))
        AND submission_id IS DISTINCT FROM \(submissionID)
      """,
    ]
  }

  /// Reads what the answer says beside the decision.
  var answer: [SQL] {
    guard let order = sample.orderID else { return [] }
    return [
      """
      SELECT product_id, status, created_at, fulfilled_at, environment, transaction_id
      FROM tenure.purchase_order
      WHERE account_key = \(sample.accountKey) AND order_id = \(order)
      """,
      """
      SELECT account_id, app_account_token FROM tenure.account_by_key
      WHERE account_key = \(sample.accountKey)
      """,
    ]
  }
}
