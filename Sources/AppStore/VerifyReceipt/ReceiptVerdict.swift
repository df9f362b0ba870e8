import Foundation
package import Subscriptions

/// What Apple says of a receipt, and each exchange in which it said so.
package struct ReceiptVerification: Sendable {
  package var verdict: ReceiptVerdict
  /// In order; empty where Apple needed not be asked.
  package var exchanges: [Exchange]

  package init(verdict: ReceiptVerdict, exchanges: [Exchange]) {
    self.verdict = verdict
    self.exchanges = exchanges
  }
}

/// What is to be done with a receipt now.
package enum ReceiptVerdict: Hashable, Sendable {
  /// Apple vouches for the receipt. Whether it pays for anything now is in its records.
  case verified(VerifiedReceipt)
  /// The receipt proves nothing, for good.
  case rejected(ReceiptRejection)
  /// Nothing is known yet: ask again later. Never a reason to take something away.
  case retry(ReceiptRetry)
  /// Our configuration keeps Apple from answering: alarm, keep the receipt, take nothing away.
  case misconfigured(ReceiptMisconfiguration)
}

/// Why a receipt proves nothing to us.
package struct ReceiptRejection: Hashable, Sendable {
  /// The problem codes of the interface.
  package enum Code: String, Sendable {
    case receiptRejected = "receipt_rejected"
    case wrongBundleID = "wrong_bundle_id"
  }

  package var code: Code
  /// One sentence for whoever sent the receipt.
  package var reason: String
  /// Nil where it was not Apple that refused.
  package var appleStatus: Int?

  package init(code: Code, reason: String, appleStatus: Int? = nil) {
    self.code = code
    self.reason = reason
    self.appleStatus = appleStatus
  }
}

/// Why the answer is still open.
package struct ReceiptRetry: Hashable, Sendable {
  /// When a status that may be Apple's fault is taken at its word.
  ///
  /// Apple has answered 21002 for good receipts, once for a day (2023-02-07, SwiftyStoreKit issue
  /// 687), and a receipt that was paid for must outlast that. So only answers of this very status
  /// count, and they have to be many and to come over more than a day: what else went wrong between
  /// them says nothing about the receipt.
  package struct Limit: Hashable, Sendable {
    /// How many verifications must have ended with the status, this one included.
    package static let attempts = 12
    /// How far the first of them must lie behind this one.
    package static let time: Duration = .days(1)

    /// Apple's status.
    package var status: Int
    /// The verdict when the limit is reached.
    package var rejection: ReceiptRejection

    package init(status: Int, rejection: ReceiptRejection) {
      self.status = status
      self.rejection = rejection
    }

    /// Whether the verification that ended `now` is one too many; `earlier` is what Apple answered
    /// about the receipt before, and when it was asked.
    package func isReached(
      after earlier: [(askedAt: Timestamp, answer: [UInt8])], now: Timestamp
    ) -> Bool {
      let alike = earlier.filter { ReceiptAnswer.status(of: $0.answer) == status }
      guard let first = alike.map(\.askedAt).min() else { return false }
      return alike.count + 1 >= Self.attempts && now - first > Self.time
    }
  }

  /// One sentence: what happened.
  package var reason: String
  package var appleStatus: Int?
  /// Apple asked not to be asked before; nil where it didn't.
  package var notBefore: Timestamp?
  /// Nil: asked for as long as the patience lasts.
  package var limit: Limit?

  package init(
    reason: String, appleStatus: Int? = nil, notBefore: Timestamp? = nil, limit: Limit? = nil
  ) {
    self.reason = reason
    self.appleStatus = appleStatus
    self.notBefore = notBefore
    self.limit = limit
  }
}

/// What is wrong on our side.
package struct ReceiptMisconfiguration: Hashable, Sendable {
  /// One sentence for the operator; names no secret.
  package var reason: String
  package var appleStatus: Int?

  package init(reason: String, appleStatus: Int? = nil) {
    self.reason = reason
    self.appleStatus = appleStatus
  }
}

/// What each `status` of verifyReceipt means for us: one row per status.
///
/// See https://developer.apple.com/documentation/appstorereceipts/status. A status says something
/// about a receipt, or about Apple, or about our configuration; only the first kind may ever take a
/// receipt out of the queue.
enum VerifyReceiptStatus: Hashable {
  /// The body holds the decoded receipt.
  case verified
  /// The receipt belongs to the other environment: ask there.
  case elsewhere(Environment)
  /// The password is not the shared secret of the receipt's app.
  case wrongSecret
  /// Not a receipt that proves anything.
  case rejected(String)
  /// Nothing is known yet.
  case retry(String)
  /// Usually the receipt's fault and sometimes Apple's: a few times, then rejected.
  case limitedRetry(String)
  /// Our request or configuration is wrong: nothing is said about the receipt.
  case misconfigured(String)

  /// `isRetryable` is Apple's `is-retryable`, which comes with 21100 to 21199 only.
  init(_ status: Int, isRetryable: Bool?) {
    self =
      switch status {
      case 0: .verified
      case 21000: .misconfigured("Apple did not see a POST request: something between rewrites it")
      case 21002: .limitedRetry("Apple finds the receipt malformed, or is in trouble")
      case 21003: .rejected("Apple could not authenticate the receipt")
      case 21004: .wrongSecret
      case 21005: .retry("Apple's receipt server is not available at present")
      // Valid, but the subscription has expired: an old receipt's way of saying so, with the body.
      case 21006: .verified
      case 21007: .elsewhere(.sandbox)
      case 21008: .elsewhere(.production)
      case 21009: .retry("Apple had an internal data access error")
      case 21010: .rejected("Apple does not know the customer's account, or has deleted it")
      case 21100...21199 where isRetryable == false:
        .rejected("Apple had an internal data access error and says that retrying is no use")
      case 21100...21199: .retry("Apple had an internal data access error")
      // 21001 is no longer sent, and so means as little as a number that was never heard of.
      default: .retry("Apple answered a status that is not documented")
      }
  }
}

/// Where verifyReceipt is asked, for each of Apple's two environments.
package struct VerifyReceiptEndpoints: Hashable, Sendable {
  package let production: String
  package let sandbox: String

  /// Apple's own (https://developer.apple.com/documentation/appstorereceipts/verifyreceipt).
  package static let apple = VerifyReceiptEndpoints(
    unchecked: "https://buy.itunes.apple.com/verifyReceipt",
    sandbox: "https://sandbox.itunes.apple.com/verifyReceipt")

  /// The longest URL: what the audit trail keeps with each exchange.
  private static let longest = 255

  /// Throws `AppStoreSettingError` for a URL that is not HTTP, names no host or is too long.
  package init(production: String, sandbox: String) throws {
    for url in [production, sandbox] {
      let parts = URLComponents(string: url)
      guard ["http", "https"].contains(parts?.scheme?.lowercased()), parts?.host?.isEmpty == false
      else {
        throw AppStoreSettingError(
          "\"\(url)\" is not the URL of a verifyReceipt: write it whole, for example "
            + VerifyReceiptEndpoints.apple.production)
      }
      guard url.unicodeScalars.count <= Self.longest else {
        throw AppStoreSettingError(
          "the URL has \(url.unicodeScalars.count) characters, of which there may be "
            + "\(Self.longest)")
      }
    }
    self.init(unchecked: production, sandbox: sandbox)
  }

  private init(unchecked production: String, sandbox: String) {
    self.production = production
    self.sandbox = sandbox
  }

  /// The URL of that environment.
  package subscript(environment: Environment) -> String {
    switch environment {
    case .production: production
    case .sandbox: sandbox
    }
  }
}
