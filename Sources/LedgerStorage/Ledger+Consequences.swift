import Postgres
import Subscriptions

extension Ledger {
  /// What follows from a recording beyond the tables of its lines: what is told to whom, when
  /// Apple is asked next, and what Apple is told.
  ///
  /// - Parameters:
  ///   - recording: What was recorded, with what was known before.
  ///   - orders: What became of orders by it.
  ///   - terms: By what it is judged what accounts may use.
  ///   - now: The recording date.
  ///   - known: Accounts that were locked and read already, as they are after the recording.
  ///   - transaction: The database transaction, which has locked the lines.
  /// - Returns: The statements that write it, for the caller to send with its own, and what to ring
  ///   after the commit.
  /// - Throws: What the database says.
  func consequences(
    of recording: Recording, orders: [OrderChange], terms: AccessTerms, at now: Timestamp,
    knowing known: [ToldAccount] = [], in transaction: Transaction
  ) async throws -> Consequences {
    let tellings = ownershipTellings(of: recording, at: now)
    var consequences =
      try await news(
        of: recording, orders: orders, terms: terms, at: now, knowing: known, in: transaction)
      + appointments(of: recording, at: now) + tellings
    if !tellings.isEmpty { consequences.channels.insert(.jobs) }
    return consequences
  }
}
