import Postgres
import Subscriptions

/// The rows that were read for many accounts at once, found by account.
///
/// Nothing but the account ids is decoded here: whoever asked decodes its own rows, so that the
/// work is spread over the callers' threads, and a row that can't be read is a failure for its own
/// account alone.
struct HoldingRows: Sendable {
  private let rows: RowsByAccount
  /// How much of the primary's log a standby had applied before it was asked; nil: it is none.
  var position: LogPosition?

  /// - Throws: `PostgresError` for columns of other types than the statement of ``HoldingReader``
  ///   has.
  init(_ rows: Rows) throws {
    try rows.checkHoldingsAndGrants()
    self.rows = try RowsByAccount(rows)
  }

  /// What an account holds, in no particular order; nothing for an account that has no rows.
  func holdings(of accountID: String) throws -> AccountHoldings {
    var found = AccountHoldings()
    let id = AccountID(accountID)
    try rows.forEach(of: id) { rows, row in
      if let grant = try rows.decodeGrant(row) {
        found.grants.append(grant)
      } else {
        found.holdings.append(try rows.decodeHolding(row).holding)
      }
    }
    return found
  }
}

/// Rows whose first column is the account, each with the number of the one before it that is the
/// same account's.
private struct RowsByAccount: Sendable {
  private let rows: Rows
  private var last: [AccountID: Int] = [:]
  private var previous: [Int?] = []

  init(_ rows: Rows) throws {
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

  func forEach(of account: AccountID, _ body: (Rows, Int) throws -> Void) rethrows {
    guard !previous.isEmpty else { return }
    var next = last[account]
    while let row = next {
      try body(rows, row)
      next = previous[row]
    }
  }
}
