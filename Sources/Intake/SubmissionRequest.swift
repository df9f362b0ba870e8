import AppStore
package import Foundation
package import LedgerStorage
package import Subscriptions

/// What an app server submits.
package struct SubmissionRequest: Sendable {
  package var accountID: String
  package var payload: SubmissionPayload
  package var transactionID: TransactionID?
  package var orderID: UUID?
  /// Whether the customer asked for everything that was ever bought.
  ///
  /// It changes nothing of signed data, each of which is selected anyway.
  package var isRestore: Bool
  package var bundleID: String?

  package init(
    accountID: String, payload: SubmissionPayload, transactionID: TransactionID? = nil,
    orderID: UUID? = nil, isRestore: Bool = false, bundleID: String? = nil
  ) {
    self.accountID = accountID
    self.payload = payload
    self.transactionID = transactionID
    self.orderID = orderID
    self.isRestore = isRestore
    self.bundleID = bundleID
  }

  /// The receipt in what was sent as one: Unity's apps send theirs in a wrapper, which Apple would
  /// refuse.
  package static func receiptData(in text: String) -> String { UnityReceipt.unwrapping(text) }
}
