import Foundation
import Postgres
import Subscriptions

/// What the app made of a charge that it owns: no projection of the ledger.
struct Fulfilment: Hashable, Sendable {
  var orderID: UUID?
  var deliveredAt: Timestamp?
}

extension TransactionRow {
  /// Reads what the statements of ``select(_:)`` returned.
  ///
  /// - Throws: `PostgresError` for what no version of ours wrote.
  static func rows(facts: Rows, decisions: Rows, line: LineID) throws
    -> [(row: TransactionRow, fulfilment: Fulfilment)]
  {
    let transactions = try Self.transactions(facts, line: line)
    let decisions = try Self.decisions(decisions, line: line)
    return zip(transactions, decisions).map { facts, decision in
      (
        TransactionRow(
          transaction: facts.transaction, tokenHolder: facts.tokenHolder,
          charge: decision.charge, recorded: decision.recorded),
        decision.fulfilment
      )
    }
  }

  private static func transactions(_ rows: Rows, line: LineID) throws
    -> [(transaction: StoreTransaction, tokenHolder: AccountKey?)]
  {
    try rows.decode(
      TransactionID.self, ProductID.self, Int.self, Timestamp.self, ChargeKind.self,
      Timestamp.self, Timestamp?.self, Timestamp.self, Timestamp?.self, Timestamp?.self,
      Timestamp?.self, String?.self, Timestamp?.self, Timestamp?.self, UUID?.self,
      Timestamp?.self, AccountKey?.self, WebOrderLineItemID?.self, ProductType?.self,
      String?.self, Int.self, OwnershipType.self, PeriodType.self, String?.self, Int64?.self,
      String?.self, Bool.self
    ).map { row in
      let (
        transactionID, productID, number, recordedAt, kind, purchaseDate, originalPurchaseDate,
        chargedAt, expiresAt, expiresAsOf, revokedAt, revocationReason, revocationAsOf,
        upgradedAsOf, token, tokenAsOf, tokenHolder, lineItemID, productType, group, quantity,
        ownershipType, periodType, offerID, price, currency, isCommitment
      ) = row
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
      transaction.revocation = revocationAsOf.map { asOf in
        Dated(revokedAt.map { Revocation(at: $0, reason: revocationReason) }, asOf: asOf)
      }
      return (transaction, tokenHolder)
    }
  }

  private static func decisions(_ rows: Rows, line: LineID) throws
    -> [(charge: Charge.ID, recorded: Line.RecordedDecision?, fulfilment: Fulfilment)]
  {
    try rows.decode(
      OriginalTransactionID.self, TransactionID.self, ProductID.self, AccountKey?.self,
      Decision.Rule?.self, RenewalFinding.Ground?.self, AccountKey?.self,
      OriginalTransactionID?.self, TransactionID?.self, ProductID?.self, Timestamp?.self,
      Timestamp?.self, Bool?.self, Timestamp?.self, Timestamp?.self, UUID?.self, Timestamp?.self
    ).map { row in
      let (
        chargeLine, chargeID, chargeProduct, owner, rule, ground, renewing, previousLine,
        previousID, previousProduct, statusAsOf, switchedOffAt, isProvisional, decidedAt,
        correctedAt, orderID, deliveredAt
      ) = row
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
