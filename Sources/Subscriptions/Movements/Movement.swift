/// A dated, signed change of a subscription or a purchase, the unit that reports count: its sums up
/// to a moment are the stocks at it (subscriptions by state, paid ones, MRR).
package struct Movement: Hashable, Sendable {
  package enum Kind: String, Codable, CaseIterable, Sendable {
    /// A payment for a product of any type.
    case charged
    /// A refund of the price or a share of it; neither an upgrade nor leaving a family.
    case refunded
    case state
    /// The first paid period began.
    case started
    /// A paid period began after a lapse.
    case resumed
    /// A paid period ended, and none followed.
    case ended
    case changedFrom = "changed_from"
    case changedTo = "changed_to"
    /// A new price of the same product.
    case repriced
    case trialStarted = "trial_started"
    /// A trial ended; a positive number reverses that, because it was paid after all.
    case trialEnded = "trial_ended"
    case autoRenewOff = "auto_renew_off"
    case autoRenewOn = "auto_renew_on"
    case graceEntered = "grace_entered"
    case retryEntered = "retry_entered"
    /// A failed charge was paid after all.
    case billingRecovered = "billing_recovered"
    /// Apple stopped retrying, as far as is known.
    case billingLost = "billing_lost"
  }

  /// The cause of `trialEnded` if the customer paid; others are ``SubscriptionTimeline/EndCause``s.
  package static let converted = "converted"
  /// The cause of `resumed` after Apple's billing retry.
  package static let recovered = "recovered"

  /// How a charge came to its owner, kept for reports as of an earlier moment.
  package struct Ownership: Hashable, Sendable {
    /// The binding went to the owner with the charge.
    package struct Move: Hashable, Sendable {
      /// Nil: no account.
      package var from: AccountKey?
      /// The first account, if the owner is the second; nil for later ones and one that returns.
      package var sharedWith: AccountKey?
    }

    package var rule: Decision.Rule
    package var decidedAt: Timestamp
    package var correctedAt: Timestamp?
    package var move: Move?
    /// Whether Apple charged automatically.
    package var isRenewal: Bool
  }

  package struct Expiry: Hashable, Sendable {
    /// By the transaction that names the charge; nil: never.
    package var date: Timestamp?
  }

  /// Unique within a subscription.
  package struct Key: Hashable, Sendable {
    package var kind: Kind
    package var at: Timestamp
    package var productID: ProductID
    package var transactionID: TransactionID
    package var cause: String

    package init(
      kind: Kind, at: Timestamp, productID: ProductID, transactionID: TransactionID, cause: String
    ) {
      self.kind = kind
      self.at = at
      self.productID = productID
      self.transactionID = transactionID
      self.cause = cause
    }
  }

  package var kind: Kind
  /// In the future for expected movements.
  package var at: Timestamp
  /// Those of the charge, without its period; the price is the amount that moved, nil where none is
  /// known or relevant.
  package var terms: ChargeTerms
  /// The state of `state`; the reason of an end; ``recovered`` or empty for `resumed`; Apple's
  /// reason for `refunded`; `from` or `to` for `repriced` with another currency or source; else
  /// empty.
  package var cause: String
  /// The date of the refunded charge, the first paid period, the trial's start or the billing
  /// issue's.
  package var originAt: Timestamp?
  /// The change of a stock: 1, -1 or 0.
  package var number: Int
  /// Twelfths of a milliunit per month.
  package var monthlyTwelfths: Int64
  /// Only for `charged`.
  package var ownership: Ownership?
  /// Only for `charged`.
  package var expiry: Expiry?

  package var key: Key {
    Key(
      kind: kind, at: at, productID: terms.productID, transactionID: terms.charge.transactionID,
      cause: cause)
  }
}

extension Movement: Comparable {
  /// By date, decreases before increases, then by key.
  package static func < (lhs: Movement, rhs: Movement) -> Bool {
    if lhs.at != rhs.at { return lhs.at < rhs.at }
    if lhs.number != rhs.number { return lhs.number < rhs.number }
    if lhs.kind != rhs.kind { return lhs.kind.rawValue < rhs.kind.rawValue }
    if lhs.cause != rhs.cause { return lhs.cause < rhs.cause }
    if lhs.terms.productID != rhs.terms.productID {
      return lhs.terms.productID < rhs.terms.productID
    }
    return lhs.terms.charge < rhs.terms.charge
  }
}
