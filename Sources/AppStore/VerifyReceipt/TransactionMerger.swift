import Subscriptions

import struct Foundation.UUID

/// Merges all entries for a transaction into one record, in which current data takes precedence,
/// field by field, over the receipt's own; their order and number don't matter.
struct TransactionMerger {
  let environment: Environment
  let requestDate: Timestamp
  private var entries: [TransactionKey: Entries] = [:]

  private struct Entries {
    var current: [ReceiptItem] = []
    var archived: [ReceiptItem] = []
    var archivedAsOf: Timestamp?
  }

  struct Result {
    var records: [TransactionRecord] = []  // By purchase date
    /// Transactions without an expiry that can't be distinguished from permanent purchases.
    var incomplete: [UnreadableRecord] = []
    var unusableAppAccountTokens = 0
  }

  init(environment: Environment, requestDate: Timestamp) {
    (self.environment, self.requestDate) = (environment, requestDate)
  }

  mutating func add(current item: ReceiptItem) {
    entries[item.key(in: environment), default: Entries()].current.append(item)
  }

  mutating func add(archived item: ReceiptItem, asOf: Timestamp) {
    let key = item.key(in: environment)
    let latest = max(entries[key]?.archivedAsOf ?? asOf, asOf)
    entries[key, default: Entries()].archived.append(item)
    entries[key]?.archivedAsOf = latest
  }

  /// Sets aside transactions without an expiry whose product expires in other transactions: trimmed
  /// payloads contain them, and they would look like permanent purchases.
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

  private func transaction(_ key: TransactionKey, _ entries: Entries) -> TransactionRecord? {
    let archived = ReceiptItem.joining(entries.archived)
    guard var item = ReceiptItem.joining(entries.current) else {
      guard let archived, let asOf = entries.archivedAsOf else { return nil }
      // The receipt may be outdated, so a missing cancellation says nothing.
      return TransactionRecord(archived, key: key, asOf: asOf, otherwise: .notSaid)
    }
    if let archived { item.fill(from: archived) }
    return TransactionRecord(item, key: key, asOf: requestDate, otherwise: .notMentioned)
  }
}
