package import Foundation
import Postgres
import Subscriptions

/// The app that lines belong to, and receipts that list them: what Apple can be asked with.
package struct LineSource: Hashable, Sendable {
  /// Where a receipt is kept.
  package enum Receipt: Hashable, Sendable {
    case submission(UUID)
    /// One of version 1, whose body has it.
    case notification(String)
  }

  /// Nil if no evidence has named it, as on imported lines.
  package var bundleID: String?
  /// The receipts, the best one first.
  ///
  /// Any of them may have been erased or aged out.
  package var receipts: [Receipt]

  /// - Parameters:
  ///   - bundleID: The app.
  ///   - receipt: The one receipt that is known.
  package init(bundleID: String?, receipt: Receipt? = nil) {
    self.bundleID = bundleID
    receipts = receipt.map { [$0] } ?? []
  }
}

extension LineSource {
  /// Notes the source for the lines that something verified lists.
  ///
  /// The latest receipt replaces an earlier one, unless its sender owns nothing of the line: the
  /// owner's receipt stays when another account that submitted it is erased. Evidence that came
  /// without a receipt leaves the noted one. The lines are locked already, so that two recordings
  /// never wait for each other.
  ///
  /// - Parameters:
  ///   - evidence: What was verified.
  ///   - others: The lines whose latest charge the sender of the receipt does not own.
  /// - Returns: The statements.
  func upsert(for evidence: [Evidence], ofOthers others: Set<LineID> = []) -> [SQL] {
    let lines = Set(evidence.map(\.line)).sorted()
    guard !lines.isEmpty, let bundleID else { return [] }
    guard let receipt = receipts.first else {
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
    func upsert(_ lines: [LineID], where condition: SQL) -> [SQL] {
      lines.map { line in
        """
        (\(line.environment), \(line.originalTransactionID), \(bundleID), \(submission),
          \(notification))
        """
      }.rowLists.map { rows in
        """
        INSERT INTO tenure.line_source AS known (environment, original_transaction_id, bundle_id,
          receipt_submission_id, receipt_notification_id)
        VALUES \(rows)
        ON CONFLICT (environment, original_transaction_id)
        DO UPDATE SET bundle_id = excluded.bundle_id,
          receipt_submission_id = excluded.receipt_submission_id,
          receipt_notification_id = excluded.receipt_notification_id
        WHERE \(condition)
        """
      }
    }
    return upsert(lines.filter { !others.contains($0) }, where: "true")
      + upsert(
        lines.filter(others.contains),
        where: "known.receipt_submission_id IS NULL AND known.receipt_notification_id IS NULL")
  }

  /// The statement that lets lines do without the receipts of submissions that are erased.
  static func forget(_ submissions: [UUID], on lines: [LineID]) -> SQL {
    """
    UPDATE tenure.line_source SET receipt_submission_id = NULL
    WHERE environment IN ('production', 'sandbox')
      AND original_transaction_id = ANY(\(lines.map(\.originalTransactionID)))
      AND receipt_submission_id = ANY(\(submissions))
    """
  }

  /// Reads the sources of some lines; ``init(from:)`` reads the results.
  ///
  /// Submissions with claims on the line follow the noted receipt, the owner's first: that receipt
  /// may have been erased.
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
        SELECT c.submission_id
        FROM tenure.claim AS c
        JOIN tenure.original_transaction AS t USING (environment, original_transaction_id)
        WHERE c.environment = \(line.environment)
          AND c.original_transaction_id = \(line.originalTransactionID)
          AND c.submission_id IS NOT NULL
        GROUP BY c.submission_id
        ORDER BY coalesce(bool_or(c.account_key = t.latest_owner_key), false) DESC,
          max(c.number) DESC
        LIMIT \(mostClaims)
        """,
      ]
    }
  }

  /// How many submissions are looked at for one whose receipt is still there.
  private static let mostClaims = 10

  /// Joins the sources of lines that Apple links, the first line's first.
  init(from results: [Rows]) throws {
    self.init(bundleID: nil)
    var claimed: [Receipt] = []
    for (index, rows) in results.enumerated() {
      guard index.isMultiple(of: 2) else {
        claimed += try rows.decode(UUID.self).map { .submission($0) }
        continue
      }
      guard
        let (bundleID, submission, notification) = try rows.decodeFirst(
          String?.self, UUID?.self, String?.self)
      else { continue }
      self.bundleID = self.bundleID ?? bundleID
      if let submission { receipts.append(.submission(submission)) }
      if let notification { receipts.append(.notification(notification)) }
    }
    for receipt in claimed where !receipts.contains(receipt) { receipts.append(receipt) }
  }
}
