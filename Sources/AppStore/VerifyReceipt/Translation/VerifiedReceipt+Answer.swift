import Subscriptions

extension VerifiedReceipt {
  /// Translates what Apple answered into evidence.
  ///
  /// Steps 1 and 2 of the rule "Which charges does a submission claim?": both lists merged, every
  /// transaction once, by purchase date. `answeredAt` stands in for a missing `request_date`.
  init(
    _ contents: ReceiptAnswer.Contents, status: Int, environment: Environment, bundleID: String,
    answeredAt: Timestamp
  ) {
    let requestDate = contents.receipts.elements.compactMap(\.requestDate).max() ?? answeredAt
    var merger = TransactionMerger(environment: environment, requestDate: requestDate)
    for item in contents.currentItems { merger.add(current: item) }
    for body in contents.receipts.elements {
      guard let asOf = body.archivedAsOf else { continue }
      for item in body.archivedItems { merger.add(archived: item, asOf: asOf) }
    }
    let merged = merger.merged()
    self.init(
      environment: environment, bundleID: bundleID, status: status, requestDate: requestDate,
      clockSkew: max(requestDate - answeredAt, .zero), records: merged.records,
      unreadable: (contents.faults + merged.incomplete).sorted(),
      unusableAppAccountTokens: merged.unusableAppAccountTokens)
    let latest = Dictionary(grouping: merged.records, by: \.key.line).mapValues { records in
      records.max { ($0.chargedAt, $0.key) < ($1.chargedAt, $1.key) }
    }
    for (originalTransactionID, entries) in contents.renewals {
      let line = LineID(environment, OriginalTransactionID(originalTransactionID))
      statuses[line] = RenewalStatus(
        entries, latest: latest[line] ?? nil, asOf: requestDate, isExpired: status == 21006)
    }
  }
}
