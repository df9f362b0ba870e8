import Foundation
import Postgres
import Subscriptions

/// Rows read for many accounts at once, by account.
///
/// Only the account IDs are decoded here. Each caller decodes its own rows, which spreads the work
/// over the callers' threads and limits a decoding error to its account.
struct HoldingRows: Sendable {
  private let rows: Rows
  /// The last row of each account, and for each row the account's row before it.
  private var last: [AccountID: Int] = [:]
  private var previous: [Int?] = []
  /// The log position that a standby had applied before the read; nil from the primary.
  var position: LogPosition?

  /// - Throws: `PostgresError` if the columns aren't those of ``HoldingBatcher``'s statement.
  init(_ rows: Rows) throws {
    try rows.checkHoldingsAndGrants()
    self.rows = rows
    let count = rows.count
    guard count > 0 else { return }
    last.reserveCapacity(count)
    previous.reserveCapacity(count)
    for row in 0..<count {
      var cursor = RowCursor(rows: rows, row: row)
      previous.append(last.updateValue(row, forKey: AccountID(try cursor.next(String.self))))
    }
  }

  /// An account's holdings, in no particular order.
  func holdings(of accountID: String) throws -> AccountHoldings {
    var found = AccountHoldings()
    var next = last.isEmpty ? nil : last[AccountID(accountID)]
    while let row = next {
      if let grant = try rows.decodeGrant(row) {
        found.grants.append(grant)
      } else {
        found.holdings.append(try rows.decodeHolding(row).holding)
      }
      next = previous[row]
    }
    return found
  }
}

extension Rows {
  /// Decodes a row of `holding` whose columns were checked.
  ///
  /// Column by column (see `RowCursor`) because it runs on every read.
  func decodeHolding(_ row: Int) throws -> (accountID: String, holding: Holding) {
    var cursor = RowCursor(rows: self, row: row)
    let accountID = try cursor.next(String.self)
    let line = OriginalTransactionKey(
      try cursor.next(Environment.self), try cursor.next(OriginalTransactionID.self))
    let transactionID = try cursor.next(TransactionID.self)
    let productID = try cursor.next(ProductID.self)
    let linkedTo = try cursor.next(OriginalTransactionID?.self)
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
        linkedTo: linkedTo, productID: productID, productType: productType,
        periodType: periodType, startsAt: startsAt, endsAt: endsAt, revokedAt: revokedAt,
        supersededAt: supersededAt, renewal: renewal)
    )
  }

  func decodeHoldings() throws -> [(accountID: String, holding: Holding)] {
    try checkHoldingsAndGrants()
    return try (0..<count).map(decodeHolding)
  }

  /// Checks the columns of ``HoldingBatcher/statement(_:withoutGrantsOf:)``.
  func checkHoldingsAndGrants() throws {
    try check(
      String.self, Environment.self, OriginalTransactionID.self, TransactionID.self,
      ProductID.self, OriginalTransactionID?.self, ProductType?.self, PeriodType.self,
      Timestamp.self, Timestamp?.self, Timestamp?.self, Timestamp?.self, Bool?.self, String?.self,
      Timestamp?.self, UUID?.self, String?.self, Entitlement.Source?.self)
  }

  /// Decodes a row of `account_grant` whose columns were checked; nil for a row of `holding`.
  func decodeGrant(_ row: Int) throws -> Grant? {
    var own = RowCursor(rows: self, row: row, column: 15)
    guard let id = try own.next(UUID?.self) else { return nil }
    let entitlement = try own.next(String.self)
    let source = try own.next(Entitlement.Source.self)
    var shared = RowCursor(rows: self, row: row, column: 1)
    let environment = try shared.next(Environment?.self)
    let original = try shared.next(OriginalTransactionID?.self)
    shared.column = 8
    var grant = Grant(
      id: id, entitlement: entitlement, startsAt: try shared.next(Timestamp.self),
      endsAt: try shared.next(Timestamp?.self), source: source)
    grant.revokedAt = try shared.next(Timestamp?.self)
    if let environment, let original { grant.line = OriginalTransactionKey(environment, original) }
    return grant
  }

  func decodeGrants() throws -> [Grant] {
    try checkHoldingsAndGrants()
    return try (0..<count).compactMap(decodeGrant)
  }
}
