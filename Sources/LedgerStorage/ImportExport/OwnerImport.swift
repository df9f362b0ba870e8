import Foundation
import Postgres
package import Subscriptions

/// Owners from another backend.
extension Ledger {
  /// How many lines are recorded under one lock at the most, where Tenure knew them: others wait.
  private static let knownLinesAtOnce = 50
  /// How often a chunk is begun anew because somebody else has just written some of it.
  private static let patience = 10
  /// What an import says when Apple is asked, and has told nothing: that there is no such line.
  static let nothingTold = "Apple tells of no charge of this original transaction."

  /// Records whose lines are, as another backend has it, and sees to it that Apple is asked about
  /// those of which nothing is known.
  ///
  /// Whatever is known already is not recorded again; so what was interrupted is simply begun anew.
  /// Lines that nobody has heard of are copied in, in one database transaction; the others are
  /// recorded as everything else is.
  ///
  /// - Parameters:
  ///   - owners: No line twice.
  ///   - source: Where it comes from: the name of a file, for example.
  ///   - isDryRun: Whether nothing is to be written.
  ///   - terms: By what it is judged what accounts may use.
  ///   - now: The recording date.
  /// - Returns: What came of each, in their order.
  /// - Throws: What the database says.
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
          try await copy(
            new.map { owners[$0] }, keys: known.accounts, from: source, at: now)
        } catch let error as PostgresError
          where Self.isDuplicate(error) && attempt < Self.patience
        {
          // Somebody else has just written one of the lines, or one of the accounts.
          continue
        } catch is AccountErased where attempt < Self.patience {
          continue
        }
      }
      for part in stride(from: 0, to: others.count, by: Self.knownLinesAtOnce) {
        let indices = others[part..<min(part + Self.knownLinesAtOnce, others.count)]
        let part = try await importKnown(
          indices.map { owners[$0] }, from: source, isDryRun: isDryRun, terms: terms, at: now)
        for (index, verdict) in zip(indices, part) { verdicts[index] = verdict }
      }
      return verdicts.compactMap(\.self)
    }
    preconditionFailure("The last attempt returns or throws.")
  }

  /// Whether a row is there already; on a Citus an error within COPY comes as an internal error.
  private static func isDuplicate(_ error: PostgresError) -> Bool {
    error.sqlState == .uniqueViolation
      || error.sqlState == .internalError && error.message.contains("duplicate key value")
  }

  // MARK: What is known

  /// What one look at all lines of a chunk tells.
  private struct Knowledge {
    var accounts: [AccountID: AccountKey] = [:]
    /// The accounts that bear a pseudonym.
    var erased: Set<AccountID> = []
    var heads: [LineID: (owner: AccountKey?, paidThrough: Timestamp?)] = [:]
    var placements: [LineID: [LinePlacement]] = [:]

    /// What is known without a closer look; nil: that has to be seen.
    func verdict(on owner: ImportedOwner) -> ImportVerdict? {
      if erased.contains(owner.account) { return .accountErased }
      guard let key = accounts[owner.account], let head = heads[owner.line] else { return nil }
      let isSaid = placements[owner.line, default: []].contains {
        $0.account == key && $0.boughtUntil >= owner.asOf
      }
      let isCurrent = head.owner == key && head.paidThrough.map { $0 > owner.asOf } ?? false
      return isSaid || isCurrent ? .known : nil
    }
  }

  private func knowledge(of owners: [ImportedOwner]) async throws -> Knowledge {
    var known = Knowledge()
    let lines = Dictionary(grouping: owners.map(\.line), by: \.environment)
    let environments = lines.keys.sorted { $0.rawValue < $1.rawValue }
    let results = try await database.batch(
      [Self.select(accounts: owners.map(\.accountID))]
        + environments.flatMap { environment -> [SQL] in
          let ids = (lines[environment] ?? []).map(\.originalTransactionID)
          return [
            // An owner from whom a claim could still take the charge is no word against one.
            """
            SELECT o.original_transaction_id,
              CASE WHEN EXISTS (
                SELECT FROM tenure.store_transaction AS t
                WHERE t.environment = o.environment
                  AND t.original_transaction_id = o.original_transaction_id
                  AND t.charged_at = o.latest_charged_at
                  AND t.owner_account_key = o.latest_owner_key AND NOT t.is_provisional)
              THEN o.latest_owner_key END, o.paid_through
            FROM tenure.original_transaction AS o
            WHERE o.environment = \(environment) AND o.original_transaction_id = ANY(\(ids))
            """,
            """
            SELECT original_transaction_id, account_key, effective_from FROM tenure.placement
            WHERE environment = \(environment) AND original_transaction_id = ANY(\(ids))
              AND transaction_id IS NULL
            ORDER BY number
            """,
          ]
        })
    known.accounts = try Self.accountKeys(from: results[0])
    known.erased = Set(
      known.accounts.filter { $0.key == AccountID(Account.pseudonym(of: $0.value)) }.keys)
    for (index, environment) in environments.enumerated() {
      for (id, owner, paidThrough) in try results[1 + 2 * index].decode(
        OriginalTransactionID.self, AccountKey?.self, Timestamp?.self)
      {
        known.heads[LineID(environment, id)] = (owner, paidThrough)
      }
      for (id, account, until) in try results[2 + 2 * index].decode(
        OriginalTransactionID.self, AccountKey.self, Timestamp.self)
      {
        let line = LineID(environment, id)
        known.placements[line, default: []].append(
          LinePlacement(account: account, line: line, boughtUntil: until))
      }
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

  /// An account has another key than it had a moment ago, or none: its name is free again.
  private struct AccountErased: Error {}

  /// Locks the accounts with which a receipt or a transaction is to be kept, so that nobody erases
  /// them meanwhile and leaves it behind.
  ///
  /// - Returns: Those that there are.
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

  // MARK: New lines

  /// What is copied in of one line.
  private struct NewLine {
    var owner: ImportedOwner
    var account: AccountKey
    var entry: StoredEntry
  }

  /// Copies lines in of which there is nothing, with the accounts that are new.
  ///
  /// - Throws: `PostgresError` of a unique violation if there is something of one of them.
  private func copy(
    _ owners: [ImportedOwner], keys known: [AccountID: AccountKey], from source: EntrySource,
    at now: Timestamp
  ) async throws {
    var keys = known
    var accounts: [Account] = []
    // In one order, so that two imports never wait for each other in a circle.
    for name in Set(owners.map(\.account)).subtracting(keys.keys).sorted() {
      let account = Account(
        id: name.rawValue, key: AccountKey(rawValue: UUID()), appAccountToken: UUID(),
        createdAt: now)
      accounts.append(account)
      keys[name] = account.key
    }
    let lines = try owners.sorted { $0.line < $1.line }.map { owner in
      guard let account = keys[owner.account] else {
        preconditionFailure("Every account was found or is made.")
      }
      let placement = LinePlacement(
        account: account, line: owner.line, boughtUntil: owner.asOf)
      return NewLine(
        owner: owner, account: account,
        entry: try StoredEntry(
          LedgerEntry(
            line: owner.line, number: 1, recordedAt: now,
            content: .act(.linePlacement(placement))),
          source: source, after: nil))
    }
    let receivers = Set(owners.filter(\.hasSource).map(\.account)).intersection(known.keys)
    try await database.withTransaction { [accounts] transaction in
      let held = try await Self.hold(receivers, in: transaction)
      guard receivers.allSatisfy({ held[$0] == known[$0] }) else { throw AccountErased() }
      try await Self.copy(accounts, in: transaction)
      try await Self.copy(lines, at: now, in: transaction)
      try await transaction.commit(with: Self.companions(of: lines, at: now))
    }
    bell.ring(.jobs)
  }

  private static func copy(_ accounts: [Account], in transaction: Transaction) async throws {
    guard !accounts.isEmpty else { return }
    try await transaction.copyIn(
      """
      COPY tenure.account (account_id, account_key, app_account_token, created_at) FROM STDIN
      """, rows: accounts
    ) { $1.append($0.id, $0.key, $0.appAccountToken, $0.createdAt) }
    try await transaction.copyIn(
      """
      COPY tenure.account_by_key (account_key, account_id, app_account_token) FROM STDIN
      """, rows: accounts
    ) { $1.append($0.key, $0.id, $0.appAccountToken) }
    try await transaction.copyIn(
      """
      COPY tenure.account_by_token (app_account_token, account_key) FROM STDIN
      """, rows: accounts
    ) { $1.append($0.appAccountToken, $0.key) }
  }

  private static func copy(
    _ lines: [NewLine], at now: Timestamp, in transaction: Transaction
  ) async throws {
    let one: Int32 = 1
    try await transaction.copyIn(
      """
      COPY tenure.original_transaction (environment, original_transaction_id, head_number,
        head_hash, head_recorded_at) FROM STDIN
      """, rows: lines
    ) {
      $1.append(
        $0.owner.line.environment, $0.owner.line.originalTransactionID, one, $0.entry.hash, now)
    }
    try await transaction.copyIn(
      """
      COPY tenure.ledger_entry (environment, original_transaction_id, number, recorded_at, kind,
        source, source_id, format, body, hash) FROM STDIN
      """, rows: lines
    ) {
      $1.append(
        $0.owner.line.environment, $0.owner.line.originalTransactionID, one, now, $0.entry.kind,
        $0.entry.source.kind, $0.entry.source.id, $0.entry.format, $0.entry.body, $0.entry.hash)
    }
    try await transaction.copyIn(
      """
      COPY tenure.placement (environment, original_transaction_id, number, recorded_at,
        account_key, effective_from) FROM STDIN
      """, rows: lines
    ) {
      $1.append(
        $0.owner.line.environment, $0.owner.line.originalTransactionID, one, now, $0.account,
        $0.owner.asOf)
    }
    try await transaction.copyIn(
      """
      COPY tenure.account_line (account_key, environment, original_transaction_id) FROM STDIN
      """, rows: lines
    ) {
      $1.append($0.account, $0.owner.line.environment, $0.owner.line.originalTransactionID)
    }
  }

  /// What goes with new lines and may be there already: the polls, and what to ask Apple with.
  private static func companions(of lines: [NewLine], at now: Timestamp) -> [SQL] {
    lines.compactMap { Self.insertSource($0.owner, of: $0.account) }
      + insertApps(lines.map(\.owner)) + [Job.insertPolls(of: lines.map(\.owner.line), at: now)]
  }

  /// Notes the apps of lines, where the import names them and Apple has not.
  ///
  /// - Parameters:
  ///   - owners: Of several lines.
  ///   - unheard: Those lines of which Apple has told nothing: an import's last word counts, for
  ///     the one before may have been mistyped.
  /// - Returns: The statements.
  private static func insertApps(
    _ owners: [ImportedOwner], unheard: Set<LineID> = []
  ) -> [SQL] {
    let known = owners.filter { $0.bundleID != nil }.sorted { $0.line < $1.line }
    return [true, false].compactMap { isUnheard in
      let owners = known.filter { unheard.contains($0.line) == isUnheard }
      guard !owners.isEmpty else { return nil }
      var insert: SQL = """
        INSERT INTO tenure.line_source (environment, original_transaction_id, bundle_id)
        SELECT environment, original_transaction_id, bundle_id
        FROM unnest(\(owners.map(\.line.environment)),
          \(owners.map(\.line.originalTransactionID)), \(owners.compactMap(\.bundleID)))
          AS line (environment, original_transaction_id, bundle_id)
        ON CONFLICT (environment, original_transaction_id)
        """
      insert.append(
        isUnheard ? " DO UPDATE SET bundle_id = excluded.bundle_id" : " DO NOTHING")
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

  // MARK: Known lines

  /// Imports lines of which something is recorded, in one database transaction.
  private func importKnown(
    _ owners: [ImportedOwner], from source: EntrySource, isDryRun: Bool, terms: AccessTerms,
    at now: Timestamp
  ) async throws -> [ImportVerdict] {
    let (verdicts, channels) = try await database.withTransaction(
      isolation: isDryRun ? .repeatableRead : .readCommitted, readOnly: isDryRun
    ) { transaction -> ([ImportVerdict], Set<Bell.Channel>) in
      var reader = FamilyReader(isLocking: !isDryRun)
      try await reader.read(Set(owners.map(\.line)), in: transaction)
      let families = reader.families
      // Asked for again, and all at once: one may have been erased since the look at the chunk.
      if !isDryRun {
        _ = try await Self.hold(Set(owners.filter(\.hasSource).map(\.account)), in: transaction)
      }
      var accounts = try await Self.accountKeys(
        from: transaction.query(Self.select(accounts: owners.map(\.accountID))))
      var verdicts: [ImportVerdict] = []
      var news: [(owner: ImportedOwner, account: AccountKey)] = []
      for owner in owners {
        let family = families.first { $0.members[owner.line] != nil }
        let account = accounts[owner.account]
        let judged = family?.verdict(on: owner, of: account)
        var verdict = judged?.verdict ?? .recorded
        if let other = judged?.other {
          let known = try await KnownAccount.accounts(
            from: transaction.query(KnownAccount.select([other, account ?? other])))
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
          key = try await createAccount(owner.accountID, at: now, in: transaction).key
          accounts[owner.account] = key
        }
        news.append((owner, key))
      }
      guard !news.isEmpty else {
        await transaction.rollBack()
        return (verdicts, [])
      }
      let placements = news.map {
        LinePlacement(account: $0.account, line: $0.owner.line, boughtUntil: $0.owner.asOf)
      }
      let touched = families.filter { family in
        placements.contains { family.members[$0.line] != nil }
      }
      let (recording, writes) = try await record(
        Arrival(evidence: [], linePlacements: placements, source: source),
        on: LockedLines(families: touched, evidence: []), catalogue: terms.catalogue, at: now,
        in: transaction)
      var orders = OrderMatching(recording: recording, terms: terms, now: now)
      try await orders.matchDecided(in: self, transaction)
      let consequences = try await consequences(
        of: recording, orders: orders.changes, terms: terms, at: now, in: transaction)
      let waiting = touched.filter { $0.line.history.transactions.isEmpty }
        .flatMap(\.members.keys).sorted()
      try await transaction.commit(
        with: writes + orders.statements + consequences.statements
          + news.compactMap { Self.insertSource($0.owner, of: $0.account) }
          + Self.insertApps(news.map(\.owner), unheard: Set(waiting))
          + (waiting.isEmpty ? [] : [Job.insertPolls(of: waiting, at: now)]))
      return (verdicts, consequences.channels.union([.jobs]))
    }
    bell.ring(channels)
    return verdicts
  }

  // MARK: Asking Apple

  /// What an import named for asking Apple about a line.
  package struct ImportedSource: Hashable, Sendable {
    package var transactionID: TransactionID?
    package var receipt: String?
  }

  static func selectImportedSource(_ line: LineID) -> SQL {
    """
    SELECT transaction_id, receipt_data FROM tenure.imported_source
    WHERE environment = \(line.environment)
      AND original_transaction_id = \(line.originalTransactionID)
    """
  }

  static func importedSource(from rows: Rows) throws -> ImportedSource? {
    try rows.decodeFirst(TransactionID?.self, String?.self).map {
      ImportedSource(transactionID: $0, receipt: $1)
    }
  }
}

extension Job {
  /// Puts polls of lines into the queue of which Apple was never heard: due at once, and behind
  /// everything that somebody waits for.
  static func insertPolls(of lines: [LineID], at now: Timestamp) -> SQL {
    let keys = lines.map { Key.pollLine($0) }
    return """
      INSERT INTO tenure.job (kind, subject, queue, priority, run_at, created_at)
      SELECT \(Kind.pollLine), subject, queue, \(RenewalPlan.quiet), \(now), \(now)
      FROM unnest(\(keys.map(\.subject)), \(keys.map(\.queue)))
        AS line (subject, queue)
      ON CONFLICT (kind, subject) DO UPDATE SET \(reset) WHERE tenure.job.discarded_at IS NOT NULL
      """
  }
}

/// What another backend says of a line: whose it is.
package struct ImportedOwner: Hashable, Sendable {
  package var line: LineID
  package var accountID: String
  /// When it was true: what was bought until then is the account's.
  package var asOf: Timestamp
  /// The app that it was bought in, where several are served.
  package var bundleID: String?
  /// A transaction of the line, to ask Apple with.
  package var transactionID: TransactionID?
  /// A receipt that lists the line, in base64.
  package var receipt: String?

  package init(
    line: LineID, accountID: String, asOf: Timestamp, bundleID: String? = nil,
    transactionID: TransactionID? = nil, receipt: String? = nil
  ) {
    self.line = line
    self.accountID = accountID
    self.asOf = asOf
    self.bundleID = bundleID
    self.transactionID = transactionID
    self.receipt = receipt
  }

  /// The account, compared byte by byte.
  var account: AccountID { AccountID(accountID) }

  /// Whether it names anything to ask Apple with.
  var hasSource: Bool { transactionID != nil || receipt != nil }
}

/// What came of importing the owner of a line.
package enum ImportVerdict: Hashable, Sendable {
  /// It is recorded now, or would be.
  case recorded
  /// It was known; nothing is recorded.
  case known
  /// Tenure has it that the line is this account's; nothing is recorded.
  case ownedByAnotherAccount(String)
  /// The person was erased; nothing is recorded.
  case accountErased
}

/// How far Apple has confirmed what was imported.
package struct ImportProgress: Hashable, Sendable {
  /// The lines that were imported.
  package var lines = 0
  /// Those of which Apple has told a charge.
  package var verified = 0
  /// Those about which Apple is still to be asked.
  package var waiting = 0
  /// Those of which Apple tells nothing; each with why when it was given up.
  package var unverifiable = 0

  package init() {}
}

/// An imported line of which Apple has told nothing yet.
package struct UnverifiedImport: Hashable, Sendable {
  package var line: LineID
  package var accountID: String
  /// When Apple was given up; nil: it is still to be asked.
  package var givenUpAt: Timestamp?
  /// What was said the last time, if it was asked.
  package var reason: String?
}

extension StoredFamily {
  /// The account that the whole line is for, before or beside what Apple tells of it.
  var importedFor: AccountKey? { line.history.linePlacements.last?.account }

  /// Whether Apple was never heard of the line, though an import says whose it is.
  var awaitsApple: Bool { line.history.transactions.isEmpty && importedFor != nil }

  /// What an import of the line comes to.
  func verdict(on owner: ImportedOwner, of account: AccountKey?) -> (
    verdict: ImportVerdict, other: AccountKey?
  ) {
    let placement = account.map {
      LinePlacement(account: $0, line: owner.line, boughtUntil: owner.asOf)
    }
    // Whatever has become of it since.
    if let placement, line.history.says(.linePlacement(placement)) { return (.known, nil) }
    let rule = rule
    let latest = rule.charges.latestPosition.map { (rule.charges[$0], rule.decisions[$0]) }
    let holder =
      latest.map { $0.1.isProvisional ? nil : $0.1.owner }
      ?? (line.history.transactions.isEmpty ? importedFor : nil)
    if let holder, holder != account { return (.ownedByAnotherAccount(""), holder) }
    // What Apple has told of the present needs no word of the past.
    if let latest, holder != nil, latest.0.end.map({ $0 > owner.asOf }) ?? true {
      return (.known, nil)
    }
    return (.recorded, nil)
  }
}
