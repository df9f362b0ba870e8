package import Foundation
import JSONText
import Postgres
package import Subscriptions

package struct Account: Hashable, Sendable {
  package let id: String
  package let key: AccountKey
  /// The token to pass to StoreKit; permanent.
  package let appAccountToken: UUID
  package let createdAt: Timestamp
  package var mergedInto: AccountKey?
  /// What the app calls the customer.
  package var label: String?
  package var email: String?

  /// The ID that replaces the app's own when the account is erased.
  static func pseudonym(of key: AccountKey) -> String {
    "erased-\(key.rawValue.text)"
  }

  package var isErased: Bool { AccountID(id) == AccountID(Self.pseudonym(of: key)) }
}

/// Accounts: created, merged, erased, and their history.
package struct AccountStore: LedgerStore {
  package let core: LedgerCore

  package func account(_ id: String) async throws -> Account? {
    try await database.query(Self.select(account: id)).decode(into: Account.init).first
  }

  package func account(issued token: UUID) async throws -> Account? {
    let keys = try await database.query(
      "SELECT account_key FROM tenure.account_by_token WHERE app_account_token = \(token)"
    ).decode(AccountKey.self)
    guard let id = try await ownership.accountIDs(of: Set(keys)).values.first else { return nil }
    return try await account(id)
  }

  package func findOrCreateAccount(_ id: String, at now: Timestamp) async throws -> Account {
    if let account = try await account(id) { return account }
    return try await database.withTransaction { transaction in
      try await createAccount(id, at: now, in: transaction)
    }
  }

  /// Replaces what the app calls the customer.
  ///
  /// - Parameter label: Nil leaves it as it is; `.some(nil)` deletes it.
  /// - Throws: ``LedgerError/erasedAccount(_:)``, ``LedgerError/unknownAccount(_:)``.
  package func setNames(label: String?? = nil, email: String?? = nil, of account: Account)
    async throws -> Account
  {
    guard !account.isErased else { throw LedgerError.erasedAccount(account.id) }
    let named = (label ?? account.label, email ?? account.email)
    guard named != (account.label, account.email) else { return account }
    let columns: [SQL] = [label.map { "label = \($0)" }, email.map { "email = \($0)" }]
      .compactMap(\.self)
    // An erasure may have taken the ID away.
    let updated = try await database.query(
      """
      UPDATE tenure.account SET \(columns.joined())
      WHERE account_id = \(account.id) AND account_key = \(account.key)
      RETURNING \(Self.columns)
      """)
    guard let account = try updated.decode(into: Account.init).first else {
      throw LedgerError.unknownAccount(account.id)
    }
    return account
  }

  /// The latest accounts that are searched for a text within a name, which no index finds.
  private static let mostScanned = 100_000
  /// Fewer characters are in most names.
  private static let shortestPart = 3

  /// Reads the accounts whose ID, label or email begins with a text, and those of the latest ones
  /// that contain its words, whatever the case.
  package func accounts(named text: String, limit: Int) async throws -> [Account] {
    func begins(_ column: SQL) -> SQL {
      // A range instead of LIKE: it needs no escapes, and prepared statements use the index.
      """
      (SELECT \(Self.columns) FROM tenure.account
      WHERE lower(\(column)) ~>=~ lower(\(text))
        AND lower(\(column)) ~<~ (lower(\(text)) || chr(1114111))
      ORDER BY lower(\(column)) USING ~<~ LIMIT \(limit))
      """
    }
    let beginning = try await database.query(
      """
      \(begins("account_id")) UNION \(begins("label")) UNION \(begins("email"))
      ORDER BY account_id LIMIT \(limit)
      """
    ).decode(into: Account.init)
    guard beginning.count < limit, text.count >= Self.shortestPart else { return beginning }
    let words = text.split(separator: " ").map { word -> SQL in
      "strpos(lower(concat_ws(chr(10), account_id, label, email)), lower(\(String(word)))) > 0"
    }
    guard !words.isEmpty else { return beginning }
    let containing = try await database.query(
      """
      SELECT \(Self.columns) FROM tenure.account
      WHERE created_at >= coalesce((
          SELECT created_at FROM tenure.account
          ORDER BY created_at DESC OFFSET \(Self.mostScanned - 1) LIMIT 1), '-infinity')
        AND \(words.joined(separator: " AND "))
      ORDER BY account_id LIMIT \(limit)
      """
    ).decode(into: Account.init)
    let found = Set(beginning.map(\.key))
    return Array((beginning + containing.filter { !found.contains($0.key) }).prefix(limit))
  }

  /// An order of accounts that an index gives.
  package enum Order: String, CaseIterable, Sendable {
    case newest
    case oldest
    case id
  }

  package func accounts(
    by order: Order, since: Timestamp? = nil, after last: (createdAt: Timestamp, id: String)? = nil,
    limit: Int
  ) async throws -> [Account] {
    let begin = since.map { "created_at >= \($0)" as SQL } ?? "true"
    let (columns, rest): (SQL, SQL?) =
      switch order {
      case .newest:
        (
          "created_at DESC, account_id DESC",
          last.map { "(created_at, account_id) < (\($0.createdAt), \($0.id))" }
        )
      case .oldest:
        (
          "created_at, account_id",
          last.map { "(created_at, account_id) > (\($0.createdAt), \($0.id))" }
        )
      case .id: ("account_id", last.map { "account_id > \($0.id)" })
      }
    return try await database.query(
      """
      SELECT \(Self.columns) FROM tenure.account WHERE \(begin) AND \(rest ?? "true")
      ORDER BY \(columns) LIMIT \(limit)
      """
    ).decode(into: Account.init)
  }

  /// A sum, whether a part of it is the catalogue's price, and the products bought.
  package typealias SpentSum = (
    currency: String, milliunits: Int64, isEstimated: Bool, products: [String]
  )

  /// The sums that accounts have paid and not got back, by currency: Apple's prices, or else the
  /// catalogue's, of production.
  package func spent(by accounts: [Account], at now: Timestamp) async throws
    -> [AccountKey: [SpentSum]]
  {
    let keys = accounts.map(\.key)
    let known = try await database.query(
      """
      SELECT DISTINCT original_transaction_id FROM tenure.account_original_transaction
      WHERE account_key = ANY (\(keys)) AND environment = 'production'
      """
    ).decode(OriginalTransactionID.self)
    // Movements are stored with the smallest of the IDs that Apple links.
    let lines = try await ownership.linked(to: known, in: [.production])
    guard !lines.isEmpty else { return [:] }
    let sums = try await database.query(
      """
      SELECT account_key, currency, sum(amount_milliunits)::bigint,
        bool_or(price_source = 'catalogue'), array_agg(DISTINCT product_id)
      FROM tenure.movement
      WHERE environment = 'production' AND original_transaction_id = ANY (\(lines))
        AND kind IN ('charged', 'refunded') AND at <= \(now) AND known_until = 'infinity'
        AND account_key = ANY (\(keys)) AND ownership_type = 'purchased' AND currency IS NOT NULL
      GROUP BY account_key, currency ORDER BY currency
      """
    ).decode(AccountKey.self, String.self, Int64.self, Bool.self, [String].self)
    return Dictionary(grouping: sums) { $0.0 }.mapValues { $0.map { ($0.1, $0.2, $0.3, $0.4) } }
  }

  /// Counts accounts by the dates of their creation, without erased ones, up to a limit.
  package func accountCount(since: Timestamp? = nil, limit: Int) async throws -> Int {
    let begin = since.map { "created_at >= \($0)" as SQL } ?? "true"
    return try await database.query(
      """
      SELECT count(*) FROM (
        SELECT 1 FROM tenure.account
        WHERE \(begin) AND account_id <> 'erased-' || account_key LIMIT \(limit)
      ) AS first
      """
    ).decodeOnly(Int.self)
  }

  /// The account that new submissions and orders go to: follows merges, any number of them.
  package func successor(of account: Account) async throws -> Account {
    var account = account
    // Merges never form a cycle.
    while let into = account.mergedInto {
      guard let name = try await ownership.accountIDs(of: [into])[into],
        let successor = try await self.account(name)
      else { throw LedgerError.unknownAccount(account.id) }
      account = successor
    }
    return account
  }

  /// Retries against concurrent erasures of an account of the same ID.
  private static let creationAttempts = 5

  /// Creates an account unless a concurrent transaction has done so.
  ///
  /// - Throws: ``LedgerError/erasedAccount(_:)`` if concurrent erasures take each one away.
  func createAccount(_ id: String, at now: Timestamp, in transaction: Transaction) async throws
    -> Account
  {
    for _ in 0..<Self.creationAttempts {
      if let account = try await insertAccount(id, at: now, in: transaction) { return account }
      let known = try await transaction.query(Self.select(account: id))
      if let account = try known.decode(into: Account.init).first { return account }
    }
    throw LedgerError.erasedAccount(id)
  }

  private func insertAccount(_ id: String, at now: Timestamp, in transaction: Transaction)
    async throws -> Account?
  {
    let (key, token) = (AccountKey(rawValue: UUID()), UUID())
    let inserted = try await transaction.query(
      """
      INSERT INTO tenure.account (account_id, account_key, app_account_token, created_at)
      VALUES (\(id), \(key), \(token), \(now))
      ON CONFLICT (account_id) DO NOTHING
      RETURNING account_id
      """)
    guard inserted.count == 1 else { return nil }
    _ = try await transaction.batch([
      """
      INSERT INTO tenure.account_by_key (account_key, account_id, app_account_token)
      VALUES (\(key), \(id), \(token))
      """,
      """
      INSERT INTO tenure.account_by_token (app_account_token, account_key)
      VALUES (\(token), \(key))
      """,
      AccountChain.seal(key).statement,
    ])
    return Account(id: id, key: key, appAccountToken: token, createdAt: now)
  }

  private static let columns: SQL =
    "account_id, account_key, app_account_token, created_at, merged_into_key, label, email"

  static func select(account id: String) -> SQL {
    "SELECT \(columns) FROM tenure.account WHERE account_id = \(id)"
  }

  /// What waits for an administrator: unclaimed charges of production, failed jobs, deliveries that
  /// failed among the oldest, and rejected receipts.
  package typealias WaitingCounts = (
    unclaimed: LedgerReading.Backlog, jobs: Int, deliveries: Int, rejected: Int
  )

  /// Counts what waits for an administrator, each up to `limit`.
  package func waitingCounts(upTo limit: Int64, at now: Timestamp) async throws -> WaitingCounts {
    let counts = try await database.batch([
      OwnershipStore.countOfWaiting(in: .production, limit: limit, at: now),
      """
      SELECT count(*) FROM (
        SELECT 1 FROM tenure.job WHERE discarded_at IS NOT NULL LIMIT \(limit)) AS first
      """,
      """
      SELECT count(*) FILTER (WHERE attempts > 0) FROM (
        SELECT attempts FROM tenure.webhook_delivery ORDER BY event_id LIMIT \(limit)) AS oldest
      """,
      """
      SELECT count(*) FROM (
        SELECT 1 FROM tenure.submission WHERE status = 'rejected' LIMIT \(limit)) AS first
      """,
    ])
    return (
      .init(try counts[0].decodeOnly(Int.self, Timestamp?.self)),
      try counts[1].decodeOnly(Int.self), try counts[2].decodeOnly(Int.self),
      try counts[3].decodeOnly(Int.self)
    )
  }

  // MARK: Exporting

  package func erasedAt(_ account: AccountKey) async throws -> Timestamp? {
    try await ownership.knownAccounts([account])[account]?.erasedAt
  }

  package func orders(of account: Account, after last: UUID?, limit: Int) async throws
    -> [StoredOrder]
  {
    let rest = last.map { "order_id > \($0)" as SQL } ?? "true"
    return try await orders(of: account, "\(rest) ORDER BY order_id LIMIT \(limit)")
  }

  package func submissionIDs(of account: AccountKey, after last: UUID?, limit: Int) async throws
    -> [UUID]
  {
    let condition = last.map { "AND submission_id > \($0)" as SQL } ?? ""
    return try await database.query(
      """
      SELECT submission_id FROM tenure.submission
      WHERE account_key = \(account) \(condition)
      ORDER BY submission_id LIMIT \(limit)
      """
    ).decode(UUID.self)
  }

  /// Reads kept events of an account by date, after `last`, as JSON objects of the HTTP API.
  package func events(of account: AccountKey, after last: EventPosition?, limit: Int) async throws
    -> [(position: EventPosition, text: String)]
  {
    let rest =
      last.map { "(occurred_at, event_id) > (\($0.occurredAt), \($0.id))" as SQL } ?? "true"
    let name = try await ownership.accountIDs(of: [account])[account]
    return try await database.query(
      """
      SELECT e.occurred_at, e.event_id, \(SQL.eventInFeed)
      FROM tenure.event AS e
      WHERE e.account_key = \(account) AND \(rest)
      ORDER BY e.occurred_at, e.event_id LIMIT \(limit)
      """
    ).decode(Timestamp.self, Int64.self, String.self, AccountKey?.self, CompressedText.self).map {
      occurredAt, id, beginning, _, data in
      (position: (occurredAt, id), text: FeedPage.event(beginning, of: name, data.text))
    }
  }
}
