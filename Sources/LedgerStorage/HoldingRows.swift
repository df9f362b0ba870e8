import Postgres
import Subscriptions

/// The rows that were read for many accounts at once, found by account.
///
/// Nothing but the account ids is decoded here: whoever asked decodes its own rows, so that the
/// work is spread over the callers' threads, and a row that can't be read is a failure for its own
/// account alone.
struct HoldingRows: Sendable {
  private let holdings: RowsByAccount
  private let grants: RowsByAccount
  /// How much of the primary's log a standby had applied before it was asked; nil: it is none.
  var position: LogPosition?

  /// - Throws: `PostgresError` for columns of other types than the statements of ``HoldingReader``
  ///   have.
  init(holdings: Rows, grants: Rows) throws {
    try holdings.checkHoldings()
    try grants.checkGrants()
    self.holdings = try RowsByAccount(holdings)
    self.grants = try RowsByAccount(grants)
  }

  /// What an account holds, in no particular order; nothing for an account that has no rows.
  func holdings(of accountID: String) throws -> AccountHoldings {
    var found = AccountHoldings()
    let id = AccountID(accountID)
    try holdings.forEach(of: id) { found.holdings.append(try $0.decodeHolding($1).holding) }
    try grants.forEach(of: id) { found.grants.append(try $0.decodeGrant($1).grant) }
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

/// An account id that is compared as PostgreSQL compares it: byte by byte.
///
/// Swift's own comparison takes two spellings of one character (é, and e with a combining accent)
/// for the same, and would hand one account what another holds.
struct AccountID: Hashable, Comparable, Sendable {
  let text: String

  init(_ text: String) { self.text = text }

  /// In the order in which all programs lock accounts.
  static func < (lhs: AccountID, rhs: AccountID) -> Bool {
    lhs.text.utf8.lexicographicallyPrecedes(rhs.text.utf8)
  }

  static func == (lhs: AccountID, rhs: AccountID) -> Bool {
    lhs.text.utf8.elementsEqual(rhs.text.utf8)
  }

  func hash(into hasher: inout Hasher) {
    // Equal bytes are equal text.
    hasher.combine(text)
  }
}
