package import Foundation
import Postgres
package import Subscriptions

/// Reads everything out, page by page.
package struct ExportStore: LedgerStore {
  let core: LedgerCore
}

extension ExportStore {
  package struct ExportedCharge: Hashable, Sendable {
    package var key: TransactionKey
    package var purchasedAt: Timestamp
    package var expiresAt: Timestamp?
    package var revokedAt: Timestamp?
    package var quantity: Int
    package var ownershipType: String
    package var periodType: String
    /// Apple's price per unit, if reported.
    package var priceMilliunits: Int64?
    package var currency: String?
    /// Nil if unclaimed.
    package var accountID: String?
    package var rule: Decision.Rule
    package var orderID: UUID?
    /// When the app server acknowledged its delivery.
    package var deliveredAt: Timestamp?
  }

  package func exportCharges(after last: TransactionKey?) async throws
    -> ExportPage<ExportedCharge, TransactionKey>
  {
    let rows = try await database.query(
      """
      SELECT environment, original_transaction_id, transaction_id, product_id, charged_at,
        expires_at, revoked_at, owner_account_key, rule, quantity, ownership_type, period_type,
        price_milliunits, currency, order_id, delivered_at
      FROM tenure.store_transaction
      WHERE (environment, original_transaction_id, transaction_id, product_id)
          > (\(last?.line.environment.rawValue ?? ""),
            \(last?.line.originalTransactionID.rawValue ?? ""),
            \(last?.transactionID.rawValue ?? ""), \(last?.productID.rawValue ?? ""))
        AND rule IS NOT NULL
      ORDER BY environment, original_transaction_id, transaction_id, product_id
      LIMIT \(Self.exportPage)
      """
    ).decode(
      Environment.self, OriginalTransactionID.self, TransactionID.self, ProductID.self,
      Timestamp.self, Timestamp?.self, Timestamp?.self, AccountKey?.self, Decision.Rule.self,
      Int.self, String.self, String.self, Int64?.self, String?.self, UUID?.self, Timestamp?.self)
    let names = try await ownership.accountIDs(of: Set(rows.compactMap(\.7)))
    let charges = rows.map { row in
      ExportedCharge(
        key: TransactionKey(
          line: OriginalTransactionKey(row.0, row.1), transactionID: row.2, productID: row.3),
        purchasedAt: row.4, expiresAt: row.5, revokedAt: row.6, quantity: row.9,
        ownershipType: row.10, periodType: row.11, priceMilliunits: row.12, currency: row.13,
        accountID: row.7.flatMap { names[$0] }, rule: row.8, orderID: row.14,
        deliveredAt: row.15)
    }
    return ExportPage(
      rows: try await addingWhatAliasesFulfilled(to: charges),
      next: charges.count < Self.exportPage ? nil : charges.last?.key)
  }

  /// Adds orders and deliveries from before a transaction became an alias of another charge.
  private func addingWhatAliasesFulfilled(to charges: [ExportedCharge]) async throws
    -> [ExportedCharge]
  {
    var charges = charges
    let places = Dictionary(uniqueKeysWithValues: zip(charges.map(\.key), charges.indices))
    let lines = try await linesLinked(to: Set(charges.map(\.key.line.originalTransactionID)))
    let aliases = try await database.query(
      """
      SELECT environment, charge_original_transaction_id, charge_transaction_id,
        charge_product_id, order_id, delivered_at
      FROM tenure.store_transaction
      WHERE environment = ANY(\(Environment.allCases)) AND original_transaction_id = ANY(\(lines))
        AND rule IS NULL AND (order_id IS NOT NULL OR delivered_at IS NOT NULL)
      ORDER BY recorded_at, original_transaction_id, number
      """
    ).decode(
      Environment.self, OriginalTransactionID.self, TransactionID.self, ProductID.self,
      UUID?.self, Timestamp?.self)
    for row in aliases {
      let key = TransactionKey(
        line: OriginalTransactionKey(row.0, row.1), transactionID: row.2, productID: row.3)
      guard let place = places[key] else { continue }
      charges[place].orderID = charges[place].orderID ?? row.4
      charges[place].deliveredAt = [charges[place].deliveredAt, row.5].compactMap(\.self).min()
    }
    return charges
  }

  /// Extends original transactions by those that Apple links.
  private func linesLinked(to lines: Set<OriginalTransactionID>) async throws
    -> [OriginalTransactionID]
  {
    var (all, new) = (lines, lines)
    while !new.isEmpty {
      let linked = try await database.query(
        """
        SELECT linked_original_transaction_id FROM tenure.original_transaction_link
        WHERE environment = ANY(\(Environment.allCases))
          AND original_transaction_id = ANY(\(new.sorted()))
        """
      ).decode(OriginalTransactionID.self)
      new = Set(linked).subtracting(all)
      all.formUnion(new)
    }
    return all.sorted()
  }
}

extension ExportStore {
  package struct ExportedOrder: Hashable, Sendable {
    package var id: UUID
    package var accountID: String
    package var productID: ProductID
    package var status: String
    package var createdAt: Timestamp
    package var fulfilledAt: Timestamp?
    package var line: OriginalTransactionKey?
    package var transactionID: TransactionID?
    /// The account that opened it, if it was merged into this one since.
    package var openedBy: String?
  }

  package typealias OrderPlace = (account: AccountKey, id: UUID)

  package func exportOrders(after last: OrderPlace?) async throws
    -> ExportPage<ExportedOrder, OrderPlace>
  {
    let rest = last.map { "(account_key, order_id) > (\($0.account), \($0.id))" as SQL } ?? "true"
    let rows = try await database.query(
      """
      SELECT account_key, order_id, product_id, status, created_at, fulfilled_at, environment,
        original_transaction_id, transaction_id, opened_by_key
      FROM tenure.purchase_order
      WHERE \(rest)
      ORDER BY account_key, order_id LIMIT \(Self.exportPage)
      """
    ).decode(
      AccountKey.self, UUID.self, ProductID.self, String.self, Timestamp.self, Timestamp?.self,
      Environment?.self, OriginalTransactionID?.self, TransactionID?.self, AccountKey?.self)
    let names = try await ownership.accountIDs(of: Set(rows.map(\.0) + rows.compactMap(\.9)))
    let orders = rows.compactMap { row -> ExportedOrder? in
      guard let account = names[row.0] else { return nil }
      var line: OriginalTransactionKey?
      if let environment = row.6, let original = row.7 {
        line = OriginalTransactionKey(environment, original)
      }
      return ExportedOrder(
        id: row.1, accountID: account, productID: row.2, status: row.3, createdAt: row.4,
        fulfilledAt: row.5, line: line, transactionID: row.8,
        openedBy: row.9.flatMap { names[$0] })
    }
    return ExportPage(
      rows: orders, next: rows.count < Self.exportPage ? nil : rows.last.map { ($0.0, $0.1) })
  }

  /// An entitlement that was granted instead of bought.
  package struct ExportedGrant: Hashable, Sendable {
    package var id: UUID
    package var accountID: String
    package var entitlement: String
    /// `grant` by an administrator, or `provisional` until Apple is available.
    package var source: String
    package var startsAt: Timestamp
    package var endsAt: Timestamp?
    package var revokedAt: Timestamp?
    package var reason: String
    package var recordedAt: Timestamp
    /// The pending submission and original transaction of a provisional grant.
    package var submissionID: UUID?
    package var line: OriginalTransactionKey?
  }

  package typealias GrantPlace = (accountID: String, id: UUID)

  package func exportGrants(after last: GrantPlace?) async throws
    -> ExportPage<ExportedGrant, GrantPlace>
  {
    let rest = last.map { "(account_id, grant_id) > (\($0.accountID), \($0.id))" as SQL } ?? "true"
    let grants = try await database.query(
      """
      SELECT account_id, grant_id, entitlement, source, starts_at, ends_at, revoked_at, reason,
        recorded_at, submission_id, environment, original_transaction_id
      FROM tenure.account_grant
      WHERE \(rest)
      ORDER BY account_id, grant_id LIMIT \(Self.exportPage)
      """
    ).decode(
      String.self, UUID.self, String.self, String.self, Timestamp.self, Timestamp?.self,
      Timestamp?.self, String.self, Timestamp.self, UUID?.self, Environment?.self,
      OriginalTransactionID?.self
    ).map { row in
      var line: OriginalTransactionKey?
      if let environment = row.10, let original = row.11 {
        line = OriginalTransactionKey(environment, original)
      }
      return ExportedGrant(
        id: row.1, accountID: row.0, entitlement: row.2, source: row.3, startsAt: row.4,
        endsAt: row.5, revokedAt: row.6, reason: row.7, recordedAt: row.8, submissionID: row.9,
        line: line)
    }
    return ExportPage(
      rows: grants,
      next: grants.count < Self.exportPage ? nil : grants.last.map { ($0.accountID, $0.id) })
  }
}

extension ExportStore {
  /// Rows per page: large enough to hide the round trip, small enough for little memory.
  package static let exportPage = 2000

  /// Counts the imported original transactions and how many Apple has confirmed.
  package func importProgress() async throws -> ImportProgress {
    let results = try await database.batch([
      """
      SELECT count(*), count(*) FILTER (WHERE t.latest_charged_at IS NOT NULL)
      FROM tenure.original_transaction AS t
      WHERE EXISTS (
        SELECT FROM tenure.placement AS p
        WHERE p.environment = t.environment
          AND p.original_transaction_id = t.original_transaction_id AND p.transaction_id IS NULL)
      """,
      """
      SELECT count(*)
      FROM tenure.job AS j
      JOIN tenure.original_transaction AS t
        ON t.environment = split_part(j.subject, '/', 1)
        AND t.original_transaction_id = substr(j.subject, strpos(j.subject, '/') + 1)
      WHERE j.kind = \(Job.Kind.pollLine) AND j.discarded_at IS NOT NULL
        AND t.latest_charged_at IS NULL
      """,
    ])
    var progress = ImportProgress()
    (progress.lines, progress.verified) = try results[0].decodeOnly(Int.self, Int.self)
    progress.unverifiable = try results[1].decodeOnly(Int.self)
    progress.waiting = max(0, progress.lines - progress.verified - progress.unverifiable)
    return progress
  }

  /// An original transaction with the account it is bound to.
  package struct ExportedOwner: Hashable, Sendable {
    package var line: OriginalTransactionKey
    package var accountID: String
    /// The app, if known.
    package var bundleID: String?
    /// The transaction that an import named.
    package var transactionID: TransactionID?
  }

  /// A page of a table; it may contain fewer rows than were read, and `next` is nil on the last
  /// one.
  package struct ExportPage<Row: Sendable, Place: Sendable>: Sendable {
    package var rows: [Row]
    /// The position after which the next page begins.
    package var next: Place?
  }

  /// Reads original transactions with an owner after another, by ID.
  ///
  /// Those without evidence from Apple belong to the imported owner.
  package func exportOwners(after last: OriginalTransactionKey?) async throws -> ExportPage<
    ExportedOwner, OriginalTransactionKey
  > {
    let page = try await linePage(after: last, where: "true")
    let names = try await ownership.accountIDs(of: Set(page.compactMap(\.owner)))
    let lines = page.map(\.line)
    let apps = try await bundleIDs(of: lines)
    let transactions = try await importedTransactions(of: lines)
    return ExportPage(
      rows: page.compactMap { row in
        row.owner.flatMap { names[$0] }.map {
          ExportedOwner(
            line: row.line, accountID: $0, bundleID: apps[row.line],
            transactionID: transactions[row.line])
        }
      }, next: page.count < Self.exportPage ? nil : page.last?.line)
  }

  private func bundleIDs(of lines: [OriginalTransactionKey]) async throws
    -> [OriginalTransactionKey: String]
  {
    let found = try await database.query(
      """
      SELECT environment, original_transaction_id, bundle_id FROM tenure.poll_target
      WHERE environment = ANY(\(Environment.allCases))
        AND original_transaction_id = ANY(\(lines.map(\.originalTransactionID)))
        AND bundle_id IS NOT NULL
      """
    ).decode(Environment.self, OriginalTransactionID.self, String.self)
    return Dictionary(
      found.map { (OriginalTransactionKey($0, $1), $2) }, uniquingKeysWith: { first, _ in first })
  }

  private func importedTransactions(of lines: [OriginalTransactionKey]) async throws
    -> [OriginalTransactionKey: TransactionID]
  {
    let found = try await database.query(
      """
      SELECT environment, original_transaction_id, transaction_id FROM tenure.imported_source
      WHERE environment = ANY(\(Environment.allCases))
        AND original_transaction_id = ANY(\(lines.map(\.originalTransactionID)))
        AND transaction_id IS NOT NULL
      """
    ).decode(Environment.self, OriginalTransactionID.self, TransactionID.self)
    return Dictionary(
      found.map { (OriginalTransactionKey($0, $1), $2) }, uniquingKeysWith: { first, _ in first })
  }

  /// Reads imported original transactions without evidence from Apple after another, by ID.
  package func exportUnverified(after last: OriginalTransactionKey?) async throws
    -> ExportPage<UnverifiedImport, OriginalTransactionKey>
  {
    let page = try await linePage(after: last, where: "latest_charged_at IS NULL")
    let names = try await ownership.accountIDs(of: Set(page.compactMap(\.owner)))
    let subjects = page.map { Job.Key.pollLine($0.line).subject }
    let jobs = Dictionary(
      try await database.query(
        """
        SELECT subject, discarded_at, last_error FROM tenure.job
        WHERE kind = \(Job.Kind.pollLine) AND subject = ANY(\(subjects))
        """
      ).decode(String.self, Timestamp?.self, String?.self).map { ($0.0, ($0.1, $0.2)) },
      uniquingKeysWith: { first, _ in first })
    return ExportPage(
      rows: zip(page, subjects).compactMap { row, subject in
        guard let account = row.owner.flatMap({ names[$0] }) else { return nil }
        let job = jobs[subject]
        return UnverifiedImport(
          line: row.line, accountID: account, givenUpAt: job?.0, reason: job?.1)
      }, next: page.count < Self.exportPage ? nil : page.last?.line)
  }

  /// Reads original transactions with the owner of their latest charge, or the imported owner.
  private func linePage(after last: OriginalTransactionKey?, where condition: SQL) async throws
    -> [(line: OriginalTransactionKey, owner: AccountKey?)]
  {
    let rows = try await database.query(
      """
      SELECT environment, original_transaction_id, latest_charged_at, latest_owner_key
      FROM tenure.original_transaction
      WHERE (environment, original_transaction_id)
          > (\(last?.environment.rawValue ?? ""), \(last?.originalTransactionID.rawValue ?? ""))
        AND \(condition)
      ORDER BY environment, original_transaction_id LIMIT \(Self.exportPage)
      """
    ).decode(Environment.self, OriginalTransactionID.self, Timestamp?.self, AccountKey?.self)
    var page = rows.map { (line: OriginalTransactionKey($0.0, $0.1), owner: $0.3) }
    let unheardOf = rows.filter { $0.2 == nil }.map { OriginalTransactionKey($0.0, $0.1) }
    guard !unheardOf.isEmpty else { return page }
    var owners: [OriginalTransactionKey: AccountKey] = [:]
    for (environment, lines) in Dictionary(grouping: unheardOf, by: \.environment) {
      let ids = lines.map(\.originalTransactionID)
      for (id, account) in try await database.query(
        """
        SELECT original_transaction_id, account_key FROM tenure.placement
        WHERE environment = \(environment) AND original_transaction_id = ANY(\(ids))
          AND transaction_id IS NULL
        ORDER BY original_transaction_id, number
        """
      ).decode(OriginalTransactionID.self, AccountKey.self) {
        owners[OriginalTransactionKey(environment, id)] = account
      }
    }
    for index in page.indices where page[index].owner == nil {
      page[index].owner = owners[page[index].line]
    }
    return page
  }

  /// Reads account IDs after another, in order, without erased accounts.
  package func exportAccounts(after last: String?, limit: Int) async throws
    -> ExportPage<String, String>
  {
    let page = try await database.query(
      """
      SELECT account_id, account_key FROM tenure.account WHERE account_id > \(last ?? "")
      ORDER BY account_id LIMIT \(limit)
      """
    ).decode(String.self, AccountKey.self)
    return ExportPage(
      rows: page.filter { AccountID($0.0) != AccountID(Account.pseudonym(of: $0.1)) }.map(\.0),
      next: page.count < limit ? nil : page.last?.0)
  }
}
