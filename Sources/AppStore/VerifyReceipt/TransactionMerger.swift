import Subscriptions

import struct Foundation.UUID

/// Makes one record of each transaction out of all entries on it.
///
/// What Apple knows now wins field by field over what the receipt held when it was made. The result
/// depends on the set of entries only, never on their order or number.
struct TransactionMerger {
  let environment: Environment
  let requestDate: Timestamp
  private var entries: [TransactionKey: Entries] = [:]

  private struct Entries {
    var current: [ReceiptItem] = []
    var archived: [ReceiptItem] = []
    var archivedAsOf: Timestamp?
  }

  /// Everything that could be made of the entries.
  struct Result {
    /// By purchase date.
    var records: [TransactionRecord] = []
    /// Transactions that cannot be told from others that never end.
    var incomplete: [UnreadableRecord] = []
    var unusableAppAccountTokens = 0
  }

  init(environment: Environment, requestDate: Timestamp) {
    self.environment = environment
    self.requestDate = requestDate
  }

  /// Adds what Apple knows now.
  mutating func add(current item: ReceiptItem) {
    entries[key(of: item), default: Entries()].current.append(item)
  }

  /// Adds what a receipt held that was made at `asOf`.
  mutating func add(archived item: ReceiptItem, asOf: Timestamp) {
    let key = key(of: item)
    var entry = entries.removeValue(forKey: key) ?? Entries()
    entry.archived.append(item)
    entry.archivedAsOf = max(entry.archivedAsOf ?? asOf, asOf)
    entries[key] = entry
  }

  /// A subscription's transaction without an expiry, which trimmed payloads have, would pass for a
  /// purchase for ever: it is set aside where another transaction shows that the product expires.
  func merged() -> Result {
    var result = Result()
    let transactions = entries.compactMap { key, entries in transaction(key, entries) }
    let expiring = Set(transactions.filter { $0.expiresDate != nil }.map(\.key.productID))
    for record in transactions {
      if record.expiresDate == nil, expiring.contains(record.key.productID) {
        result.incomplete.append(
          UnreadableRecord(
            list: "in_app and latest_receipt_info",
            reason: "expires_date is missing, though the product's other transactions have one",
            purchaseDate: record.purchaseDate))
      } else {
        result.records.append(record)
      }
    }
    result.records.sort { ($0.purchaseDate, $0.key) < ($1.purchaseDate, $1.key) }
    result.unusableAppAccountTokens = entries.values.count { entries in
      (entries.current + entries.archived).contains {
        $0.appAccountToken.map { UUID(uuidString: $0) == nil } ?? false
      }
    }
    return result
  }

  private func key(of item: ReceiptItem) -> TransactionKey {
    TransactionKey(
      line: LineID(environment, OriginalTransactionID(item.originalTransactionID)),
      transactionID: TransactionID(item.transactionID), productID: ProductID(item.productID))
  }

  private func transaction(_ key: TransactionKey, _ entries: Entries) -> TransactionRecord? {
    let archived = ReceiptItem.joining(entries.archived)
    guard var item = ReceiptItem.joining(entries.current) else {
      guard let archived, let asOf = entries.archivedAsOf else { return nil }
      // The receipt is as old as it is: that it names no cancellation says nothing.
      return TransactionRecord(archived, key: key, asOf: asOf, otherwise: .notSaid)
    }
    if let archived { item.fill(from: archived) }
    return TransactionRecord(item, key: key, asOf: requestDate, otherwise: .notMentioned)
  }
}
