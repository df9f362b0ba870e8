package import Subscriptions

package import struct Foundation.UUID

/// Where notifications go, as one sets it in App Store Connect.
package struct NotificationTarget: Hashable, Sendable {
  package var version: SimulatedNotification.Version
  package var url: String

  package init(_ version: SimulatedNotification.Version, url: String) {
    self.version = version
    self.url = url
  }
}

/// One thing that Apple tells an app's server.
package struct SimulatedNotification: Hashable, Sendable {
  /// Which notifications an app's server gets.
  package enum Version: String, CaseIterable, Sendable {
    /// A doorbell with the whole receipt, authenticated by the shared secret.
    case v1
    /// The same in the shape that it had until 2021-03-10, of iOS 6.
    case v1Before2021 = "v1-before-2021"
    /// Signed.
    case v2
  }

  /// What is posted.
  enum Content: Hashable, Sendable {
    case signed(String)
    case plain([UInt8])
  }

  /// 1, 2, 3, … in the order of being made.
  package let number: Int
  /// The same in every attempt.
  package let uuid: UUID
  package let version: Version
  /// As Apple writes it, for example `DID_RENEW`.
  package let type: String
  package let subtype: String?
  package let environment: Environment
  package let bundleID: String
  package let at: Timestamp
  /// What happened; nil for a test, and for what came of extending many.
  package let event: SimulatedEvent?
  /// The charge that it is about: a family member's own, where the event is the purchaser's.
  package let transactionID: TransactionID?
  package let originalTransactionID: OriginalTransactionID?
  /// In their order.
  package internal(set) var attempts: [SendAttempt] = []

  let content: Content

  /// Version 2's JWS.
  package var signedPayload: String? {
    if case .signed(let payload) = content { payload } else { nil }
  }

  /// The bytes that are posted.
  package var body: [UInt8] {
    switch content {
    case .signed(let payload): Array(#"{"signedPayload":"\#(payload)"}"#.utf8)
    case .plain(let bytes): bytes
    }
  }

  /// Whether some attempt succeeded.
  package var hasArrived: Bool { attempts.contains { $0.result == .success } }
}

/// One attempt to deliver a notification.
package struct SendAttempt: Hashable, Sendable {
  /// Apple's `sendAttemptResult`.
  ///
  /// https://developer.apple.com/documentation/appstoreserverapi/sendattemptresult
  package enum Result: String, Sendable {
    case success = "SUCCESS"
    case timedOut = "TIMED_OUT"
    case tlsIssue = "TLS_ISSUE"
    case noResponse = "NO_RESPONSE"
    case socketIssue = "SOCKET_ISSUE"
    case invalidResponse = "INVALID_RESPONSE"
    case prematureClose = "PREMATURE_CLOSE"
    case unsuccessfulStatus = "UNSUCCESSFUL_HTTP_RESPONSE_CODE"
    case other = "OTHER"
  }

  package let url: String
  /// In simulated time.
  package let at: Timestamp
  package let result: Result
  /// Nil where no answer came.
  package let httpStatus: Int?
}
