import Foundation
import Postgres
import Subscriptions

extension Rows {
  /// Checks that these are rows of ``HoldingReader/select(_:)``.
  func checkHoldings() throws {
    try check(
      String.self, Environment.self, OriginalTransactionID.self, TransactionID.self,
      ProductID.self, OriginalTransactionID?.self, ProductType?.self, PeriodType.self,
      Timestamp.self, Timestamp?.self, Timestamp?.self, Timestamp?.self, Bool?.self, String?.self,
      Timestamp?.self)
  }

  /// Reads a row of `holding`, whose columns were checked.
  ///
  /// Column by column (see `RowCursor`), for it runs with every read.
  func decodeHolding(_ row: Int) throws -> (accountID: String, holding: Holding) {
    var cursor = RowCursor(rows: self, row: row)
    let accountID = try cursor.next(String.self)
    let line = LineID(
      try cursor.next(Environment.self), try cursor.next(OriginalTransactionID.self))
    let transactionID = try cursor.next(TransactionID.self)
    let productID = try cursor.next(ProductID.self)
    let familyID = try cursor.next(OriginalTransactionID?.self)
    let productType = try cursor.next(ProductType?.self)
    let periodType = try cursor.next(PeriodType.self)
    let startsAt = try cursor.next(Timestamp.self)
    let endsAt = try cursor.next(Timestamp?.self)
    let revokedAt = try cursor.next(Timestamp?.self)
    let supersededAt = try cursor.next(Timestamp?.self)
    let autoRenews = try cursor.next(Bool?.self)
    let phase = try cursor.next(String?.self)
    let graceEndsAt = try cursor.next(Timestamp?.self)
    var renewal: Holding.Renewal?
    if let autoRenews, let phase {
      renewal = Holding.Renewal(
        autoRenews: autoRenews,
        phase: try RenewalStatus.Phase(name: phase, graceEndsAt: graceEndsAt))
    }
    return (
      accountID,
      Holding(
        charge: TransactionKey(line: line, transactionID: transactionID, productID: productID),
        familyID: familyID, productID: productID, productType: productType,
        periodType: periodType, startsAt: startsAt, endsAt: endsAt, revokedAt: revokedAt,
        supersededAt: supersededAt, renewal: renewal)
    )
  }

  /// Reads all rows of `holding`.
  func decodeHoldings() throws -> [(accountID: String, holding: Holding)] {
    try checkHoldings()
    return try (0..<count).map(decodeHolding)
  }

  /// Checks that these are rows of ``HoldingReader/read(_:)``'s second statement.
  func checkGrants() throws {
    try check(
      String.self, UUID.self, String.self, Timestamp.self, Timestamp?.self,
      Entitlement.Source.self, Environment?.self, OriginalTransactionID?.self, Timestamp?.self)
  }

  /// Reads a row of `account_grant`, whose columns were checked.
  func decodeGrant(_ row: Int) throws -> (accountID: String, grant: Grant) {
    var cursor = RowCursor(rows: self, row: row)
    let accountID = try cursor.next(String.self)
    var grant = Grant(
      id: try cursor.next(UUID.self), entitlement: try cursor.next(String.self),
      startsAt: try cursor.next(Timestamp.self), endsAt: try cursor.next(Timestamp?.self),
      source: try cursor.next(Entitlement.Source.self))
    let environment = try cursor.next(Environment?.self)
    let original = try cursor.next(OriginalTransactionID?.self)
    if let environment, let original { grant.line = LineID(environment, original) }
    grant.revokedAt = try cursor.next(Timestamp?.self)
    return (accountID, grant)
  }

  /// Reads all rows of `account_grant`.
  func decodeGrants() throws -> [(accountID: String, grant: Grant)] {
    try checkGrants()
    return try (0..<count).map(decodeGrant)
  }
}
