import AppStore
package import Foundation
package import LedgerStorage
package import Subscriptions

/// The status of a submission, as its sender sees it.
package enum SubmissionAnswer: Sendable {
  case verified(Verified)
  /// Stored, and being decided or waiting for Apple; without `retryAt` retries have stopped, and
  /// the entitlements, those until then, are nil if provisional access is off.
  case pending(
    id: UUID, retryAt: Timestamp?, problem: SubmissionProblem?, entitlements: [Entitlement]?)
  case rejected(id: UUID, problem: SubmissionProblem)

  package struct Verified: Sendable {
    package var id: UUID
    package var environment: Environment
    /// The transactions that the submission claimed.
    package var transactions: [ChargeReport]
    package var order: StoredOrder?
    package var warnings: [SubmissionWarning]
    package var entitlements: [Entitlement]
  }
}

package struct SubmissionRequest: Sendable {
  package var accountID: String
  package var payload: SubmissionPayload
  package var transactionID: TransactionID?
  package var orderID: UUID?
  /// Whether to claim every purchase in a receipt; all signed transactions are claimed anyway.
  package var isRestore: Bool
  package var bundleID: String?

  package init(
    accountID: String, payload: SubmissionPayload, transactionID: TransactionID? = nil,
    orderID: UUID? = nil, isRestore: Bool = false, bundleID: String? = nil
  ) {
    (self.accountID, self.payload, self.transactionID) = (accountID, payload, transactionID)
    (self.orderID, self.isRestore, self.bundleID) = (orderID, isRestore, bundleID)
  }

  /// The receipt, without the wrapper of Unity apps, which Apple does not accept.
  package static func receiptData(in text: String) -> String { UnityReceipt.unwrapping(text) }
}
