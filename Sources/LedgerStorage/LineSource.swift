package import Foundation
import Postgres
import Subscriptions

/// What Apple can be asked about lines with: the app, and the last receipt that tells of them.
package struct LineSource: Hashable, Sendable {
  /// Where a receipt is kept.
  package enum Receipt: Hashable, Sendable {
    case submission(UUID)
    /// One of version 1, whose body has it.
    case notification(String)
  }

  /// Nil where lines were recorded before apps were noted.
  package var bundleID: String?
  package var receipt: Receipt?

  package init(bundleID: String?, receipt: Receipt? = nil) {
    self.bundleID = bundleID
    self.receipt = receipt
  }
}

extension LineSource {
  /// Notes it for the lines that something verified tells of.
  ///
  /// The latest receipt takes the place of an earlier one; what came without a receipt leaves it.
  /// The lines are locked already, so that nobody waits in a circle.
  func upsert(for evidence: [Evidence]) -> [SQL] {
    let lines = Set(evidence.map(\.line)).sorted()
    guard !lines.isEmpty, let bundleID else { return [] }
    guard let receipt else {
      return lines.map { "(\($0.environment), \($0.originalTransactionID), \(bundleID))" }.rowLists
        .map { rows in
          """
          INSERT INTO tenure.line_source AS known (environment, original_transaction_id,
            bundle_id)
          VALUES \(rows)
          ON CONFLICT (environment, original_transaction_id)
          DO UPDATE SET bundle_id = excluded.bundle_id
          WHERE known.bundle_id IS DISTINCT FROM excluded.bundle_id
          """
        }
    }
    let (submission, notification): (UUID?, String?) =
      switch receipt {
      case .submission(let id): (id, nil)
      case .notification(let id): (nil, id)
      }
    return lines.map { line in
      """
      (\(line.environment), \(line.originalTransactionID), \(bundleID), \(submission),
        \(notification))
      """
    }.rowLists.map { rows in
      """
      INSERT INTO tenure.line_source (environment, original_transaction_id, bundle_id,
        receipt_submission_id, receipt_notification_id)
      VALUES \(rows)
      ON CONFLICT (environment, original_transaction_id)
      DO UPDATE SET bundle_id = excluded.bundle_id,
        receipt_submission_id = excluded.receipt_submission_id,
        receipt_notification_id = excluded.receipt_notification_id
      """
    }
  }

  /// Reads what is noted of some lines; ``init(from:)`` reads the results.
  ///
  /// Lines from before apps and receipts were noted have a claim, which names its submission.
  static func select(_ lines: [LineID]) -> [SQL] {
    lines.flatMap { line -> [SQL] in
      [
        """
        SELECT bundle_id, receipt_submission_id, receipt_notification_id
        FROM tenure.line_source
        WHERE environment = \(line.environment)
          AND original_transaction_id = \(line.originalTransactionID)
        """,
        """
        SELECT submission_id FROM tenure.claim
        WHERE environment = \(line.environment)
          AND original_transaction_id = \(line.originalTransactionID)
        ORDER BY number DESC LIMIT 1
        """,
      ]
    }
  }

  /// What is known together of lines that Apple links, the first one's word first.
  init(from results: [Rows]) throws {
    self.init(bundleID: nil)
    var claimed: UUID?
    for (index, rows) in results.enumerated() {
      guard index.isMultiple(of: 2) else {
        if claimed == nil { claimed = try rows.decodeFirst(UUID?.self) ?? nil }
        continue
      }
      guard
        let (bundleID, submission, notification) = try rows.decodeFirst(
          String?.self, UUID?.self, String?.self)
      else { continue }
      self.bundleID = self.bundleID ?? bundleID
      receipt =
        receipt ?? submission.map { .submission($0) } ?? notification.map { .notification($0) }
    }
    receipt = receipt ?? claimed.map { .submission($0) }
  }
}
