import Foundation
import JSONText
import Postgres
package import Subscriptions

/// An entry of an account's chain as stored.
struct AccountEntry: Sendable {
  var account: AccountKey
  var number: Int
  var storedAt: Timestamp
  var kind: String
  var row: String
  var body: String
  var hash: [UInt8]
  /// The values of the body by column; empty if the row is gone or the body can't be read.
  let columns: [String: JSONValue]
  /// The ends of original transactions' chains that the entry names.
  let heads: [(line: OriginalTransactionKey, number: Int, hash: String)]

  private init(
    account: AccountKey, number: Int, storedAt: Timestamp, kind: String, row: String, body: String,
    hash: [UInt8]
  ) {
    (self.account, self.number, self.storedAt, self.hash) = (account, number, storedAt, hash)
    (self.kind, self.row, self.body) = (kind, row, body)
    var columns = Self.columns(of: body)
    guard case .object(let heads) = columns.removeValue(forKey: "heads") else {
      (self.columns, self.heads) = (columns, [])
      return
    }
    self.columns = columns
    self.heads = heads.compactMap { member in
      let parts = member.value.string?.split(separator: ":") ?? []
      guard let line = OriginalTransactionKey(subject: member.key.rawValue), parts.count == 2,
        let number = Int(parts[0])
      else { return nil }
      return (line, number, String(parts[1]))
    }
  }

  static func columns(of body: String) -> [String: JSONValue] {
    guard case .object(let members) = try? JSONValue(parsing: body.utf8) else { return [:] }
    return Dictionary(members.map { ($0.key.rawValue, $0.value) }) { first, _ in first }
  }

  /// The columns that the hash covers, in order.
  var fields: [String] {
    [account.rawValue.text, String(number), String(storedAt.milliseconds), kind, row, body]
  }

  static func query(of accounts: [AccountKey]) -> Query<[AccountEntry]> {
    Query(
      """
      SELECT account_key, number, stored_at, kind, row_id, body, hash FROM tenure.account_entry
      WHERE account_key = ANY(\(accounts)) ORDER BY account_key, number
      """
    ) { try $0.decode(into: AccountEntry.init(account:number:storedAt:kind:row:body:hash:)) }
  }

  /// The columns that change during a row's life; the others never do.
  static let changing: [String: Set<String>] = [
    "account": ["erased_at", "merged_into_key", "merged_at"],
    "purchase_order": [
      "status", "fulfilled_at", "is_named", "environment", "original_transaction_id",
      "transaction_id",
    ],
    "account_grant": ["revoked_at"],
    "submission": [
      "status", "environment", "decided_at", "problem", "apple_status", "outcome",
    ],
  ]
}

/// A row that accounts' entries vouch for.
private struct SealedRow: Hashable {
  var kind: String
  var id: String
}

/// The rows about some accounts, all from one snapshot.
private struct AccountTables: Sendable {
  struct Row {
    let owner, id, body: String
  }

  /// Rows by their owners.
  typealias Rows = [AccountID: [Row]]

  struct Account {
    let key: AccountKey
    let id: String
    let token: UUID
    let mergedInto: AccountKey?
    let isErased: Bool
  }

  var heads: [AccountKey: (number: Int, dates: [Timestamp?], hash: [UInt8]?)] = [:]
  var entries: [AccountKey: [AccountEntry]] = [:]
  var accounts: [AccountKey: Account] = [:]
  /// By kind; a grant's owner is the account's ID, that of other rows the account's key.
  var rows: [String: Rows] = [:]
  /// The deliveries of charges that entries name, of any owner.
  var deliveries: [String: String] = [:]
  /// The table `account`, by ID.
  var named: [AccountID: (key: AccountKey, token: UUID, mergedInto: AccountKey?)] = [:]
  var holders: [UUID: AccountKey] = [:]
  /// The look-ups of orders and grants.
  var owners: [UUID: AccountKey] = [:]
  /// The hashes of original transactions' entries.
  var hashes: [OriginalTransactionKey: [Int: String]] = [:]

  init(of keys: [AccountKey], in transaction: Transaction) async throws {
    func rows(_ view: String, _ owner: String, _ condition: SQL) -> Query<Rows> {
      Query(
        """
        SELECT \(unescaped: owner)::text, row_id, body::text FROM tenure.\(unescaped: view)
        WHERE \(condition)
        """
      ) { Dictionary(grouping: try $0.decode(into: Row.init)) { AccountID($0.owner) } }
    }
    let isOfKeys: SQL = "account_key = ANY(\(keys))"
    let hasCommon = keys.contains(AccountChain.common)
    let (found, entries, accounts, first) = try await transaction.read(
      Query(
        """
        SELECT account_key, head_number, head_hash, nullif(head_stored_at, '-infinity')
        FROM tenure.account_chain WHERE \(isOfKeys)
        """
      ) { try $0.decode(AccountKey.self, Int.self, [UInt8].self, Timestamp?.self) },
      AccountEntry.query(of: keys),
      Query(
        """
        SELECT account_key, account_id, app_account_token, merged_into_key, erased_at IS NOT NULL
        FROM tenure.account_by_key WHERE \(isOfKeys)
        """
      ) { try $0.decode(into: Account.init) },
      Query(
        rows("sealed_account", "account_key", isOfKeys),
        rows("sealed_order", "account_key", isOfKeys),
        rows("sealed_submission", "account_key", isOfKeys),
        rows(
          "sealed_action", "chain_key",
          hasCommon ? "(\(isOfKeys) OR account_key IS NULL)" : isOfKeys),
        rows("sealed_product", "account_key", hasCommon ? "true" : "false")))
    for (key, number, hash, storedAt) in found { heads[key] = (number, [storedAt], hash) }
    self.entries = Dictionary(grouping: entries, by: \.account)
    for account in accounts { self.accounts[account.key] = account }
    self.rows = [
      "account": first.0, "purchase_order": first.1, "submission": first.2,
      "administrator_action": first.3, "product": first.4,
    ]

    let names = accounts.map(\.id)
    let delivered = Set(
      entries.filter { $0.kind == "delivery" }.compactMap { entry in
        entry.row.split(separator: "/").dropFirst().first.map(String.init)
      })
    let lines = Set(entries.flatMap(\.heads).map(\.line.originalTransactionID)).sorted()
    let grants = try await transaction.read(
      rows("sealed_grant", "account_id", "account_id = ANY(\(names))"))
    let ids = [first.1, grants].flatMap { $0.values.joined() }.compactMap {
      UUID(uuidString: $0.id)
    }
    let (deliveries, named, holders, orders, given, hashes) = try await transaction.read(
      Query(
        """
        SELECT \(SQL.deliveryRow), jsonb_build_object('delivered_at',
          extract(epoch FROM delivered_at))::text
        FROM tenure.store_transaction
        WHERE environment IN ('production', 'sandbox') AND delivered_at IS NOT NULL
          AND original_transaction_id = ANY(\(delivered.sorted()))
        """
      ) { try $0.decode(String.self, String.self) },
      Query(
        """
        SELECT account_id, account_key, app_account_token, merged_into_key FROM tenure.account
        WHERE account_id = ANY(\(names))
        """
      ) { try $0.decode(String.self, AccountKey.self, UUID.self, AccountKey?.self) },
      Query(
        """
        SELECT app_account_token, account_key FROM tenure.account_by_token
        WHERE app_account_token = ANY(\(accounts.map(\.token)))
        """
      ) { try $0.decode(UUID.self, AccountKey.self) },
      Query(
        """
        SELECT order_id, account_key FROM tenure.purchase_order_account WHERE order_id = ANY(\(ids))
        """
      ) { try $0.decode(UUID.self, AccountKey.self) },
      Query(
        """
        SELECT grant_id, account_key FROM tenure.account_grant_account WHERE grant_id = ANY(\(ids))
        """
      ) { try $0.decode(UUID.self, AccountKey.self) },
      Query(
        """
        SELECT environment, original_transaction_id, number, hash FROM tenure.ledger_entry
        WHERE environment IN ('production', 'sandbox')
          AND original_transaction_id = ANY(\(lines))
        """
      ) { try $0.decode(OriginalTransactionKey.self, Int.self, [UInt8].self) })
    self.rows["account_grant"] = grants
    self.deliveries = Dictionary(deliveries) { first, _ in first }
    for (id, key, token, into) in named { self.named[AccountID(id)] = (key, token, into) }
    for (token, key) in holders { self.holders[token] = key }
    for (id, key) in orders + given { owners[id] = key }
    for (line, number, hash) in hashes {
      self.hashes[line, default: [:]][number] = hash.hexadecimal
    }
  }
}

extension SQL {
  /// The key of a row of `store_transaction` in an account's entry.
  static let deliveryRow: SQL = """
    concat_ws('/', environment, original_transaction_id, transaction_id, product_id)
    """
}

extension LedgerAuditor {
  private static let accountPage = 1000

  /// Verifies the chains of all accounts, and every row that they vouch for.
  ///
  /// - Parameter moment: Verifies only accounts with an entry since then, by the database's clock.
  package func auditAccounts(storedSince moment: Timestamp? = nil, _ audit: inout LedgerAudit)
    async throws
  {
    var last: AccountKey?
    while true {
      var keys = try await accountKeys(after: last, storedSince: moment)
      if moment == nil, last == nil, keys.first != AccountChain.common {
        keys.insert(AccountChain.common, at: 0)
      }
      guard let end = keys.last else { break }
      last = end
      for found in try await inParts(keys, { try await audits(of: $0) }) { audit.add(found) }
    }
    if moment == nil { try await findStrays(&audit) }
  }

  /// The next keys in any table of accounts, whether there are accounts of these keys or not.
  private func accountKeys(after last: AccountKey?, storedSince moment: Timestamp?) async throws
    -> [AccountKey]
  {
    let rest: SQL = last.map { "account_key > \($0)" } ?? "account_key IS NOT NULL"
    let tables = [
      "account_chain", "account_by_key", "purchase_order", "submission", "administrator_action",
    ]
    let found = try await runner.batch(
      (moment == nil ? tables : ["account_chain"]).map { table in
        """
        SELECT DISTINCT account_key FROM tenure.\(unescaped: table) WHERE \(rest)
          AND \(moment.map { "head_stored_at >= \($0)" } ?? "true" as SQL)
        ORDER BY account_key LIMIT \(Self.accountPage)
        """
      }, deadline: Self.auditDeadline)
    var keys: Set<AccountKey> = []
    for rows in found { keys.formUnion(try rows.decode(AccountKey.self)) }
    return Array(keys.sorted().prefix(Self.accountPage))
  }

  /// Verifies some accounts in a snapshot, which has both a row and its entry or neither.
  ///
  /// On a Citus it is one of each node, so differing accounts are read again.
  func audits(of keys: [AccountKey]) async throws -> LedgerAudit {
    @Sendable func audit(_ keys: [AccountKey]) async throws -> LedgerAudit {
      try await withSnapshot {
        let tables = try await AccountTables(of: keys, in: $0)
        var audit = LedgerAudit()
        for key in keys { audit.check(key, in: tables) }
        audit.accounts = tables.accounts.count
        return audit
      }
    }
    let found = try await audit(keys)
    return found.isClean ? found : try await audit(keys)
  }

  // MARK: Rows of no account

  /// Finds look-ups, accounts, grants and deliveries that no entry vouches for.
  ///
  /// Runs after the audit of accounts, whose own rows are trusted here.
  private func findStrays(_ audit: inout LedgerAudit) async throws {
    for (table, id, type, other, otherID, condition) in [
      ("account_by_token", "app_account_token", "uuid", "account_by_key", "app_account_token", ""),
      ("account", "account_id", "text", "account_by_key", "account_id", ""),
      ("purchase_order_account", "order_id", "uuid", "purchase_order", "order_id", ""),
      (
        "account_grant_account", "grant_id", "uuid", "account_entry", "row_id",
        "AND kind = 'account_grant'"
      ),
    ] {
      try await findStrays(in: table, id: id, type, &audit) { ids, owners in
        """
        SELECT \(unescaped: otherID)::text, account_key::text FROM tenure.\(unescaped: other)
        WHERE account_key = ANY(\(owners)::uuid[])
          AND \(unescaped: otherID)::text = ANY(\(ids)) \(unescaped: condition)
        """
      }
    }
    try await findStrays(
      in: "account_grant", id: "account_id", "text", owner: "grant_id", where: "source = 'grant'",
      &audit
    ) { ids, _ in
      """
      SELECT g.account_id, g.grant_id::text
      FROM tenure.account_grant AS g JOIN tenure.account AS a ON a.account_id = g.account_id
      WHERE g.account_id = ANY(\(ids))
      """
    }
    for environment in Environment.allCases {
      let deliveries = try await strays(
        in: "store_transaction", id: "original_transaction_id", "text", owner: SQL.deliveryRow.text,
        where: "environment = '\(environment.rawValue)' AND delivered_at IS NOT NULL"
      ) { ids, rows in
        """
        SELECT s.id, s.row FROM unnest(\(ids), \(rows)) AS s (id, row)
        JOIN tenure.account_entry AS e ON e.kind = 'delivery' AND e.row_id = s.row
        """
      }
      for (id, row) in deliveries {
        audit.report(
          .account, OriginalTransactionKey(environment, OriginalTransactionID(id)),
          "no entry vouches for delivered_at of \(row)")
      }
    }
  }

  /// Reports the ``strays(in:id:_:owner:where:counterparts:)`` of a table.
  private func findStrays(
    in table: String, id: String, _ type: String, owner ownerColumn: String = "account_key",
    where condition: String = "true", _ audit: inout LedgerAudit,
    counterparts: @Sendable ([String], [String]) -> SQL
  ) async throws {
    for (id, owner) in try await strays(
      in: table, id: id, type, owner: ownerColumn, where: condition, counterparts: counterparts)
    {
      // An account's ID is not named: reports contain no names.
      let named = [id, owner].compactMap(UUID.init(uuidString:)).map(\.text)
      audit.report(
        .account, nil,
        account: ownerColumn == "account_key"
          ? UUID(uuidString: owner).map(AccountKey.init(rawValue:)) : nil,
        "\(table) has a row without a counterpart: \(named.joined(separator: " "))")
    }
  }

  /// Pages through a table by its key, and returns the IDs and owners of rows without a counterpart.
  ///
  /// - Parameter counterparts: Selects the counterparts of some IDs and owners, as texts.
  private func strays(
    in table: String, id: String, _ type: String, owner: String, where condition: String,
    counterparts: @Sendable ([String], [String]) -> SQL
  ) async throws -> [(id: String, owner: String)] {
    var (strays, last): ([(id: String, owner: String)], String?) = ([], nil)
    while true {
      let rest: SQL = last.map { "\(unescaped: id) > \($0)::\(unescaped: type)" } ?? "true"
      let (rows, known) = try await withSnapshot { transaction in
        // Whole: all rows of the last ID.
        let rows = try await transaction.query(
          """
          SELECT \(unescaped: id)::text, (\(unescaped: owner))::text
          FROM tenure.\(unescaped: table)
          WHERE \(unescaped: condition) AND \(rest)
          ORDER BY \(unescaped: id) FETCH FIRST \(unescaped: String(Self.accountPage)) ROWS WITH TIES
          """, deadline: Self.auditDeadline
        ).decode(String.self, String.self)
        let known = try await transaction.query(
          counterparts(rows.map(\.0), rows.map(\.1)), deadline: Self.auditDeadline
        ).decode(String.self, String.self)
        return (rows, Set(known.map { [ExactText($0), ExactText($1)] }))
      }
      guard let end = rows.last else { return strays }
      last = end.0
      strays += rows.filter { !known.contains([ExactText($0), ExactText($1)]) }.map { ($0, $1) }
    }
  }
}

extension LedgerAudit {
  fileprivate mutating func check(_ key: AccountKey, in tables: AccountTables) {
    let entries = tables.entries[key] ?? []
    accountEntries += entries.count
    checkChain(
      entries.map { ($0.number, 1, [$0.storedAt], $0.fields, $0.hash) },
      endingAt: tables.heads[key] ?? (0, [nil], nil), account: key)
    let account = tables.accounts[key]
    var latest: [SealedRow: AccountEntry] = [:]
    for entry in entries where entry.kind != AccountChain.Kind.recording.rawValue {
      let row = SealedRow(kind: entry.kind, id: entry.row)
      if let before = latest[row] { checkChange(from: before, to: entry) }
      latest[row] = entry
    }
    for entry in entries {
      for head in entry.heads where tables.hashes[head.line]?[head.number] != head.hash {
        report(
          .head, head.line, account: key,
          "its entry \(head.number) is not the one that entry \(entry.number) of the account names")
      }
    }
    var stored: [SealedRow: String] = [:]
    for (kind, rows) in tables.rows {
      let owner = kind == "account_grant" ? account?.id ?? "" : key.rawValue.text
      for row in rows[AccountID(owner)] ?? [] {
        stored[SealedRow(kind: kind, id: row.id)] = row.body
      }
    }
    for row in latest.keys where row.kind == "delivery" { stored[row] = tables.deliveries[row.id] }
    let rows = Set(latest.keys).union(stored.keys)
    for row in rows.sorted(by: { ($0.kind, $0.id) < ($1.kind, $1.id) }) {
      compare(row, latest[row], stored[row], of: key, isErased: account?.isErased ?? false)
      if ["purchase_order", "account_grant"].contains(row.kind), stored[row] != nil,
        UUID(uuidString: row.id).map({ tables.owners[$0] != key }) ?? true
      {
        report(
          .account, nil, account: key,
          "\(row.kind)_account does not lead from \(row.id) to the account")
      }
    }
    guard let account else { return }
    guard let named = tables.named[AccountID(account.id)], named.key == key else {
      report(.account, nil, account: key, "account has no row of this account_key and account_id")
      return
    }
    if named.token != account.token || tables.holders[account.token] != key {
      report(.account, nil, account: key, "app_account_token differs between the look-ups")
    }
    if named.mergedInto != account.mergedInto {
      report(.account, nil, account: key, "merged_into_key differs between the look-ups")
    }
  }

  /// Reports unchangeable columns that an entry changed: a row was rewritten and vouched for anew.
  private mutating func checkChange(from before: AccountEntry, to entry: AccountEntry) {
    let (old, new) = (before.columns, entry.columns)
    guard !old.isEmpty, !new.isEmpty else { return }
    var changing = AccountEntry.changing[entry.kind] ?? []
    // An erasure replaces the ID by a pseudonym.
    if entry.kind == "account", new["erased_at"] != nil { changing.insert("account_id") }
    let changed = Set(old.keys).union(new.keys).subtracting(changing).filter { old[$0] != new[$0] }
    guard !changed.isEmpty else { return }
    report(
      .account, nil, account: entry.account,
      "entry \(entry.number) changes \(changed.sorted().joined(separator: ", ")) of \(entry.kind) "
        + entry.row)
  }

  /// Compares a row with the latest entry about it.
  private mutating func compare(
    _ row: SealedRow, _ entry: AccountEntry?, _ body: String?, of key: AccountKey, isErased: Bool
  ) {
    let name = row.id.isEmpty ? row.kind : "\(row.kind) \(row.id)"
    let isGone = entry?.columns.isEmpty ?? true
    guard let body else {
      if !isGone {
        report(
          .account, nil, account: key,
          "\(name) is missing, which entry \(entry?.number ?? 0) vouches for")
      }
      return
    }
    guard let entry, !isGone else {
      // An erasure ends submissions that were never decided.
      if !(isErased && body.contains(#""account_erased""#)) {
        report(.account, nil, account: key, "no entry vouches for \(name)")
      }
      return
    }
    guard body != entry.body else { return }
    var (expected, found) = (entry.columns, AccountEntry.columns(of: body))
    if isErased, row.kind == "submission", found["body_sha256"] == nil {
      expected["body_sha256"] = nil
    }
    let differing = Set(expected.keys).union(found.keys).filter { expected[$0] != found[$0] }
    guard !differing.isEmpty else { return }
    report(
      .account, nil, account: key,
      "\(differing.sorted().joined(separator: ", ")) of \(name) is not as entry \(entry.number) has it"
    )
  }
}
