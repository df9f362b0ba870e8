import Foundation
import Postgres
package import Subscriptions

extension Ledger {
  /// Reads a line with all that Apple links to it; nil if nothing is known of it.
  ///
  /// - Parameters:
  ///   - id: The line.
  ///   - claimant: An account that may claim something of it: its orders are read, too.
  ///   - knownAt: Only what was recorded by then counts; nil: everything.
  /// - Returns: The family.
  /// - Throws: What the database says.
  package func family(
    of id: LineID, claimant: AccountKey? = nil, knownAt: Timestamp? = nil
  ) async throws -> RecordedFamily? {
    try await database.withTransaction(isolation: .repeatableRead, readOnly: true) { transaction in
      var reader = FamilyReader(isLocking: false)
      try await reader.read([id], in: transaction)
      guard let stored = reader.families.first else { return nil }
      var line = stored.line
      if let knownAt {
        line = Line(members: stored.members.keys)
        for member in stored.members.keys.sorted() {
          let entries = try await entries(of: member, in: transaction)
          for entry in entries where entry.recordedAt <= knownAt { line.fold(try entry.entry()) }
        }
        line.updateContext { $0.tokenHolders = stored.line.history.tokenHolders }
      }
      let context = try await context(
        of: stored, claimant: claimant, evidence: [], in: transaction)
      line.updateContext(context.apply)
      return RecordedFamily(
        stored, line: line, rule: OwnershipRule(recordedOn: line), changes: [],
        names: context.names)
    }
  }

  /// The lines on which a transaction is known, in whichever environment.
  package func lines(of transaction: TransactionID) async throws -> [LineID] {
    try await database.query(
      """
      SELECT environment, original_transaction_id FROM tenure.transaction_line
      WHERE transaction_id = \(transaction)
      ORDER BY environment, original_transaction_id
      """
    ).decode(Environment.self, OriginalTransactionID.self).map { LineID($0, $1) }
  }

  /// The environments in which an original transaction is known.
  package func environments(of id: OriginalTransactionID) async throws -> [Environment] {
    try await database.query(
      """
      SELECT environment FROM tenure.original_transaction
      WHERE original_transaction_id = \(id) AND head_number > 0
      ORDER BY environment
      """
    ).decode(Environment.self)
  }

  /// The entries of a line, as they are stored, in order.
  func entries(of line: LineID, in transaction: Transaction) async throws -> [StoredEntry] {
    try await transaction.query(StoredEntry.select(line)).decodeEntries(line: line)
  }

  /// The entries of a line with their sources: its history, for people.
  package func history(of line: LineID) async throws -> [(entry: LedgerEntry, source: EntrySource)]
  {
    try await database.query(StoredEntry.select(line)).decodeEntries(line: line)
      .map { (try $0.entry(), $0.source) }
  }

  /// The account ids behind keys; a key that nobody has is left out.
  package func accountIDs(of keys: Set<AccountKey>) async throws -> [AccountKey: String] {
    guard !keys.isEmpty else { return [:] }
    return try Self.names(from: await database.query(Self.select(names: keys)))
  }

  func names(of accounts: Set<AccountKey>, in transaction: Transaction) async throws
    -> [AccountKey: String]
  {
    guard !accounts.isEmpty else { return [:] }
    return try Self.names(from: await transaction.query(Self.select(names: accounts)))
  }

  private static func select(names keys: Set<AccountKey>) -> SQL {
    """
    SELECT account_key, account_id FROM tenure.account_by_key
    WHERE account_key = ANY(\(keys.sorted()))
    """
  }

  private static func names(from rows: Rows) throws -> [AccountKey: String] {
    Dictionary(
      uniqueKeysWithValues: try rows.decode(AccountKey.self, String.self).map { ($0, $1) })
  }
}

extension StoredEntry {
  static func select(_ line: LineID) -> SQL {
    """
    SELECT number, recorded_at, kind, evidence_date, source, source_id, format, body, hash
    FROM tenure.ledger_entry
    WHERE environment = \(line.environment)
      AND original_transaction_id = \(line.originalTransactionID)
    ORDER BY number
    """
  }
}

extension Rows {
  fileprivate func decodeEntries(line: LineID) throws -> [StoredEntry] {
    try decode(
      Int.self, Timestamp.self, String.self, Timestamp?.self, EntrySource.Kind.self, String?.self,
      Int16.self, String.self, [UInt8].self
    ).map { number, recordedAt, kind, evidenceDate, source, sourceID, format, body, hash in
      StoredEntry(
        line: line, number: number, recordedAt: recordedAt, kind: kind,
        evidenceDate: evidenceDate, source: EntrySource(source, id: sourceID), format: format,
        body: body, hash: hash)
    }
  }
}
