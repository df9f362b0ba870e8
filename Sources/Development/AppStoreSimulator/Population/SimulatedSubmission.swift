package import Subscriptions

/// What an app sends to its server: a receipt, for the account that is logged in.
package struct SimulatedSubmission: Hashable, Sendable {
  /// When it arrives; the receipt can be older, for apps keep what they could not send.
  package let at: Timestamp
  package let account: AppAccountID
  package let device: DeviceID
  package let environment: Environment
  package let bundleID: String
  package let receiptData: String
  /// The purchase that the app has just seen; nil for "here is my receipt".
  package let transactionID: TransactionID?
  /// The customer asked for a restore.
  package let restores: Bool
}
