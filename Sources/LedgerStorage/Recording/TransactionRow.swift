import Foundation
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

  /// Reads the rows of an original transaction in the order in which they were recorded.
  ///
  /// Column by column (see `RowCursor`): there can be many rows, and they are locked.
  static func query(_ line: LineID) -> Query<[(row: TransactionRow, fulfilment: Fulfilment)]> {
    let facts: SQL = """
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
      """
    let decisions: SQL = """
      SELECT charge_original_transaction_id, charge_transaction_id, charge_product_id,
        owner_account_key, rule, ground, renewing_account_key, previous_original_transaction_id,
        previous_transaction_id, previous_product_id, ground_status_as_of, switched_off_at,
        is_provisional, decided_at, corrected_at, order_id, delivered_at
      FROM tenure.store_transaction
      WHERE environment = \(line.environment)
        AND original_transaction_id = \(line.originalTransactionID)
      ORDER BY number
      """
    return Query(
      Query(facts) { try Self.transactions($0, line: line) },
      Query(decisions) { try Self.decisions($0, line: line) }
    ).map { facts, decisions in
      zip(facts, decisions).map { facts, decision in
        let row = TransactionRow(
          transaction: facts.transaction, tokenHolder: facts.tokenHolder,
          charge: decision.charge, revokedAt: facts.revokedAt, recorded: decision.recorded)
        return (row, decision.fulfilment)
      }
    }
  }
}

/// What the app made of a charge that it owns: no projection of the ledger.
struct Fulfilment: Hashable, Sendable {
  var orderID: UUID?
  var deliveredAt: Timestamp?
}

extension TransactionRow {
  private static func transactions(_ rows: Rows, line: LineID) throws
    -> [(transaction: StoreTransaction, tokenHolder: AccountKey?, revokedAt: Timestamp?)]
  {
    try rows.check(
      TransactionID.self, ProductID.self, Int.self, Timestamp.self, ChargeKind.self,
      Timestamp.self, Timestamp?.self, Timestamp.self, Timestamp?.self, Timestamp?.self,
      Timestamp?.self, Timestamp?.self, String?.self, String?.self, Int64?.self, Timestamp?.self,
      Timestamp?.self, String?.self, Timestamp?.self, Timestamp?.self, Timestamp?.self,
      Timestamp?.self, Timestamp?.self, Timestamp?.self, UUID?.self,
      Timestamp?.self, AccountKey?.self, WebOrderLineItemID?.self, ProductType?.self,
      String?.self, Int.self, OwnershipType.self, PeriodType.self, String?.self, Int64?.self,
      String?.self, Bool.self)
    return try (0..<rows.count).map { row in
      var cursor = RowCursor(rows: rows, row: row)
      let transactionID = try cursor.next(TransactionID.self)
      let productID = try cursor.next(ProductID.self)
      let number = try cursor.next(Int.self)
      let recordedAt = try cursor.next(Timestamp.self)
      let kind = try cursor.next(ChargeKind.self)
      let purchaseDate = try cursor.next(Timestamp.self)
      let originalPurchaseDate = try cursor.next(Timestamp?.self)
      let chargedAt = try cursor.next(Timestamp.self)
      let expiresAt = try cursor.next(Timestamp?.self)
      let expiresAsOf = try cursor.next(Timestamp?.self)
      let revokedAt = try cursor.next(Timestamp?.self)
      let revocationAt = try cursor.next(Timestamp?.self)
      let revocationReason = try cursor.next(String?.self)
      let revocationType = try cursor.next(String?.self)
      let revocationPercentage = try cursor.next(Int64?.self)
      let revocationAsOf = try cursor.next(Timestamp?.self)
      let unsignedAt = try cursor.next(Timestamp?.self)
      let unsignedReason = try cursor.next(String?.self)
      let unsignedAsOf = try cursor.next(Timestamp?.self)
      let knownRevocationAt = try cursor.next(Timestamp?.self)
      let revocationKnownAt = try cursor.next(Timestamp?.self)
      let notRevokedAsOf = try cursor.next(Timestamp?.self)
      let notMentionedAsOf = try cursor.next(Timestamp?.self)
      let upgradedAsOf = try cursor.next(Timestamp?.self)
      let token = try cursor.next(UUID?.self)
      let tokenAsOf = try cursor.next(Timestamp?.self)
      let tokenHolder = try cursor.next(AccountKey?.self)
      let lineItemID = try cursor.next(WebOrderLineItemID?.self)
      let productType = try cursor.next(ProductType?.self)
      let group = try cursor.next(String?.self)
      let quantity = try cursor.next(Int.self)
      let ownershipType = try cursor.next(OwnershipType.self)
      let periodType = try cursor.next(PeriodType.self)
      let offerID = try cursor.next(String?.self)
      let price = try cursor.next(Int64?.self)
      let currency = try cursor.next(String?.self)
      let isCommitment = try cursor.next(Bool.self)
      var transaction = StoreTransaction(
        TransactionRecord(
          key: TransactionKey(line: line, transactionID: transactionID, productID: productID),
          asOf: recordedAt, kind: kind, purchaseDate: purchaseDate,
          originalPurchaseDate: originalPurchaseDate, webOrderLineItemID: lineItemID,
          productType: productType, subscriptionGroup: group, quantity: quantity,
          ownershipType: ownershipType, periodType: periodType, offerID: offerID,
          priceMilliunits: price, currency: currency, isCommitment: isCommitment),
        recorded: RecordingOrder(at: recordedAt, number: number))
      transaction.chargedAt = chargedAt
      transaction.upgradedAsOf = upgradedAsOf
      transaction.expiresDate = dated(expiresAt, asOf: expiresAsOf)
      transaction.appAccountToken = dated(token, asOf: tokenAsOf)
      let signed = revocationAt.map {
        Revocation(
          at: $0, reason: revocationReason, type: revocationType,
          percentage: revocationPercentage)
      }
      transaction.revocation = RevocationHistory(
        signed: dated(signed, asOf: revocationAsOf),
        unsigned: dated(
          unsignedAt.map { Revocation(at: $0, reason: unsignedReason) }, asOf: unsignedAsOf),
        known: dated(knownRevocationAt, asOf: revocationKnownAt),
        notRevokedAsOf: notRevokedAsOf, notMentionedAsOf: notMentionedAsOf)
      return (transaction, tokenHolder, revokedAt)
    }
  }

  private static func decisions(_ rows: Rows, line: LineID) throws
    -> [(charge: Charge.ID, recorded: Line.RecordedDecision?, fulfilment: Fulfilment)]
  {
    try rows.check(
      OriginalTransactionID.self, TransactionID.self, ProductID.self, AccountKey?.self,
      Decision.Rule?.self, RenewalFinding.Ground?.self, AccountKey?.self,
      OriginalTransactionID?.self, TransactionID?.self, ProductID?.self, Timestamp?.self,
      Timestamp?.self, Bool?.self, Timestamp?.self, Timestamp?.self, UUID?.self, Timestamp?.self)
    return try (0..<rows.count).map { row in
      var cursor = RowCursor(rows: rows, row: row)
      let chargeLine = try cursor.next(OriginalTransactionID.self)
      let chargeID = try cursor.next(TransactionID.self)
      let chargeProduct = try cursor.next(ProductID.self)
      let owner = try cursor.next(AccountKey?.self)
      let rule = try cursor.next(Decision.Rule?.self)
      let ground = try cursor.next(RenewalFinding.Ground?.self)
      let renewing = try cursor.next(AccountKey?.self)
      let previousLine = try cursor.next(OriginalTransactionID?.self)
      let previousID = try cursor.next(TransactionID?.self)
      let previousProduct = try cursor.next(ProductID?.self)
      let statusAsOf = try cursor.next(Timestamp?.self)
      let switchedOffAt = try cursor.next(Timestamp?.self)
      let isProvisional = try cursor.next(Bool?.self)
      let decidedAt = try cursor.next(Timestamp?.self)
      let correctedAt = try cursor.next(Timestamp?.self)
      let orderID = try cursor.next(UUID?.self)
      let deliveredAt = try cursor.next(Timestamp?.self)
      let charge = TransactionKey(
        line: LineID(line.environment, chargeLine), transactionID: chargeID,
        productID: chargeProduct)
      let fulfilment = Fulfilment(orderID: orderID, deliveredAt: deliveredAt)
      guard let rule, let ground, let isProvisional, let decidedAt else {
        return (charge, nil, fulfilment)
      }
      var finding = RenewalFinding(account: renewing, ground: ground)
      if let previousLine, let previousID, let previousProduct {
        finding.previous = TransactionKey(
          line: LineID(line.environment, previousLine), transactionID: previousID,
          productID: previousProduct)
      }
      finding.statusAsOf = statusAsOf
      finding.switchedOffAt = switchedOffAt
      let decision = Decision(
        owner: owner, rule: rule, finding: finding, isProvisional: isProvisional)
      return (
        charge,
        Line.RecordedDecision(decision: decision, decidedAt: decidedAt, correctedAt: correctedAt),
        fulfilment
      )
    }
  }

  private static func dated<Value>(_ value: Value?, asOf: Timestamp?) -> Dated<Value>? {
    guard let value, let asOf else { return nil }
    return Dated(value, asOf: asOf)
  }
}
