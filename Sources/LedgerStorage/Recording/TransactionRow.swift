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

  /// In the order in which they are decoded.
  private static let columns: [Column<TransactionRow>] = [
    Column("recorded_at", \.transaction.recorded.at),
    Column("number", \.transaction.recorded.number),
    Column("kind", \.transaction.kind),
    Column("purchased_at", \.transaction.purchaseDate),
    Column("web_order_line_item_id", \.transaction.webOrderLineItemID),
    Column("product_type", \.transaction.productType),
    Column("quantity", \.transaction.quantity),
    Column("ownership_type", \.transaction.ownershipType),
    Column("period_type", \.transaction.periodType),
    Column("offer_type", \.transaction.offerType),
    Column("offer_id", \.transaction.offerID),
    Column("storefront", \.transaction.storefront),
    Column("price_milliunits", \.transaction.priceMilliunits),
    Column("currency", \.transaction.currency),
    Column("is_commitment", \.transaction.isCommitment),
    Column("charged_at", \.transaction.chargedAt),
    Column("upgraded_as_of", \.transaction.upgradedAsOf),
    Column("expires_at", \.transaction.expiresDate?.value),
    Column("expires_as_of", \.transaction.expiresDate?.asOf),
    Column("app_account_token", \.transaction.appAccountToken?.value),
    Column("app_account_token_as_of", \.transaction.appAccountToken?.asOf),
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
    Column("token_account_key", \.tokenHolder),
    Column("charge_original_transaction_id", \.charge.line.originalTransactionID),
    Column("charge_transaction_id", \.charge.transactionID),
    Column("charge_product_id", \.charge.productID),
    Column("revoked_at", \.revokedAt),
    Column("owner_account_key", \.recorded?.decision.owner),
    Column("rule", \.recorded?.decision.rule),
    Column("reason", \.recorded?.decision.renewal.reason),
    Column("renewing_account_key", \.recorded?.decision.renewal.account),
    Column("previous_original_transaction_id", \.previous?.line.originalTransactionID),
    Column("previous_transaction_id", \.previous?.transactionID),
    Column("previous_product_id", \.previous?.productID),
    Column("status_as_of", \.recorded?.decision.renewal.statusAsOf),
    Column("switched_off_at", \.recorded?.decision.renewal.switchedOffAt),
    Column("is_provisional", \.recorded?.decision.isProvisional),
    Column("decided_at", \.recorded?.decidedAt),
    Column("corrected_at", \.recorded?.correctedAt),
    Column("lost_by_keys") { $0.losses?.map(\.account) },
    Column("lost_at") { $0.losses?.map(\.at) },
  ]

  /// Nil without any.
  private var losses: [OriginalTransaction.RecordedDecision.Loss]? {
    recorded.flatMap { $0.losses.isEmpty ? nil : $0.losses }
  }

  private var previous: Charge.ID? { recorded?.decision.renewal.previous }

  /// The names of the columns in which two rows differ.
  static func differing(_ lhs: TransactionRow, _ rhs: TransactionRow) -> [String] {
    columns.filter { !$0.isEqual(lhs, rhs) }.map(\.name)
  }

  private static let names = columns.map(\.name).selectList

  /// A row with the order that it fulfilled.
  typealias Ordered = (row: TransactionRow, orderID: UUID?)

  static let upsert = InsertStatement<Ordered>(
    into: "store_transaction", key: key.map { $0.within(\.row) },
    columns: columns.map { $0.within(\.row) } + [Column("order_id", \.orderID)])

  // MARK: Reading

  /// Reads the rows in the order of recording, column by column (see `RowCursor`): there can be
  /// many, and they are locked.
  static func query(_ lines: [OriginalTransactionKey]) -> Query<
    [(row: TransactionRow, fulfilment: Fulfilment)]
  > {
    Query(
      """
      SELECT environment, original_transaction_id, transaction_id, product_id,
        \(unescaped: names), order_id, delivered_at
      FROM tenure.store_transaction
      WHERE \(lines.condition)
      ORDER BY number
      """
    ) { rows in
      try (0..<rows.count).map { row in
        var cursor = RowCursor(rows: rows, row: row)
        let line = try OriginalTransactionKey(
          cursor.next(Environment.self), cursor.next(OriginalTransactionID.self))
        return try (
          TransactionRow(
            transaction: transaction(from: &cursor, line: line),
            tokenHolder: cursor.next(AccountKey?.self),
            charge: TransactionKey(
              line.environment, cursor.next(OriginalTransactionID.self),
              cursor.next(TransactionID.self), cursor.next(ProductID.self)),
            revokedAt: cursor.next(Timestamp?.self),
            recorded: decision(from: &cursor, in: line.environment)),
          Fulfilment(orderID: cursor.next(UUID?.self), deliveredAt: cursor.next(Timestamp?.self))
        )
      }
    }
  }

  private static func transaction(
    from cursor: inout RowCursor, line: OriginalTransactionKey
  ) throws -> StoreTransaction {
    let key = try TransactionKey(
      line: line, transactionID: cursor.next(TransactionID.self),
      productID: cursor.next(ProductID.self))
    let recorded = try RecordingOrder(
      at: cursor.next(Timestamp.self), number: cursor.next(Int.self))
    var transaction = try StoreTransaction(
      TransactionRecord(
        key: key, asOf: recorded.at, kind: cursor.next(ChargeKind.self),
        purchaseDate: cursor.next(Timestamp.self),
        webOrderLineItemID: cursor.next(WebOrderLineItemID?.self),
        productType: cursor.next(ProductType?.self),
        quantity: cursor.next(Int.self), ownershipType: cursor.next(OwnershipType.self),
        periodType: cursor.next(PeriodType.self), offerType: cursor.next(OfferType?.self),
        offerID: cursor.next(String?.self), storefront: cursor.next(String?.self),
        priceMilliunits: cursor.next(Int64?.self), currency: cursor.next(String?.self),
        isCommitment: cursor.next(Bool.self)),
      recorded: recorded)
    transaction.chargedAt = try cursor.next(Timestamp.self)
    transaction.upgradedAsOf = try cursor.next(Timestamp?.self)
    transaction.expiresDate = try dated(
      cursor.next(Timestamp?.self), asOf: cursor.next(Timestamp?.self))
    transaction.appAccountToken = try dated(
      cursor.next(UUID?.self), asOf: cursor.next(Timestamp?.self))
    transaction.revocation.signed = try dated(
      revocation(
        at: cursor.next(Timestamp?.self), reason: cursor.next(String?.self),
        type: cursor.next(String?.self), percentage: cursor.next(Int64?.self)),
      asOf: cursor.next(Timestamp?.self))
    transaction.revocation.unsigned = try dated(
      revocation(at: cursor.next(Timestamp?.self), reason: cursor.next(String?.self)),
      asOf: cursor.next(Timestamp?.self))
    transaction.revocation.known = try dated(
      cursor.next(Timestamp?.self), asOf: cursor.next(Timestamp?.self))
    transaction.revocation.notRevokedAsOf = try cursor.next(Timestamp?.self)
    transaction.revocation.notMentionedAsOf = try cursor.next(Timestamp?.self)
    return transaction
  }

  private static func decision(
    from cursor: inout RowCursor, in environment: Environment
  ) throws -> OriginalTransaction.RecordedDecision? {
    let owner = try cursor.next(AccountKey?.self)
    let rule = try cursor.next(Decision.Rule?.self)
    let reason = try cursor.next(RenewalEvidence.Reason?.self)
    let renewing = try cursor.next(AccountKey?.self)
    let previousLine = try cursor.next(OriginalTransactionID?.self)
    let previousID = try cursor.next(TransactionID?.self)
    let previousProduct = try cursor.next(ProductID?.self)
    let statusAsOf = try cursor.next(Timestamp?.self)
    let switchedOffAt = try cursor.next(Timestamp?.self)
    let isProvisional = try cursor.next(Bool?.self)
    let decidedAt = try cursor.next(Timestamp?.self)
    let correctedAt = try cursor.next(Timestamp?.self)
    let losers = try cursor.next([AccountKey]?.self)
    let lostAt = try cursor.next([Timestamp]?.self)
    guard let rule, let reason, let isProvisional, let decidedAt else { return nil }
    var renewal = RenewalEvidence(
      account: renewing, reason: reason, statusAsOf: statusAsOf, switchedOffAt: switchedOffAt)
    if let previousLine, let previousID, let previousProduct {
      renewal.previous = TransactionKey(
        line: OriginalTransactionKey(environment, previousLine), transactionID: previousID,
        productID: previousProduct)
    }
    var recorded = OriginalTransaction.RecordedDecision(
      decision: Decision(owner: owner, rule: rule, renewal: renewal, isProvisional: isProvisional),
      decidedAt: decidedAt, correctedAt: correctedAt)
    recorded.losses = zip(losers ?? [], lostAt ?? []).map {
      OriginalTransaction.RecordedDecision.Loss(account: $0, at: $1)
    }
    return recorded
  }

  private static func revocation(
    at moment: Timestamp?, reason: String?, type: String? = nil, percentage: Int64? = nil
  ) -> Revocation? {
    moment.map { Revocation(at: $0, reason: reason, type: type, percentage: percentage) }
  }

  private static func dated<Value>(_ value: Value?, asOf: Timestamp?) -> Dated<Value>? {
    guard let value, let asOf else { return nil }
    return Dated(value, asOf: asOf)
  }
}

/// The order and the delivery of a charge, which are facts and not projections.
struct Fulfilment: Hashable, Sendable {
  var orderID: UUID?
  var deliveredAt: Timestamp?
}
