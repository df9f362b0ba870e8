/// One dated, signed happening of a subscription or a purchase: what reports count.
///
/// All of them together follow from what is known of a line. Their sums up to a moment are the
/// stocks at it: of subscriptions by state, of those that are paid for, and of what these bring in
/// a month.
package struct Movement: Hashable, Sendable {
  /// What happened.
  package enum Kind: String, Codable, CaseIterable, Sendable {
    /// Something was paid for, of whatever type.
    case charged
    /// Money was refunded, the whole price or a share of it; neither by an upgrade nor by leaving a
    /// family.
    case refunded
    /// A subscription left a state, or came to one.
    case state
    /// The first paid period began.
    case started
    /// A paid period began after a lapse.
    case resumed
    /// A paid period ended, and none followed.
    case ended
    /// What is paid for became another product: the old one.
    case changedFrom = "changed_from"
    /// What is paid for became another product: the new one.
    case changedTo = "changed_to"
    /// The price of the same product became another one.
    case repriced
    case trialStarted = "trial_started"
    /// A trial ended; with a number above zero that is taken back, for it was paid after all.
    case trialEnded = "trial_ended"
    case autoRenewOff = "auto_renew_off"
    case autoRenewOn = "auto_renew_on"
    case graceEntered = "grace_entered"
    case retryEntered = "retry_entered"
    /// What Apple could not charge was paid after all.
    case billingRecovered = "billing_recovered"
    /// Apple has given up, as far as is known.
    case billingLost = "billing_lost"

    /// Whether it changes what is paid for, and what that brings in a month.
    package var isOfPaidStock: Bool {
      switch self {
      case .started, .resumed, .ended, .changedFrom, .changedTo, .repriced: true
      case .charged, .refunded, .state, .trialStarted, .trialEnded, .autoRenewOff, .autoRenewOn,
        .graceEntered, .retryEntered, .billingRecovered, .billingLost:
        false
      }
    }
  }

  /// The cause of `trialEnded` where the customer paid; any other is a
  /// ``SubscriptionTimeline/EndCause``.
  package static let converted = "converted"
  /// The cause of `resumed` where Apple was able to charge after it had tried for a while.
  package static let recovered = "recovered"

  /// How a charge came to its owner, so that it can be told later what was known of it when.
  package struct Ownership: Hashable, Sendable {
    /// The line's binding went to the owner with the charge.
    package struct Move: Hashable, Sendable {
      /// Nil: from nobody.
      package var from: AccountKey?
      /// The first account on the line, where the owner is the second one; nil: it is a later one,
      /// or had been there before.
      package var sharedWith: AccountKey?

      package init(from: AccountKey?, sharedWith: AccountKey?) {
        self.from = from
        self.sharedWith = sharedWith
      }
    }

    package var rule: Decision.Rule
    package var decidedAt: Timestamp
    package var correctedAt: Timestamp?
    package var move: Move?
    /// Whether Apple charged without anybody's buying.
    package var isRenewal: Bool

    package init(
      rule: Decision.Rule, decidedAt: Timestamp, correctedAt: Timestamp?, move: Move?,
      isRenewal: Bool
    ) {
      self.rule = rule
      self.decidedAt = decidedAt
      self.correctedAt = correctedAt
      self.move = move
      self.isRenewal = isRenewal
    }
  }

  /// When what was paid for ends, as it was known.
  package struct Expiry: Hashable, Sendable {
    /// By the transaction that names the charge; nil: never.
    package var date: Timestamp?

    package init(date: Timestamp?) { self.date = date }
  }

  /// What tells one from all others of a subscription.
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
  /// When it happened or, of what is expected, will.
  package var at: Timestamp
  /// The line of the charge that it is about, one of those that Apple links.
  package var line: LineID
  /// The transaction that names the charge.
  package var transactionID: TransactionID
  package var productID: ProductID
  package var productType: ProductType?
  package var subscriptionGroup: String?
  /// Of `state`, the state; of an end, why; of `resumed`, ``recovered`` or empty; of `refunded`,
  /// Apple's reason; of `repriced` in another currency or by another source, `from` or `to`; else
  /// empty.
  package var cause: String
  /// What it goes back to: the charge that was refunded, the first paid period, the start of the
  /// trial or of the trouble.
  package var originAt: Timestamp?
  /// By how much it changes a stock: 1, -1 or 0.
  package var number: Int
  package var ownershipType: OwnershipType
  package var periodType: PeriodType
  package var offerID: String?
  package var quantity: Int
  /// ISO 4217; nil where no price is known, or none matters.
  package var currency: String?
  package var amountMilliunits: Int64
  package var priceSource: ChargePrice.Source?
  /// Twelfths of a milliunit a month.
  package var monthlyTwelfths: Int64
  /// The owner of the charge.
  package var account: AccountKey?
  /// Of `charged` alone; nil where it was recorded before this was.
  package var ownership: Ownership?
  /// Of `charged` alone; nil where it was recorded before this was.
  package var expiry: Expiry?

  /// Takes one as it is stored.
  package init(
    _ key: Key, line: LineID, productType: ProductType? = nil, subscriptionGroup: String? = nil,
    originAt: Timestamp? = nil, number: Int, ownershipType: OwnershipType = .purchased,
    periodType: PeriodType = .normal, offerID: String? = nil, quantity: Int = 1,
    currency: String? = nil, amountMilliunits: Int64 = 0, priceSource: ChargePrice.Source? = nil,
    monthlyTwelfths: Int64 = 0, account: AccountKey? = nil, ownership: Ownership? = nil,
    expiry: Expiry? = nil
  ) {
    kind = key.kind
    at = key.at
    self.line = line
    transactionID = key.transactionID
    productID = key.productID
    self.productType = productType
    self.subscriptionGroup = subscriptionGroup
    cause = key.cause
    self.originAt = originAt
    self.number = number
    self.ownershipType = ownershipType
    self.periodType = periodType
    self.offerID = offerID
    self.quantity = quantity
    self.currency = currency
    self.amountMilliunits = amountMilliunits
    self.priceSource = priceSource
    self.monthlyTwelfths = monthlyTwelfths
    self.account = account
    self.ownership = ownership
    self.expiry = expiry
  }

  package var key: Key {
    Key(
      kind: kind, at: at, productID: productID, transactionID: transactionID, cause: cause)
  }
}

extension Movement: Comparable {
  /// By date; of one date, what leaves before what comes, then by the key.
  package static func < (lhs: Movement, rhs: Movement) -> Bool {
    if lhs.at != rhs.at { return lhs.at < rhs.at }
    if lhs.number != rhs.number { return lhs.number < rhs.number }
    if lhs.kind != rhs.kind { return lhs.kind.rawValue < rhs.kind.rawValue }
    if lhs.cause != rhs.cause { return lhs.cause < rhs.cause }
    if lhs.productID != rhs.productID { return lhs.productID < rhs.productID }
    if lhs.transactionID != rhs.transactionID { return lhs.transactionID < rhs.transactionID }
    return lhs.line < rhs.line
  }
}
