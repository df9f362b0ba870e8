package import Foundation
package import Subscriptions

/// What an app server submits.
package struct SubmissionRequest: Sendable {
  package var accountID: String
  /// Base64, as the device has it.
  package var receiptData: String
  package var transactionID: TransactionID?
  package var orderID: UUID?
  /// Whether the customer asked for everything that was ever bought.
  package var isRestore: Bool
  package var bundleID: String?

  package init(
    accountID: String, receiptData: String, transactionID: TransactionID? = nil,
    orderID: UUID? = nil, isRestore: Bool = false, bundleID: String? = nil
  ) {
    self.accountID = accountID
    self.receiptData = receiptData
    self.transactionID = transactionID
    self.orderID = orderID
    self.isRestore = isRestore
    self.bundleID = bundleID
  }
}
