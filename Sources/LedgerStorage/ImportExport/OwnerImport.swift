import Foundation
import Postgres
package import Subscriptions

/// Imports owners from another backend.
package struct ImportStore: LedgerStore {
  package let core: LedgerCore

  /// Known original transactions imported per transaction, which holds their locks.
  private static let knownAtOnce = 50
  /// Attempts at a chunk that concurrent writes interfere with.
  private static let patience = 10
  /// The reason why an import can't be verified.
  static let noCharge = "Apple returned no charge for this original transaction."

  /// Imports the owners of original transactions from another backend, and schedules polls to
  /// verify those that Tenure does not know.
  ///
  /// ```swift
  /// let owner = ImportedOwner(
  ///   line: OriginalTransactionKey(.production, "100000000000001"), accountID: "klara",
  ///   asOf: exportedAt)
  /// let verdicts = try await ledger.imports.importOwners(
  ///   [owner], from: "owners.csv", terms: reader.terms, at: now)
  /// ```
  ///
  /// Known facts are not recorded again, so an interrupted import is simply repeated. Unknown
  /// original transactions are inserted in one database transaction; known ones are recorded as
  /// evidence.
  ///
  /// - Parameter owners: At most one per original transaction.
  /// - Returns: A verdict per owner, in the same order; in a dry run nothing is written.
  package func importOwners(
    _ owners: [ImportedOwner], from source: String, isDryRun: Bool = false, terms: AccessTerms,
    at now: Timestamp
  ) async throws -> [ImportVerdict] {
    guard !owners.isEmpty else { return [] }
    let source = EntrySource(.import, id: String(source.prefix(128)))
    for attempt in 1... {
      let known = try await knowledge(of: owners)
      var verdicts = owners.map { known.verdict(on: $0) }
      let new = owners.indices.filter { verdicts[$0] == nil && known.heads[owners[$0].line] == nil }
      let others = owners.indices.filter { verdicts[$0] == nil }.filter {
        known.heads[owners[$0].line] != nil
      }
      for index in new { verdicts[index] = .recorded }
      if !isDryRun, !new.isEmpty {
        do {
          try await insert(
            new.map { owners[$0] }, keys: known.accounts, from: source, at: now)
        } catch  where attempt < Self.patience && Self.isOvertaken(error) {
          continue
        }
      }
      for indices in others.batches(of: Self.knownAtOnce) {
        let part = try await importKnown(
          indices.map { owners[$0] }, from: source, isDryRun: isDryRun, terms: terms, at: now)
        for (index, verdict) in zip(indices, part) { verdicts[index] = verdict }
      }
      return verdicts.compactMap(\.self)
    }
    preconditionFailure("The last attempt returns or throws.")
  }

  /// Whether a concurrent transaction has written one of the original transactions or accounts;
  /// Citus reports errors on its nodes as internal errors.
  private static func isOvertaken(_ error: any Error) -> Bool {
    guard let error = error as? PostgresError else { return error is AccountErased }
    return error.sqlState == .uniqueViolation
      || error.sqlState == .internalError && error.message.contains("duplicate key value")
  }

  // MARK: Known facts

  /// The state of a chunk's accounts and original transactions, read without locks.
  private struct Knowledge {
    var accounts: [AccountID: AccountKey] = [:]
    /// Accounts whose ID is a pseudonym.
    var erased: Set<AccountID> = []
    var heads: [OriginalTransactionKey: (owner: AccountKey?, paidThrough: Timestamp?)] = [:]
    var ownerOverrides: [OriginalTransactionKey: [OriginalTransactionOverride]] = [:]

    /// The verdict, or nil if the original transaction has to be read in full.
    func verdict(on owner: ImportedOwner) -> ImportVerdict? {
      if erased.contains(owner.account) { return .accountErased }
      guard let key = accounts[owner.account], let head = heads[owner.line] else { return nil }
      let isSaid = ownerOverrides[owner.line, default: []].contains {
        $0.account == key && $0.boughtUntil >= owner.asOf
      }
      let isCurrent = head.owner == key && head.paidThrough.map { $0 > owner.asOf } ?? false
      return isSaid || isCurrent ? .known : nil
    }
  }

  private func knowledge(of owners: [ImportedOwner]) async throws -> Knowledge {
    let ids = owners.map(\.line.originalTransactionID)
    let (accounts, heads, overrides) = try await database.read(
      Query(Self.select(accounts: owners.map(\.accountID)), decode: Self.accountKeys),
      // A provisional owner, who yields to the first claim, does not count.
      Query(
        """
        SELECT o.environment, o.original_transaction_id,
          CASE WHEN EXISTS (
            SELECT FROM tenure.store_transaction AS t
            WHERE t.environment = o.environment
              AND t.original_transaction_id = o.original_transaction_id
              AND t.charged_at = o.latest_charged_at
              AND t.owner_account_key = o.latest_owner_key AND NOT t.is_provisional)
          THEN o.latest_owner_key END, o.paid_through
        FROM tenure.original_transaction AS o
        WHERE o.environment = ANY(\(Environment.allCases)) AND o.original_transaction_id = ANY(\(ids))
        """
      ) { try $0.decode(OriginalTransactionKey.self, AccountKey?.self, Timestamp?.self) },
      Query(
        """
        SELECT environment, original_transaction_id, account_key, effective_from
        FROM tenure.ownership_action
        WHERE environment = ANY(\(Environment.allCases)) AND original_transaction_id = ANY(\(ids))
          AND transaction_id IS NULL
        """
      ) { try $0.decode(OriginalTransactionKey.self, AccountKey.self, Timestamp.self) })
    var known = Knowledge(accounts: accounts)
    known.erased = Set(
      accounts.filter { $0.key == AccountID(Account.pseudonym(of: $0.value)) }.keys)
    for (line, owner, paidThrough) in heads { known.heads[line] = (owner, paidThrough) }
    for (line, account, until) in overrides {
      known.ownerOverrides[line, default: []].append(
        OriginalTransactionOverride(account: account, line: line, boughtUntil: until))
    }
    return known
  }

  private static func select(accounts names: [String]) -> SQL {
    """
    SELECT account_id, account_key FROM tenure.account
    WHERE account_id = ANY(\(Set(names.map(AccountID.init)).sorted().map(\.rawValue)))
    """
  }

  private static func accountKeys(from rows: Rows) throws -> [AccountID: AccountKey] {
    Dictionary(
      uniqueKeysWithValues: try rows.decode(String.self, AccountKey.self).map {
        (AccountID($0), $1)
      })
  }

  private struct AccountErased: Error {}

  /// Locks and returns the accounts of stored sources, so that no concurrent erasure misses them.
  private static func hold(
    _ accounts: Set<AccountID>, in transaction: Transaction
  ) async throws -> [AccountID: AccountKey] {
    let names = accounts.sorted()
    guard !names.isEmpty else { return [:] }
    let found = try await transaction.batch(
      names.map { name -> SQL in
        "SELECT account_key FROM tenure.account WHERE account_id = \(name.rawValue) FOR KEY SHARE"
      })
    var held: [AccountID: AccountKey] = [:]
    for (name, rows) in zip(names, found) { held[name] = try rows.decodeFirst(AccountKey.self) }
    return held
  }

  // MARK: New original transactions

  private typealias NewOriginalTransaction = (
    owner: ImportedOwner, account: AccountKey, entry: StoredEntry
  )

  /// Inserts unknown original transactions and new accounts.
  ///
  /// - Throws: `PostgresError` with a unique violation if one of them exists.
  private func insert(
    _ owners: [ImportedOwner], keys known: [AccountID: AccountKey], from source: EntrySource,
    at now: Timestamp
  ) async throws {
    var keys = known
    var accounts: [Account] = []
    // Sorted, so that two imports can't deadlock.
    for name in Set(owners.map(\.account)).subtracting(keys.keys).sorted() {
      let account = Account(
        id: name.rawValue, key: AccountKey(rawValue: UUID()), appAccountToken: UUID(),
        createdAt: now)
      accounts.append(account)
      keys[name] = account.key
    }
    let receivers = Set(owners.filter(\.hasSource).map(\.account)).intersection(known.keys)
    try await database.withTransaction { [accounts, keys] transaction in
      let storedAt = try await transaction.query("SELECT date_trunc('milliseconds', now())")
        .decodeOnly(Timestamp.self)
      let lines = try owners.sorted { $0.line < $1.line }.map { owner -> NewOriginalTransaction in
        guard let account = keys[owner.account] else {
          preconditionFailure("Every account exists or is created.")
        }
        let ownerOverride = OriginalTransactionOverride(
          account: account, line: owner.line, boughtUntil: owner.asOf)
        let item = LedgerItem(
          line: owner.line, number: 1, recordedAt: now,
          content: .action(.importedOverride(ownerOverride)))
        return (
          owner, account,
          try StoredEntry.chain([item], source: source, at: storedAt, after: nil)[0]
        )
      }
      let held = try await Self.hold(receivers, in: transaction)
      guard receivers.allSatisfy({ held[$0] == known[$0] }) else { throw AccountErased() }
      // On a Citus, each entry of an account's chain is several round trips.
      try await transaction.commit(
        with: Self.insert(accounts, at: now) + Self.insert(lines, at: now)
          + Self.seal(Set(accounts.map(\.key)), lines), deadline: .seconds(600))
    }
    notifier.notify(.jobs)
  }

  private static func insert(_ accounts: [Account], at now: Timestamp) -> [SQL] {
    guard !accounts.isEmpty else { return [] }
    let new: SQL = """
      unnest(\(accounts.map(\.id)), \(accounts.map(\.key)), \(accounts.map(\.appAccountToken)))
        AS new (id, key, token)
      """
    return [
      """
      INSERT INTO tenure.account (account_id, account_key, app_account_token, created_at)
      SELECT id, key, token, \(now) FROM \(new)
      """,
      """
      INSERT INTO tenure.account_by_key (account_key, account_id, app_account_token)
      SELECT key, id, token FROM \(new)
      """,
      """
      INSERT INTO tenure.account_by_token (app_account_token, account_key)
      SELECT token, key FROM \(new)
      """,
    ]
  }

  /// Vouches for the new accounts, and leaves the original transactions' chains with their owners.
  private static func seal(_ new: Set<AccountKey>, _ lines: [NewOriginalTransaction]) -> [SQL] {
    let heads = Dictionary(grouping: lines, by: \.account).mapValues { lines in
      Dictionary(
        uniqueKeysWithValues: lines.map { ($0.owner.line, OriginalTransactionRows.Head($0.entry)) })
    }
    let accounts = heads.sorted { $0.key < $1.key }
    return [
      """
      SELECT count(tenure.seal(account, kind, '', details::jsonb))
      FROM unnest(\(accounts.map(\.key)),
        \(accounts.map { new.contains($0.key) ? AccountChain.Kind.account : .recording }),
        \(accounts.map { AccountChain.details($0.value) })) AS sealed (account, kind, details)
      """
    ]
  }

  /// Also inserts rows that may exist already: identifiers for polls, apps and the polls.
  private static func insert(_ lines: [NewOriginalTransaction], at now: Timestamp) -> [SQL] {
    guard let first = lines.first?.entry else { return [] }
    let (owners, accounts) = (lines.map(\.owner), lines.map(\.account))
    let hashes = lines.map(\.entry.hash)
    let keys: SQL = """
      \(owners.map(\.line.environment)), \(owners.map(\.line.originalTransactionID))
      """
    return [
      """
      INSERT INTO tenure.original_transaction (environment, original_transaction_id, head_number,
        head_hash, head_recorded_at, head_stored_at)
      SELECT environment, id, 1, hash, \(now), \(first.storedAt)
      FROM unnest(\(keys), \(hashes)) AS new (environment, id, hash)
      """,
      """
      INSERT INTO tenure.ledger_entry (environment, original_transaction_id, number, recorded_at,
        source, source_id, format, body, stored_at, hash)
      SELECT environment, id, 1, \(now), \(first.source.kind), \(first.source.id),
        \(first.format), body, \(first.storedAt), hash
      FROM unnest(\(keys), \(lines.map { CompressedText($0.entry.body) }), \(hashes)) AS new (environment, id, body, hash)
      """,
      """
      INSERT INTO tenure.ownership_action (environment, original_transaction_id, number, recorded_at,
        is_claim, account_key, effective_from)
      SELECT environment, id, 1, \(now), false, account, as_of
      FROM unnest(\(keys), \(accounts), \(owners.map(\.asOf)))
        AS new (environment, id, account, as_of)
      """,
      """
      INSERT INTO tenure.account_original_transaction (environment, original_transaction_id,
        account_key)
      SELECT * FROM unnest(\(keys), \(accounts))
      """,
    ] + lines.compactMap { insertSource($0.owner, of: $0.account) } + insertApps(owners)
      + [Job.insertPolls(of: owners.map(\.line), at: now)]
  }

  /// Stores the apps named by an import, unless Apple has named them.
  ///
  /// - Parameter unpolled: Original transactions without evidence from Apple: a later import
  ///   replaces their app, which may have been mistyped.
  private static func insertApps(
    _ owners: [ImportedOwner], unpolled: Set<OriginalTransactionKey> = []
  ) -> [SQL] {
    let known = owners.filter { $0.bundleID != nil }.sorted { $0.line < $1.line }
    return [true, false].compactMap { isUnpolled in
      let owners = known.filter { unpolled.contains($0.line) == isUnpolled }
      guard !owners.isEmpty else { return nil }
      var insert: SQL = """
        INSERT INTO tenure.poll_target (environment, original_transaction_id, bundle_id)
        SELECT environment, original_transaction_id, bundle_id
        FROM unnest(\(owners.map(\.line.environment)),
          \(owners.map(\.line.originalTransactionID)), \(owners.compactMap(\.bundleID)))
          AS line (environment, original_transaction_id, bundle_id)
        ON CONFLICT (environment, original_transaction_id)
        """
      insert.append(isUnpolled ? " DO UPDATE SET bundle_id = excluded.bundle_id" : " DO NOTHING")
      return insert
    }
  }

  private static func insertSource(_ owner: ImportedOwner, of account: AccountKey) -> SQL? {
    guard owner.hasSource else { return nil }
    return """
      INSERT INTO tenure.imported_source (environment, original_transaction_id, account_key,
        transaction_id, receipt_data)
      VALUES (\(owner.line.environment), \(owner.line.originalTransactionID), \(account),
        \(owner.transactionID), \(owner.receipt))
      ON CONFLICT (environment, original_transaction_id) DO UPDATE SET
        account_key = excluded.account_key, transaction_id = excluded.transaction_id,
        receipt_data = excluded.receipt_data
      """
  }

  // MARK: Known original transactions

  /// Imports owners of known original transactions in one database transaction.
  private func importKnown(
    _ owners: [ImportedOwner], from source: EntrySource, isDryRun: Bool, terms: AccessTerms,
    at now: Timestamp
  ) async throws -> [ImportVerdict] {
    try await database.withTransaction(
      isolation: isDryRun ? .repeatableRead : .readCommitted, readOnly: isDryRun
    ) { transaction in
      let originals = try await transaction.originals(owners.map(\.line), locking: !isDryRun)
      // Read again, together: an account may have been erased since the chunk was read.
      if !isDryRun {
        _ = try await Self.hold(Set(owners.filter(\.hasSource).map(\.account)), in: transaction)
      }
      var accounts = try await Self.accountKeys(
        from: transaction.query(Self.select(accounts: owners.map(\.accountID))))
      var verdicts: [ImportVerdict] = []
      var additions: [(owner: ImportedOwner, account: AccountKey)] = []
      for owner in owners {
        let original = originals.first { $0.members[owner.line] != nil }
        let account = accounts[owner.account]
        let judged = original?.verdict(on: owner, of: account)
        var verdict = judged?.verdict ?? .recorded
        if let other = judged?.other {
          let known = try await transaction.read(KnownAccount.query([other, account ?? other]))
          // A guest and the member that it was merged into are one person.
          let isMerged = account.map { account in
            known[account]?.mergedInto == other || known[other]?.mergedInto == account
          }
          verdict =
            isMerged == true
            ? .known : .ownedByAnotherAccount(known[other]?.id ?? "an erased account")
        }
        verdicts.append(verdict)
        guard verdict == .recorded, !isDryRun else { continue }
        let key: AccountKey
        if let account {
          key = account
        } else {
          key = try await self.accounts.createAccount(owner.accountID, at: now, in: transaction).key
          accounts[owner.account] = key
        }
        additions.append((owner, key))
      }
      guard !additions.isEmpty else {
        await transaction.rollBack()
        return verdicts
      }
      let ownerOverrides = additions.map {
        OriginalTransactionOverride(
          account: $0.account, line: $0.owner.line, boughtUntil: $0.owner.asOf)
      }
      let touched = originals.filter { original in
        ownerOverrides.contains { original.members[$0.line] != nil }
      }
      let arrival = EvidenceBatch(importedOverrides: ownerOverrides, source: source)
      let recording = try await recorder.load(arrival, on: touched, in: transaction).decide(at: now)
      let plan = try await recorder.plan(recording, terms: terms, at: now, in: transaction)
      let waiting = touched.filter { $0.line.history.transactions.isEmpty }
        .flatMap(\.members.keys).sorted()
      announce(plan.channels.union([.jobs]), after: transaction)
      try await transaction.commit(
        with: plan.statements
          + additions.compactMap { Self.insertSource($0.owner, of: $0.account) }
          + Self.insertApps(additions.map(\.owner), unpolled: Set(waiting))
          + (waiting.isEmpty ? [] : [Job.insertPolls(of: waiting, at: now)]))
      return verdicts
    }
  }

  /// Identifiers that an import named for polling an original transaction.
  package typealias ImportedSource = (transactionID: TransactionID?, receipt: String?)

  static func importedSource(of line: OriginalTransactionKey) -> Query<ImportedSource?> {
    Query(
      """
      SELECT transaction_id, receipt_data FROM tenure.imported_source
      WHERE \(line.condition)
      """
    ) { try $0.decodeFirst(TransactionID?.self, String?.self).map { $0 } }
  }
}

extension Job {
  /// Enqueues polls of imported original transactions, due at once with the lowest priority.
  static func insertPolls(of lines: [OriginalTransactionKey], at now: Timestamp) -> SQL {
    let keys = lines.map { Key.pollStatus($0) }
    return """
      INSERT INTO tenure.job (kind, subject, queue, priority, run_at, created_at)
      SELECT \(Kind.pollStatus), subject, queue, \(PollSchedule.quiet), \(now), \(now)
      FROM unnest(\(keys.map(\.subject)), \(keys.map(\.queue)))
        AS line (subject, queue)
      ON CONFLICT (kind, subject) DO UPDATE SET \(reset) WHERE tenure.job.discarded_at IS NOT NULL
      """
  }
}

/// The owner of an original transaction in another backend.
package struct ImportedOwner: Hashable, Sendable {
  package var line: OriginalTransactionKey
  package var accountID: String
  /// When this was true: charges dated until then belong to the account.
  package var asOf: Timestamp
  /// The app, if several are configured.
  package var bundleID: String?
  /// A transaction of it, for the App Store Server API.
  package var transactionID: TransactionID?
  /// A receipt that lists it, in Base64.
  package var receipt: String?

  package init(
    line: OriginalTransactionKey, accountID: String, asOf: Timestamp, bundleID: String? = nil,
    transactionID: TransactionID? = nil, receipt: String? = nil
  ) {
    self.line = line
    self.accountID = accountID
    self.asOf = asOf
    self.bundleID = bundleID
    self.transactionID = transactionID
    self.receipt = receipt
  }

  var account: AccountID { AccountID(accountID) }

  var hasSource: Bool { transactionID != nil || receipt != nil }
}

package enum ImportVerdict: Hashable, Sendable {
  /// Recorded, or would be in a dry run.
  case recorded
  case known
  case ownedByAnotherAccount(String)
  case accountErased
}

/// How much of an import Apple has confirmed, in original transactions.
package struct ImportProgress: Hashable, Sendable {
  package var lines = 0
  /// Those with a charge from Apple.
  package var verified = 0
  /// Those with a pending poll.
  package var waiting = 0
  /// Those whose poll is parked.
  package var unverifiable = 0
}

extension OriginalTransaction {
  fileprivate var importedFor: AccountKey? { history.importedOverrides.last?.account }

  /// Whether it was imported and Apple has not returned a charge yet.
  var awaitsApple: Bool { history.transactions.isEmpty && importedFor != nil }
}

extension StoredOriginalTransaction {
  /// The verdict on an import, and the other account that owns the original transaction.
  func verdict(on owner: ImportedOwner, of account: AccountKey?) -> (
    verdict: ImportVerdict, other: AccountKey?
  ) {
    let ownerOverride = account.map {
      OriginalTransactionOverride(account: $0, line: owner.line, boughtUntil: owner.asOf)
    }
    // Already imported, even if the owner has changed since.
    if let ownerOverride, line.history.says(.importedOverride(ownerOverride)) {
      return (.known, nil)
    }
    let rule = rule
    let latest = rule.charges.latestPosition.map { (rule.charges[$0], rule.decisions[$0]) }
    let holder =
      latest.map { $0.1.isProvisional ? nil : $0.1.owner }
      ?? (line.awaitsApple ? line.importedFor : nil)
    if let holder, holder != account { return (.ownedByAnotherAccount(""), holder) }
    // The state from Apple is newer than the import.
    if let latest, holder != nil, latest.0.end.map({ $0 > owner.asOf }) ?? true {
      return (.known, nil)
    }
    return (.recorded, nil)
  }
}
