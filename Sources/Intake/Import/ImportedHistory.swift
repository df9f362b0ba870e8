package import AppStore
import Crypto
import Foundation
package import LedgerStorage
package import Subscriptions

/// Compares the owners in another backend's history with those of a policy.
///
/// A file has no submissions, tokens or orders: each account counts as submitting at once.
package struct ImportedHistory: Sendable {
  package struct Summary: Sendable {
    package var lines = 0
    /// Rows of other stores, and rows without transaction and receipt.
    package var withoutCharge = 0
    package var errors = 0

    package init() {}
  }

  /// Charges added to the temporary table at once, and the rows after which those found are added.
  private static let chunk = 2000

  private let rows: StagedRows
  private let policy: OwnershipPolicy
  private let catalogue: Catalogue
  private let now: Timestamp

  package init(rows: StagedRows, policy: OwnershipPolicy, catalogue: Catalogue, now: Timestamp) {
    self.rows = rows
    self.policy = policy
    self.catalogue = catalogue
    self.now = now
  }

  /// Reads a file; without `receipts`, those are errors.
  package func read(
    _ file: consuming RowFile, asOf moment: Timestamp, into summary: inout Summary,
    receipts: LocalReceiptVerifier?, report: (OwnerImport.RowError) -> Void,
    progress: (OwnerImport.Summary) -> Void
  ) async throws {
    var file = file
    var chunk: [StagedRows.Row] = []
    let encoder = JSONEncoder()
    while let row = try file.next() {
      summary.lines += 1
      switch row.values.flatMap({ HistoryRow.charges($0, asOf: moment, receipts: receipts) }) {
      case .failure(let fault):
        summary.errors += 1
        report(OwnerImport.RowError(line: row.line, fault: fault))
      case .success(let charges):
        if charges.isEmpty { summary.withoutCharge += 1 }
        for charge in charges {
          let body = String(decoding: try encoder.encode(charge), as: UTF8.self)
          chunk.append((charge.record.key.line, body))
        }
      }
      // Rows without a charge count, too: the database transaction must not be idle for long.
      if chunk.count >= Self.chunk || summary.lines.isMultiple(of: Self.chunk) {
        try await rows.add(chunk)
        chunk = []
        var shown = OwnerImport.Summary()
        (shown.lines, shown.errors, shown.bytesRead) = (
          summary.lines, summary.errors, file.bytesRead
        )
        progress(shown)
      }
    }
    try await rows.add(chunk)
  }

  package func compare(
    progress: (_ originalTransactions: Int) -> Void, report: (NamedDifference) throws -> Void
  ) async throws -> OwnershipComparison {
    var comparison = OwnershipComparison()
    let decoder = JSONDecoder()
    try await rows.forEach { line, texts in
      let charges = try texts.map { try decoder.decode(ImportedCharge.self, from: Data($0.utf8)) }
      let (count, differences) = differences(of: charges, line)
      comparison.add(differences.map(\.difference), among: count)
      for difference in differences { try report(difference) }
      progress(comparison.originalTransactions)
    }
    return comparison
  }

  private func differences(of imported: [ImportedCharge], _ id: OriginalTransactionKey)
    -> (charges: Int, differences: [NamedDifference])
  {
    var history = EvidenceHistory()
    var names: [AccountKey: String] = [:]
    var owners: [TransactionKey: AccountKey] = [:]
    let imported = imported.sorted { $0.record.chargedAt < $1.record.chargedAt }
    for (index, charge) in imported.enumerated() {
      let key = charge.record.key
      let account = AccountKey(id: charge.accountID)
      let recorded = RecordingOrder(at: charge.record.chargedAt, number: index + 1)
      names[account] = charge.accountID
      owners[key] = owners[key] ?? account
      history.add(charge.record, recorded: recorded)
      for status in charge.statuses { history.add(status) }
      history.add(
        .claim(
          Claim(account: account, transaction: key, receivedAt: charge.record.chargedAt)),
        recorded: recorded)
    }
    var decisions: [Charge.ID: OriginalTransaction.RecordedDecision] = [:]
    for charge in Charge.charges(in: history) {
      decisions[charge.id] = OriginalTransaction.RecordedDecision(
        decision: Decision(
          owner: owners[charge.id], rule: .submitter,
          renewal: RenewalEvidence(reason: .noEarlierCharge)), decidedAt: charge.date)
    }
    let line = OriginalTransaction(
      history: history, repeated: [:], decisions: decisions, heads: [id: imported.count])
    let differences = OwnershipDifference.differences(
      of: line, recorded: OwnershipRule(recordedOn: line), under: policy, in: catalogue, at: now)
    return (
      decisions.count,
      differences.map { difference in
        let owner = difference.owner.flatMap { names[$0] } ?? "no account"
        return NamedDifference(
          difference, names: names, explanation: "The file assigns it to “\(owner)”.")
      }
    )
  }
}

extension AccountKey {
  /// The same key for the same account ID, which no ledger has.
  fileprivate init(id: String) {
    self.init(rawValue: UUID(bytes: Array(SHA256.hash(data: Data(id.utf8)))))
  }
}
