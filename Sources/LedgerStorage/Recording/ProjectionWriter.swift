import Foundation
import Postgres
import Subscriptions

/// The statements that bring a family's tables from what is stored to what a line has become.
///
/// One table after the other, each by a method, each row only if it changed.
struct FamilyWrites {
  private let stored: StoredFamily
  private let holdings: HoldingChange
  private let storedRows: [TransactionKey: TransactionRow]
  /// What reports count now of the rows that are stored.
  private let counted: [TransactionKey: CountedCharge]
  private let line: Line
  private let rule: OwnershipRule
  private let rows: [TransactionRow]
  private let confirmations: [LineID: StoredLine.Confirmation]
  private let entries: [SourcedEntry]
  private let names: [AccountKey: String]
  private let catalogue: Catalogue?

  init(_ recorded: RecordedFamily, source: EntrySource, catalogue: Catalogue) {
    self.init(
      stored: recorded.before, line: recorded.line, rule: recorded.rule,
      entries: recorded.entries.map { SourcedEntry(entry: $0, source: source) },
      holdings: recorded.holdings, names: recorded.names, catalogue: catalogue)
  }

  /// - Parameters:
  ///   - names: The account ids behind the keys of all accounts that own something here.
  ///   - catalogue: The products by which movements are derived; nil leaves movements as they are.
  ///   - written: The rows in the tables, where they are not those of `stored`.
  init(
    stored: StoredFamily, line: Line, rule: OwnershipRule, entries: [SourcedEntry],
    holdings: HoldingChange, names: [AccountKey: String], catalogue: Catalogue?,
    over written: StoredFamily? = nil
  ) {
    self.stored = stored
    self.holdings = holdings
    storedRows = stored.rows
    counted = (written ?? stored).countedCharges
    self.line = line
    self.rule = rule
    rows = TransactionRow.rows(of: line, rule: rule)
    confirmations = stored.members.compactMapValues {
      Self.confirmation(of: $0, in: line, after: entries)
    }
    self.entries = entries
    self.names = names
    self.catalogue = catalogue
  }

  /// The entries, chained to those before, and all that follows from them, in an order that every
  /// foreign key allows.
  ///
  /// - Throws: Whatever the encoder of entries throws.
  func statements() throws -> [SQL] {
    var inserts: [SQL] = []
    var heads: [LineID: StoredLine.Head] = [:]
    for (id, entries) in Dictionary(grouping: entries, by: \.entry.line)
      .sorted(by: { $0.key < $1.key })
    {
      var chain: [StoredEntry] = []
      var hash = stored.members[id]?.head.hash
      for sourced in entries {
        let next = try StoredEntry(sourced.entry, source: sourced.source, after: hash)
        hash = next.hash
        chain.append(next)
      }
      inserts.append(StoredEntry.insert(chain, line: id))
      heads[id] = chain.last.map {
        StoredLine.Head(number: $0.number, hash: $0.hash, recordedAt: $0.recordedAt)
      }
    }
    return inserts + projections(heads: heads)
  }

  /// Only what follows from the entries.
  ///
  /// - Parameter heads: Where the chains of the lines end, as far as entries were added to them.
  /// - Returns: The statements, in order.
  func projections(heads: [LineID: StoredLine.Head]) -> [SQL] {
    guard !entries.isEmpty else { return [] }
    // Each line of a family shows what all of it comes to, whichever of them got an entry.
    let heads = stored.members.mapValues(\.head).merging(heads) { $1 }
    return heads.sorted { $0.key < $1.key }.map { headUpdate($0.key, $0.value) }
      + transactionUpserts() + entryProjections() + lookups() + holdingWrites()
      + movementWrites()
  }

  /// Brings the line's row up to date: the head of its chain, and its current state.
  private func headUpdate(_ id: LineID, _ head: StoredLine.Head) -> SQL {
    let confirmation = confirmations[id]
    let state = LineSummary(line: line, rule: rule)
    return """
      UPDATE tenure.original_transaction SET
        head_number = \(head.number), head_hash = \(head.hash),
        head_recorded_at = \(head.recordedAt),
        confirmed_as_of = \(confirmation?.asOf), confirmed_number = \(confirmation?.number ?? 0),
        latest_charged_at = \(state.latest?.date), latest_owner_key = \(state.latestOwner),
        paid_through = \(state.paidThrough), auto_renew_product_id = \(state.autoRenewProductID)
      WHERE environment = \(id.environment)
        AND original_transaction_id = \(id.originalTransactionID)
      """
  }

  /// The line's confirmation after these entries: the latest answer that listed everything.
  ///
  /// It stands for the dates in the rows up to its entry. Where it would raise one of those, since
  /// something of an earlier date was learned of a transaction later, there is none, and each row
  /// has its own dates.
  private static func confirmation(
    of member: StoredLine, in line: Line, after entries: [SourcedEntry]
  ) -> StoredLine.Confirmation? {
    var confirmation = member.confirmation
    for entry in entries.map(\.entry) where entry.line == member.id {
      guard case .confirmation(let asOf) = entry.content,
        confirmation.map({ $0.asOf <= asOf }) ?? true
      else { continue }
      confirmation = StoredLine.Confirmation(asOf: asOf, number: entry.number)
    }
    guard let confirmation else { return nil }
    let isExact = line.history.transactions.allSatisfy { transaction in
      transaction.key.line != member.id || transaction.confirmed(by: confirmation) == transaction
    }
    return isExact ? confirmation : nil
  }

  // MARK: Projections

  private func transactionUpserts() -> [SQL] {
    rows.flatMap { row -> [SQL] in
      let key = row.transaction.key
      if var known = storedRows[key] {
        // What the line's confirmation says of the row need not be written into it.
        known.transaction = known.transaction.confirmed(by: confirmations[key.line])
        if known == row { return [] }
      }
      let fulfilment = stored.members[key.line]?.fulfilments[key]
      return [row.upsert]
        + ChargeSums.change(
          of: key, from: counted[key], to: CountedCharge(row, fulfilment))
    }
  }

  /// The rows that follow from one entry each.
  private func entryProjections() -> [SQL] {
    entries.flatMap { sourced -> [SQL] in
      let entry = sourced.entry
      return switch entry.content {
      case .evidence(.renewalStatus(let status, _)):
        [
          StoredLine.StatusRow(
            number: entry.number, status: status,
            tokenHolder: line.history.holder(of: status.appAccountToken)
          ).insert(line: entry.line)
        ]
      case .evidence(.link(let id, let other)):
        [StoredLine.insertLink(from: id, to: other), StoredLine.insertLink(from: other, to: id)]
      case .act(let act):
        [
          StoredLine.ActRow(
            recorded: RecordingOrder(at: entry.recordedAt, number: entry.number), act: act
          ).insert(source: sourced.source)
        ]
      case .evidence(.transaction), .confirmation, .ownership: []
      }
    }
  }

  /// The lines of accounts; those of transactions and line items were written when they were
  /// looked up (``LineLookups``).
  private func lookups() -> [SQL] {
    let newcomers = Set(entries.flatMap(\.entry.accounts)).union(
      holdings.isOfNewlyLinked ? stored.accounts : [])
    return newcomers.sorted().flatMap { account in
      stored.members.keys.sorted().map { StoredLine.insertLookup(account, line: $0) }
    }
  }

  private func holdingWrites() -> [SQL] {
    let (before, after) = (holdings.before, holdings.after)
    guard !holdings.isOfNewlyLinked else {
      // Lines that become one were pruned one by one, and each had charges that are aliases now:
      // whatever is stored of them goes.
      return stored.members.keys.sorted().flatMap { line in
        names.values.sorted().map { HoldingRow.deleteAll(name: $0, line: line) }
      } + after.sorted().compactMap { row in names[row.account].map(row.upsert) }
    }
    let removed = before.filter { row in !after.contains { $0.hasSameKey(as: row) } }
    return removed.sorted().compactMap { row in names[row.account].map(row.delete) }
      + after.subtracting(before).sorted()
      .compactMap { row in names[row.account].map(row.upsert) }
  }

  /// The journal's difference, most often in one statement.
  ///
  /// What was known is worked out anew, by today's catalogue, and not read: a survey sees to what
  /// an older one left.
  private func movementWrites() -> [SQL] {
    guard let catalogue, let recordedAt = entries.map(\.entry.recordedAt).max() else { return [] }
    let after = MovementRow.rows(of: line, rule: rule, in: catalogue)
    guard !holdings.isOfNewlyLinked else {
      return MovementRow.replaceAll(of: stored.members.keys, by: after, at: recordedAt)
    }
    let before = MovementRow.rows(of: stored.line, rule: stored.rule, in: catalogue)
    return MovementRow.write(from: before, to: after, at: recordedAt)
  }
}

/// An entry with where it comes from.
struct SourcedEntry: Sendable {
  var entry: LedgerEntry
  var source: EntrySource
}

extension LedgerEntry {
  /// The accounts that the entry gives something to do with its line.
  var accounts: [AccountKey] {
    switch content {
    case .act(.claim(let claim)): [claim.account]
    case .act(.placement(let placement)): [placement.account].compactMap(\.self)
    case .act(.linePlacement(let placement)): [placement.account]
    case .ownership(let change): [change.decision.owner].compactMap(\.self)
    case .evidence, .confirmation: []
    }
  }
}
