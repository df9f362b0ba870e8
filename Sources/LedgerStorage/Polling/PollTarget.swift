package import Foundation
import Postgres
import Subscriptions

/// The app and receipts with which Apple can be asked about original transactions.
package struct PollTarget: Hashable, Sendable {
  package enum Receipt: Hashable, Sendable {
    case submission(UUID)
    /// A version 1 notification, whose body contains the receipt.
    case notification(String)
  }

  /// Nil if unknown, as for imports without it.
  package var bundleID: String?
  /// Best first; any of them may have been erased or pruned.
  package var receipts: [Receipt]

  package init(bundleID: String?, receipt: Receipt? = nil) {
    self.bundleID = bundleID
    receipts = receipt.map { [$0] } ?? []
  }
}

extension PollTarget {
  /// Stores the source for the original transactions of verified evidence.
  ///
  /// The latest receipt replaces an earlier one, unless its sender does not own the latest charge:
  /// the owner's receipt must remain when another account that submitted one is erased. Evidence
  /// without a receipt keeps the stored one. The original transactions are already locked, so
  /// concurrent recordings can't deadlock here.
  ///
  /// - Parameter others: Original transactions whose latest charge the receipt's sender doesn't
  ///   own.
  func upsert(for evidence: [Evidence], ofOthers others: Set<OriginalTransactionKey> = []) -> [SQL]
  {
    let lines = Set(evidence.map(\.line)).sorted()
    guard !lines.isEmpty, let bundleID else { return [] }
    guard let receipt = receipts.first else {
      return lines.map { "(\($0.environment), \($0.originalTransactionID), \(bundleID))" }.rowLists
        .map { rows in
          """
          INSERT INTO tenure.poll_target AS known (environment, original_transaction_id,
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
    func upsert(_ lines: [OriginalTransactionKey], where condition: SQL) -> [SQL] {
      lines.map { line in
        """
        (\(line.environment), \(line.originalTransactionID), \(bundleID), \(submission),
          \(notification))
        """
      }.rowLists.map { rows in
        """
        INSERT INTO tenure.poll_target AS known (environment, original_transaction_id, bundle_id,
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

  /// Removes references to receipts of submissions about to be erased.
  static func forget(_ submissions: [UUID], on lines: [OriginalTransactionKey]) -> SQL {
    """
    UPDATE tenure.poll_target SET receipt_submission_id = NULL
    WHERE environment IN ('production', 'sandbox')
      AND original_transaction_id = ANY(\(lines.map(\.originalTransactionID)))
      AND receipt_submission_id = ANY(\(submissions))
    """
  }

  /// Selects the sources of original transactions, for ``init(from:)``.
  ///
  /// Includes submissions that claimed charges, the owner's first, because the stored receipt may
  /// have been erased.
  static func select(_ lines: [OriginalTransactionKey]) -> [SQL] {
    lines.flatMap { line -> [SQL] in
      [
        """
        SELECT bundle_id, receipt_submission_id, receipt_notification_id
        FROM tenure.poll_target
        WHERE \(line.condition)
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

  /// Claiming submissions to consider when looking for a receipt that still exists.
  private static let mostClaims = 10

  /// Merges the sources of linked original transactions, the first one's first.
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
