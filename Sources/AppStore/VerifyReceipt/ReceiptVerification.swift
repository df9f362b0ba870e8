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
  /// How often to ask, where not for ever.
  package struct Limit: Hashable, Sendable {
    /// How many verifications of this receipt may end like this one, in all.
    package var attempts: Int
    /// The verdict when they have.
    package var rejection: ReceiptRejection

    package init(attempts: Int, rejection: ReceiptRejection) {
      self.attempts = attempts
      self.rejection = rejection
    }
  }

  /// One sentence: what happened.
  package var reason: String
  package var appleStatus: Int?
  /// Apple asked not to be asked before; nil where it didn't.
  package var notBefore: Timestamp?
  /// Nil: no limit of its own.
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
