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
    let (submission, notification): (UUID?, String?) =
      switch receipts.first {
      case .submission(let id): (id, nil)
      case .notification(let id): (nil, id)
      case nil: (nil, nil)
      }
    func upsert(
      _ lines: [OriginalTransactionKey], settingReceipt receipt: SQL, where condition: SQL
    ) -> [SQL] {
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
        DO UPDATE SET bundle_id = excluded.bundle_id\(receipt)
        WHERE \(condition)
        """
      }
    }
    guard !receipts.isEmpty else {
      return upsert(
        lines, settingReceipt: "", where: "known.bundle_id IS DISTINCT FROM excluded.bundle_id")
    }
    let receipt: SQL = """
      , receipt_submission_id = excluded.receipt_submission_id,
      receipt_notification_id = excluded.receipt_notification_id
      """
    return upsert(lines.filter { !others.contains($0) }, settingReceipt: receipt, where: "true")
      + upsert(
        lines.filter(others.contains), settingReceipt: receipt,
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

  /// Reads the sources of linked original transactions, the first one's first.
  ///
  /// Includes submissions that claimed charges, the owner's first, because the stored receipt may
  /// have been erased.
  static func query(_ lines: [OriginalTransactionKey]) -> Query<PollTarget> {
    Query.all(
      lines.map { line in
        Query(
          Query(
            """
            SELECT bundle_id, receipt_submission_id, receipt_notification_id
            FROM tenure.poll_target WHERE \(line.condition)
            """
          ) { try $0.decodeFirst(String?.self, UUID?.self, String?.self) },
          Query(
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
            """
          ) { try $0.decode(UUID.self) })
      }
    ).map { sources in
      var target = PollTarget(bundleID: nil)
      for case ((let bundleID, let submission, let notification)?, _) in sources {
        target.bundleID = target.bundleID ?? bundleID
        if let submission { target.receipts.append(.submission(submission)) }
        if let notification { target.receipts.append(.notification(notification)) }
      }
      for claim in sources.flatMap(\.1).map(Receipt.submission)
      where !target.receipts.contains(claim) {
        target.receipts.append(claim)
      }
      return target
    }
  }

  /// Claiming submissions to consider when looking for a receipt that still exists.
  private static let mostClaims = 10
}
