package import struct Foundation.UUID

/// A verified statement by Apple, with the date at which it was true.
package enum Evidence: Hashable, Codable, Sendable {
  /// A charge as one of Apple's answers describes it.
  case transaction(TransactionRecord)
  /// Whether and as which product an original transaction will renew.
  case renewalStatus(RenewalStatus, line: OriginalTransactionKey)
  /// One original transaction continues another (`previousOriginalTransactionId`).
  case link(line: OriginalTransactionKey, previous: OriginalTransactionKey)

  package var line: OriginalTransactionKey {
    switch self {
    case .transaction(let record): record.key.line
    case .renewalStatus(_, let line), .link(let line, _): line
    }
  }

  package var transaction: TransactionRecord? {
    if case .transaction(let record) = self { record } else { nil }
  }

  package var renewalStatus: RenewalStatus? {
    if case .renewalStatus(let status, _) = self { status } else { nil }
  }
}

/// The reason for a charge, if Apple reports it.
package enum ChargeKind: String, Codable, Sendable {
  /// Apple renewed: `transactionReason` RENEWAL, DID_RENEW, DID_RECOVER.
  case renewal
  /// The customer acted: PURCHASE, SUBSCRIBED, INITIAL_BUY, INTERACTIVE_RENEWAL.
  case purchase
  /// Receipts don't report it.
  case unknown
}

/// Apple's `in_app_ownership_type`.
package enum OwnershipType: String, Codable, Sendable {
  case purchased
  case familyShared = "family_shared"
}

/// The price of a period: the regular one, or less.
package enum PeriodType: String, Codable, Sendable {
  case normal
  case trial
  case intro
  case offer
}

/// Apple's kind of the offer that a charge redeemed.
package enum OfferType: String, Codable, CaseIterable, Sendable {
  case offerCode = "offer_code"
  case promotional
  case winBack = "win_back"
  case introductory
}

/// The revocation of a transaction in one answer.
package enum RevocationStatus: Hashable, Codable, Sendable {
  /// The source is too old to contain it, such as a receipt's `in_app`.
  case notSaid
  /// An unsigned answer about a receipt contains no revocation. Such answers lag.
  case notMentioned
  /// An unsigned answer about a receipt contains a revocation, which may have been reversed since.
  case mentioned(at: Timestamp, reason: String?)
  /// A signed answer contains none.
  case notRevoked
  /// A signed refund, or withdrawal from the family.
  case revoked(Revocation)

  package static func revoked(at moment: Timestamp, reason: String?) -> Self {
    .revoked(Revocation(at: moment, reason: reason))
  }

  package var revocation: Revocation? {
    switch self {
    case .notSaid, .notMentioned, .notRevoked: nil
    case .mentioned(let moment, let reason): Revocation(at: moment, reason: reason)
    case .revoked(let revocation): revocation
    }
  }
}

/// Apple's statement at one date about the next renewal.
package struct RenewalStatus: Hashable, Codable, Sendable {
  /// The state of the period after the last paid one.
  package enum Phase: Hashable, Codable, Sendable {
    case undisturbed
    /// The charge failed; access continues until the date while Apple retries.
    case gracePeriod(until: Timestamp)
    /// The charge failed and Apple retries, without access.
    case billingRetry
    /// Apple has stopped retrying, or was asked to stop.
    case expired

    /// The severity, from 1 for an undisturbed subscription.
    package var gravity: Int {
      switch self {
      case .undisturbed: 1
      case .gracePeriod: 2
      case .billingRetry: 3
      case .expired: 4
      }
    }

    package var graceEnd: Timestamp? {
      if case .gracePeriod(let until) = self { until } else { nil }
    }
  }

  /// The date of Apple's answer, or of the change itself if reported.
  package var asOf: Timestamp
  /// Apple's `auto_renew_status`, never a notification's subtype; nil: not reported.
  package var autoRenews: Bool?
  /// Nil: not reported.
  package var phase: Phase?
  package var autoRenewProductID: ProductID?
  /// Apple's reason for the end: 1 the customer, 2 billing, 3 the price, 4 the product, 5 other.
  package var expirationIntent: Int?
  /// The token that renewals will carry.
  package var appAccountToken: UUID?
  package var isCommitment: Bool

  package init(
    asOf: Timestamp, autoRenews: Bool?, phase: Phase? = nil, autoRenewProductID: ProductID? = nil,
    expirationIntent: Int? = nil, appAccountToken: UUID? = nil, isCommitment: Bool = false
  ) {
    self.asOf = asOf
    self.autoRenews = autoRenews
    self.phase = phase
    self.autoRenewProductID = autoRenewProductID
    self.expirationIntent = expirationIntent
    self.appAccountToken = appAccountToken
    self.isCommitment = isCommitment
  }
}
