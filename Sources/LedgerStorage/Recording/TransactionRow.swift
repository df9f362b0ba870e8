import Foundation
import Postgres
import Subscriptions

/// A row of `store_transaction` without order and delivery, which are not projections.
struct TransactionRow: Hashable, Sendable {
  var transaction: StoreTransaction
  /// The account that the transaction's token was issued to.
  var tokenHolder: AccountKey?
  var charge: Charge.ID
  /// Nil if there is no revocation, or it was lifted.
  var revokedAt: Timestamp?
  /// Nil for an alias.
  var recorded: OriginalTransaction.RecordedDecision?

  // MARK: Columns

  private static let key: [Column<TransactionRow>] = [
    Column("environment", \.transaction.key.line.environment),
    Column("original_transaction_id", \.transaction.key.line.originalTransactionID),
    Column("transaction_id", \.transaction.key.transactionID),
    Column("product_id", \.transaction.key.productID),
  ]

  private static let facts: [Column<TransactionRow>] = [
    Column("number", \.transaction.recorded.number),
    Column("recorded_at", \.transaction.recorded.at),
    Column("kind", \.transaction.kind),
    Column("purchased_at", \.transaction.purchaseDate),
    Column("original_purchased_at", \.transaction.originalPurchaseDate),
    Column("charged_at", \.transaction.chargedAt),
    Column("expires_at", \.transaction.expiresDate?.value),
    Column("expires_as_of", \.transaction.expiresDate?.asOf),
    Column("revoked_at", \.revokedAt),
    Column("revocation_at", \.transaction.revocation.signed?.value.at),
    Column("revocation_reason", \.transaction.revocation.signed?.value.reason),
    Column("revocation_type", \.transaction.revocation.signed?.value.type),
    Column("revocation_percentage", \.transaction.revocation.signed?.value.percentage),
    Column("revocation_as_of", \.transaction.revocation.signed?.asOf),
    Column("unsigned_revocation_at", \.transaction.revocation.unsigned?.value.at),
    Column("unsigned_revocation_reason", \.transaction.revocation.unsigned?.value.reason),
    Column("unsigned_revocation_as_of", \.transaction.revocation.unsigned?.asOf),
    Column("known_revocation_at", \.transaction.revocation.known?.value),
    Column("revocation_known_at", \.transaction.revocation.known?.asOf),
    Column("not_revoked_as_of", \.transaction.revocation.notRevokedAsOf),
    Column("not_mentioned_as_of", \.transaction.revocation.notMentionedAsOf),
    Column("upgraded_as_of", \.transaction.upgradedAsOf),
    Column("app_account_token", \.transaction.appAccountToken?.value),
    Column("app_account_token_as_of", \.transaction.appAccountToken?.asOf),
    Column("token_account_key", \.tokenHolder),
    Column("web_order_line_item_id", \.transaction.webOrderLineItemID),
    Column("product_type", \.transaction.productType),
    Column("subscription_group", \.transaction.subscriptionGroup),
    Column("quantity", \.transaction.quantity),
    Column("ownership_type", \.transaction.ownershipType),
    Column("period_type", \.transaction.periodType),
    Column("offer_id", \.transaction.offerID),
    Column("price_milliunits", \.transaction.priceMilliunits),
    Column("currency", \.transaction.currency),
    Column("is_commitment", \.transaction.isCommitment),
  ]

  private static let decision: [Column<TransactionRow>] = [
    Column("charge_original_transaction_id", \.charge.line.originalTransactionID),
    Column("charge_transaction_id", \.charge.transactionID),
    Column("charge_product_id", \.charge.productID),
    Column("owner_account_key", \.recorded?.decision.owner),
    Column("rule", \.recorded?.decision.rule),
    Column("ground", \.recorded?.decision.finding.ground),
    Column("renewing_account_key", \.recorded?.decision.finding.account),
    Column("previous_original_transaction_id", \.previous?.line.originalTransactionID),
    Column("previous_transaction_id", \.previous?.transactionID),
    Column("previous_product_id", \.previous?.productID),
    Column("ground_status_as_of", \.recorded?.decision.finding.statusAsOf),
    Column("switched_off_at", \.recorded?.decision.finding.switchedOffAt),
    Column("is_provisional", \.recorded?.decision.isProvisional),
    Column("decided_at", \.recorded?.decidedAt),
    Column("corrected_at", \.recorded?.correctedAt),
  ]

  private var previous: Charge.ID? { recorded?.decision.finding.previous }

  private static let factNames = facts.map(\.name).selectList
  private static let decisionNames = decision.map(\.name).selectList
  private static let upsert = UpsertStatement(
    into: "store_transaction", key: key, columns: facts + decision)

  var upsert: SQL { Self.upsert(self) }

  /// Reads the rows in the order of recording, column by column (see `RowCursor`): there can be
  /// many, and they are locked.
  static func query(_ line: OriginalTransactionKey) -> Query<
    [(row: TransactionRow, fulfilment: Fulfilment)]
  > {
    let facts: SQL = """
      SELECT transaction_id, product_id, \(unescaped: Self.factNames)
      FROM tenure.store_transaction
      WHERE environment = \(line.environment)
        AND original_transaction_id = \(line.originalTransactionID)
      ORDER BY number
      """
    let decisions: SQL = """
      SELECT \(unescaped: Self.decisionNames), order_id, delivered_at
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

/// The order and the delivery of a charge: facts of their own, no projections.
struct Fulfilment: Hashable, Sendable {
  var orderID: UUID?
  var deliveredAt: Timestamp?
}

extension TransactionRow {
  private static func transactions(_ rows: Rows, line: OriginalTransactionKey) throws
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
      transaction.revocation.signed = dated(signed, asOf: revocationAsOf)
      transaction.revocation.unsigned = dated(
        unsignedAt.map { Revocation(at: $0, reason: unsignedReason) }, asOf: unsignedAsOf)
      transaction.revocation.known = dated(knownRevocationAt, asOf: revocationKnownAt)
      transaction.revocation.notRevokedAsOf = notRevokedAsOf
      transaction.revocation.notMentionedAsOf = notMentionedAsOf
      return (transaction, tokenHolder, revokedAt)
    }
  }

  private static func decisions(_ rows: Rows, line: OriginalTransactionKey) throws
    -> [(
      charge: Charge.ID, recorded: OriginalTransaction.RecordedDecision?, fulfilment: Fulfilment
    )]
  {
    try rows.check(
      OriginalTransactionID.self, TransactionID.self, ProductID.self, AccountKey?.self,
      Decision.Rule?.self, RenewalEvidence.Ground?.self, AccountKey?.self,
      OriginalTransactionID?.self, TransactionID?.self, ProductID?.self, Timestamp?.self,
      Timestamp?.self, Bool?.self, Timestamp?.self, Timestamp?.self, UUID?.self, Timestamp?.self)
    return try (0..<rows.count).map { row in
      var cursor = RowCursor(rows: rows, row: row)
      let chargeLine = try cursor.next(OriginalTransactionID.self)
      let chargeID = try cursor.next(TransactionID.self)
      let chargeProduct = try cursor.next(ProductID.self)
      let owner = try cursor.next(AccountKey?.self)
      let rule = try cursor.next(Decision.Rule?.self)
      let ground = try cursor.next(RenewalEvidence.Ground?.self)
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
        line: OriginalTransactionKey(line.environment, chargeLine), transactionID: chargeID,
        productID: chargeProduct)
      let fulfilment = Fulfilment(orderID: orderID, deliveredAt: deliveredAt)
      guard let rule, let ground, let isProvisional, let decidedAt else {
        return (charge, nil, fulfilment)
      }
      var finding = RenewalEvidence(account: renewing, ground: ground)
      if let previousLine, let previousID, let previousProduct {
        finding.previous = TransactionKey(
          line: OriginalTransactionKey(line.environment, previousLine), transactionID: previousID,
          productID: previousProduct)
      }
      finding.statusAsOf = statusAsOf
      finding.switchedOffAt = switchedOffAt
      let decision = Decision(
        owner: owner, rule: rule, finding: finding, isProvisional: isProvisional)
      return (
        charge,
        OriginalTransaction.RecordedDecision(
          decision: decision, decidedAt: decidedAt, correctedAt: correctedAt),
        fulfilment
      )
    }
  }

  private static func dated<Value>(_ value: Value?, asOf: Timestamp?) -> Dated<Value>? {
    guard let value, let asOf else { return nil }
    return Dated(value, asOf: asOf)
  }
}
