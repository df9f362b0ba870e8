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
