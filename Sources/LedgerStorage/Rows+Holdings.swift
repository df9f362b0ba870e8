import Foundation
import Postgres
import Subscriptions

extension Rows {
  /// Reads rows of `holding`, the columns in the order of ``HoldingReader``'s statement.
  func decodeHoldings() throws -> [(accountID: String, holding: Holding)] {
    try decode(
      String.self, Environment.self, OriginalTransactionID.self, TransactionID.self,
      ProductID.self, OriginalTransactionID?.self, ProductType?.self, PeriodType.self,
      Timestamp.self, Timestamp?.self,
      Timestamp?.self, Timestamp?.self, Bool?.self, String?.self, Timestamp?.self
    ).map { row in
      let (
        accountID, environment, original, transaction, product, familyID, productType, periodType,
        startsAt, endsAt, revokedAt, supersededAt, autoRenews, phase, graceEndsAt
      ) = row
      var renewal: Holding.Renewal?
      if let autoRenews, let phase {
        renewal = Holding.Renewal(
          autoRenews: autoRenews,
          phase: try RenewalStatus.Phase(name: phase, graceEndsAt: graceEndsAt))
      }
      return (
        accountID,
        Holding(
          charge: TransactionKey(
            line: LineID(environment, original), transactionID: transaction, productID: product),
          familyID: familyID, productID: product, productType: productType,
          periodType: periodType, startsAt: startsAt, endsAt: endsAt, revokedAt: revokedAt,
          supersededAt: supersededAt, renewal: renewal)
      )
    }
  }

  func decodeGrants() throws -> [(accountID: String, grant: Grant)] {
    try decode(
      String.self, UUID.self, String.self, Entitlement.Source.self, Timestamp.self,
      Timestamp?.self
    ).map { accountID, id, entitlement, source, startsAt, endsAt in
      (
        accountID,
        Grant(
          id: id, entitlement: entitlement, startsAt: startsAt, endsAt: endsAt, source: source)
      )
    }
  }
}
