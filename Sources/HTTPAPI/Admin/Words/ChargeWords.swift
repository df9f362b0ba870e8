import LedgerStorage
import Subscriptions

extension Badge {
  /// How a charge stands at a moment.
  ///
  /// - Parameters:
  ///   - charge: The charge.
  ///   - end: The end of what was paid for; nil: never, or nothing that lasts.
  ///   - now: The moment.
  init(_ charge: Charge, end: Timestamp?, at now: Timestamp) {
    if let revocation = charge.revocation, revocation.at <= now {
      self.init(text: "refunded", tone: Tone.bad)
    } else if let supersededAt = charge.supersededAt, supersededAt <= now {
      self.init(text: "replaced", tone: Tone.quiet)
    } else if let end, end <= now {
      self.init(text: "over", tone: Tone.quiet)
    } else if end != nil {
      self.init(text: charge.date <= now ? "running" : "ahead", tone: Tone.good)
    } else {
      self.init(text: "bought", tone: Tone.good)
    }
  }

  /// What is out of the ordinary about a purchase.
  static func peculiarities(of transaction: StoreTransaction) -> [Badge] {
    var badges: [Badge] = []
    switch transaction.periodType {
    case .normal: break
    case .trial: badges.append(Badge(text: "trial", tone: Tone.info))
    case .intro: badges.append(Badge(text: "introductory price", tone: Tone.info))
    case .offer: badges.append(Badge(text: "offer", tone: Tone.info))
    }
    if transaction.ownershipType == .familyShared {
      badges.append(Badge(text: "family shared", tone: Tone.info))
    }
    return badges
  }

  init(_ state: Entitlement.State) {
    switch state {
    case .active: self.init(text: "active", tone: Tone.good)
    case .inGracePeriod: self.init(text: "in grace period", tone: Tone.warning)
    case .inBillingRetry: self.init(text: "in billing retry", tone: Tone.warning)
    case .revoked: self.init(text: "revoked", tone: Tone.bad)
    case .expired: self.init(text: "expired", tone: Tone.quiet)
    }
  }

  init(_ status: PurchaseOrder.Status) {
    switch status {
    case .open: self.init(text: "open", tone: Tone.info)
    case .fulfilled: self.init(text: "fulfilled", tone: Tone.good)
    case .refunded: self.init(text: "refunded", tone: Tone.bad)
    case .expired: self.init(text: "expired", tone: Tone.quiet)
    }
  }

  init(_ submission: SubmissionSummary) {
    switch submission.status {
    case .verified: self.init(text: "verified", tone: Tone.good)
    case .rejected: self.init(text: "rejected", tone: Tone.bad)
    case .pending where submission.retryAt == nil: self.init(text: "given up", tone: Tone.bad)
    case .pending: self.init(text: "pending", tone: Tone.warning)
    }
  }
}

/// Amounts of money in words.
enum Price {
  /// What was paid, as far as Apple says.
  static func text(of transaction: StoreTransaction) -> String {
    guard let currency = transaction.currency, let amount = transaction.priceMilliunits else {
      return "no price told"
    }
    let text = ChartUnit.money(currency: currency).text(amount)
    return transaction.quantity > 1 ? "\(text), quantity \(transaction.quantity)" : text
  }

  static func text(_ milliunits: Int64, currency: String?) -> String {
    currency.map { ChartUnit.money(currency: $0).text(milliunits) } ?? "no price known"
  }
}

extension ChargeReport {
  /// What a form says of the charge that it is about.
  var facts: [Property] {
    [
      Property(
        label: "Transaction", value: charge.id.transactionID.rawValue, href: charge.id.href,
        isCode: true),
      Property(label: "Product", value: charge.productID.rawValue, isCode: true),
      Property(label: "Charged", value: Moment(charge.date).text),
      Property(label: "Price", value: Price.text(of: transaction)),
      Property(
        label: "Owner", value: ownerAccountID ?? "nobody",
        href: ownerAccountID.map { PageAddress.account($0) }),
      Property(label: "Because", value: because),
    ]
  }
}

extension Charge.ID {
  /// The name of the charge in the page of its original transaction: letters, digits and hyphens.
  var anchor: String {
    "charge-\(Self.name(transactionID.rawValue))-\(Self.name(productID.rawValue))"
  }

  /// The charge in the page of its original transaction.
  var href: String {
    PageAddress.originalTransaction(
      line.originalTransactionID.rawValue, environment: line.environment.rawValue, charge: anchor)
  }

  /// The form that gives the charge to another account.
  var transferHref: String {
    PageAddress.transfer(
      of: transactionID.rawValue, productID: productID.rawValue,
      environment: line.environment.rawValue)
  }

  /// The form that takes the charge away from whoever has it.
  var releaseHref: String {
    PageAddress.release(
      of: transactionID.rawValue, productID: productID.rawValue,
      environment: line.environment.rawValue)
  }

  private static func name(_ text: String) -> String {
    String(
      decoding: text.utf8.map { byte in
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
          UInt8(ascii: "0")...UInt8(ascii: "9"):
          byte
        default: UInt8(ascii: "-")
        }
      }, as: UTF8.self)
  }
}

extension LineID {
  /// The page of the original transaction.
  var href: String {
    PageAddress.originalTransaction(
      originalTransactionID.rawValue, environment: environment.rawValue)
  }
}
