package import Subscriptions

/// A submission by an app: a receipt, for the account that is logged in.
package struct SimulatedSubmission: Hashable, Sendable {
  /// The time of arrival; the receipt can be older, because apps keep receipts that they could not
  /// send.
  package let at: Timestamp
  package let account: AppAccountID
  package let device: DeviceID
  package let environment: Environment
  package let bundleID: String
  package let receiptData: String
  /// The new purchase; nil if the app only sends its receipt.
  package let transactionID: TransactionID?
  package let restores: Bool
}
