package import Foundation
import Postgres
package import Subscriptions

/// An account of the app.
package struct Account: Hashable, Sendable {
  package let id: String
  package let key: AccountKey
  /// The token to pass to StoreKit: one for an account, for ever.
  package let appAccountToken: UUID
  package let createdAt: Timestamp
  /// The account into which an administrator merged it; nil: it stands for itself.
  package var mergedInto: AccountKey?

  /// The name that takes the place of the app's own when the person is erased.
  static func pseudonym(of key: AccountKey) -> String {
    "erased-\(key.rawValue.uuidString.lowercased())"
  }

  /// Whether the person was erased: the id is a pseudonym.
  package var isErased: Bool { AccountID(id) == AccountID(Self.pseudonym(of: key)) }
}

extension Ledger {
  /// Finds an account by the app's name for it; nil if it was never seen.
  package func account(_ id: String) async throws -> Account? {
    try await account(from: database.query(Self.select(account: id)), id: id)
  }

  /// Finds an account, and creates it if it is new.
  package func findOrCreateAccount(_ id: String, at now: Timestamp) async throws -> Account {
    if let account = try await account(id) { return account }
    return try await database.withTransaction { transaction in
      try await createAccount(id, at: now, in: transaction)
    }
  }

  /// The account that something new is to be about: the one that an account was merged into, as
  /// often as it was; itself if it never was.
  package func successor(of account: Account) async throws -> Account {
    var account = account
    // Nothing is ever merged in a circle.
    while let into = account.mergedInto {
      guard let name = try await accountIDs(of: [into])[into],
        let successor = try await self.account(name)
      else { throw LedgerError.unknownAccount(account.id) }
      account = successor
    }
    return account
  }

  /// Nobody erases a person whom somebody else has just created, again and again.
  private static let creationAttempts = 5

  /// Creates an account unless another process has just done so.
  ///
  /// - Throws: What the database says; ``LedgerError/erasedAccount(_:)`` where one of this name was
  ///   erased each time in the moment after it had been found to be there.
  func createAccount(_ id: String, at now: Timestamp, in transaction: Transaction) async throws
    -> Account
  {
    for _ in 0..<Self.creationAttempts {
      try await insertAccount(id, at: now, in: transaction)
      if let account = try await account(
        from: transaction.query(Self.select(account: id)), id: id)
      {
        return account
      }
    }
    throw LedgerError.erasedAccount(id)
  }

  private func insertAccount(_ id: String, at now: Timestamp, in transaction: Transaction)
    async throws
  {
    let (key, token) = (AccountKey(rawValue: UUID()), UUID())
    let inserted = try await transaction.query(
      """
      INSERT INTO tenure.account (account_id, account_key, app_account_token, created_at)
      VALUES (\(id), \(key), \(token), \(now))
      ON CONFLICT (account_id) DO NOTHING
      RETURNING account_id
      """)
    guard inserted.count == 1 else { return }
    _ = try await transaction.batch([
      """
      INSERT INTO tenure.account_by_key (account_key, account_id, app_account_token)
      VALUES (\(key), \(id), \(token))
      """,
      """
      INSERT INTO tenure.account_by_token (app_account_token, account_key)
      VALUES (\(token), \(key))
      """,
    ])
  }

  /// The lines on which an account ever owned or claimed something.
  package func lines(of account: AccountKey) async throws -> [LineID] {
    try await database.query(
      """
      SELECT environment, original_transaction_id FROM tenure.account_line
      WHERE account_key = \(account)
      ORDER BY environment, original_transaction_id
      """
    ).decode(Environment.self, OriginalTransactionID.self).map { LineID($0, $1) }
  }

  static func select(account id: String) -> SQL {
    """
    SELECT account_key, app_account_token, created_at, merged_into_key FROM tenure.account
    WHERE account_id = \(id)
    """
  }

  func account(from rows: Rows, id: String) throws -> Account? {
    try rows.decodeFirst(AccountKey.self, UUID.self, Timestamp.self, AccountKey?.self).map {
      Account(id: id, key: $0, appAccountToken: $1, createdAt: $2, mergedInto: $3)
    }
  }
}

/// What an identifier names: each question is one look-up.
extension Ledger {
  /// The lines on which a line item is known, in whichever environment.
  package func lines(of lineItem: WebOrderLineItemID) async throws -> [LineID] {
    try await database.query(
      """
      SELECT environment, original_transaction_id FROM tenure.web_order_line_item
      WHERE web_order_line_item_id = \(lineItem)
      ORDER BY environment, original_transaction_id
      """
    ).decode(Environment.self, OriginalTransactionID.self).map { LineID($0, $1) }
  }

  /// What an administrator gave, by its id; nil: nothing of this id, or it was given provisionally.
  package func storedGrant(_ id: UUID) async throws -> StoredGrant? {
    let holder = try await database.query(
      "SELECT account_key FROM tenure.account_grant_account WHERE grant_id = \(id)"
    ).decodeFirst(AccountKey.self)
    guard let holder, let name = try await accountIDs(of: [holder])[holder] else { return nil }
    return try await storedGrants(of: name).first { $0.grant.id == id }
  }

  /// How many jobs and deliveries were given up, counted as far as `limit` each.
  package func parkedCount(upTo limit: Int) async throws -> Int {
    try await database.query(
      """
      SELECT
        (SELECT count(*) FROM (
          SELECT FROM tenure.job WHERE discarded_at IS NOT NULL LIMIT \(limit)) AS j)
        + (SELECT count(*) FROM (
          SELECT FROM tenure.webhook_delivery WHERE parked_at IS NOT NULL LIMIT \(limit)) AS d)
      """
    ).decodeOnly(Int.self)
  }
}
