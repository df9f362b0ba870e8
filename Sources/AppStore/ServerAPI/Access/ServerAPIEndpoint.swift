import Subscriptions

/// One call of the App Store Server API, under Apple's name for it.
package enum ServerAPIEndpoint: String, CaseIterable, Sendable {
  case transactionInfo = "Get Transaction Info"
  case transactionHistory = "Get Transaction History"
  case subscriptionStatuses = "Get All Subscription Statuses"
  case appTransactionInfo = "Get App Transaction Info"
  case consumptionInformation = "Send Consumption Information"
  case notificationHistory = "Get Notification History"
  case renewalDateExtension = "Extend a Subscription Renewal Date"
  case appAccountToken = "Set App Account Token"
  case orderLookup = "Look Up Order ID"
  case refundHistory = "Get Refund History"
  case massExtension = "Extend Subscription Renewal Dates for All Active Subscribers"
  case massExtensionStatus = "Get Status of Subscription Renewal Date Extensions"
  case testNotification = "Request a Test Notification"
  case testNotificationStatus = "Get Test Notification Status"

  /// How many requests an app may make in an hour.
  ///
  /// Apple's table names a number per second, enforced by the hour, and a tenth of it in the
  /// sandbox (https://developer.apple.com/documentation/appstoreserverapi/identifying-rate-limits).
  func requestsPerHour(in environment: Environment) -> Int {
    switch environment {
    case .production: requestsPerSecond * 3600
    case .sandbox: requestsPerSecond * 360
    }
  }

  private var requestsPerSecond: Int {
    switch self {
    case .transactionInfo, .transactionHistory, .subscriptionStatuses, .appTransactionInfo,
      .consumptionInformation, .notificationHistory:
      50
    case .renewalDateExtension, .appAccountToken: 20
    case .orderLookup, .refundHistory: 10
    case .massExtension, .massExtensionStatus, .testNotification, .testNotificationStatus: 1
    }
  }
}
