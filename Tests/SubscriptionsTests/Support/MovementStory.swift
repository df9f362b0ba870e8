import Subscriptions
import Testing

/// Apple's evidence in the life of a subscription, and the resulting movements.
struct MovementStory: Sendable, CustomTestStringConvertible {
  var name: String
  var evidence: [Evidence]
  var movements: [String]
  var catalogue = Catalogue.priced

  init(
    _ name: String, _ evidence: [Evidence], _ movements: [String],
    catalogue: Catalogue = .priced
  ) {
    self.name = name
    self.evidence = evidence
    self.movements = movements
    self.catalogue = catalogue
  }

  var testDescription: String { name }

  var ledger: Ledger {
    var ledger = Ledger(members: Set(evidence.map(\.line)).sorted())
    ledger.record(evidence.map { .evidence($0) })
    return ledger
  }
}

extension Ledger {
  func movements(in catalogue: Catalogue) -> [Movement] {
    Movement.movements(of: line, rule: OwnershipRule(line.history), in: catalogue)
  }
}

extension ProductID {
  static let yearly: ProductID = "yearly"
  static let weekly: ProductID = "weekly"
  /// In no catalogue.
  static let unlisted: ProductID = "unheard"
}

extension Catalogue {
  /// Prices in dollars for charges without a price from Apple.
  static let priced = Catalogue([
    Product(
      id: .monthly, validFrom: day(0), type: .autoRenewable, entitlements: [],
      subscriptionGroup: "g", period: CalendarPeriod(months: 1), priceMilliunits: 8000,
      currency: "USD"),
    Product(
      id: .monthly, validFrom: day(50), type: .autoRenewable, entitlements: [],
      subscriptionGroup: "g", period: CalendarPeriod(months: 1), priceMilliunits: 9000,
      currency: "USD"),
    Product(
      id: .yearly, validFrom: day(0), type: .autoRenewable, entitlements: [],
      period: CalendarPeriod(months: 12), priceMilliunits: 60000, currency: "USD"),
    Product(
      id: .gems, validFrom: day(0), type: .consumable, entitlements: [], priceMilliunits: 990,
      currency: "USD"),
  ])
}

/// One charge as Apple reports it, with a price in euros.
func charged(
  _ id: TransactionID, _ start: Double, _ end: Double?, _ product: ProductID = .monthly,
  _ price: Int64? = 10000, _ currency: String? = "EUR", kind: ChargeKind = .renewal,
  as period: PeriodType = .normal, of ownership: OwnershipType = .purchased, quantity: Int = 1,
  refunded: Double? = nil, reason: String? = nil, received: Double? = nil, isUpgraded: Bool = false,
  isCommitment: Bool = false, offerID: String? = nil, line: OriginalTransactionKey = mainKey
) -> Evidence {
  var record = charge(
    id, product, from: day(start), to: end.map { day($0) },
    asOf: day(received ?? refunded ?? start), kind: kind, line: line,
    item: end == nil ? nil : WebOrderLineItemID("w\(id)"), isUpgraded: isUpgraded,
    revocation: refunded.map { .revoked(at: day($0), reason: reason) } ?? .notRevoked,
    isCommitment: isCommitment)
  record.priceMilliunits = price
  record.currency = price == nil ? nil : currency
  record.periodType = period
  record.ownershipType = ownership
  record.quantity = quantity
  record.offerID = offerID
  return .transaction(record)
}

/// A renewal status of the line on a given day.
func status(
  _ asOf: Double, on: Bool? = nil, _ phase: RenewalStatus.Phase? = nil, intent: Int? = nil,
  isCommitment: Bool = false
) -> Evidence {
  .renewalStatus(
    RenewalStatus(
      asOf: day(asOf), autoRenews: on, phase: phase, expirationIntent: intent,
      isCommitment: isCommitment), line: mainKey)
}

extension Movement {
  /// The movement in a few words: day, what, of which charge, how much.
  var words: String {
    var words = [at.inDaysOfStory]
    switch kind {
    case .state: words += [(number < 0 ? "-" : "+") + cause, terms.productID.rawValue]
    case .charged, .refunded: words += [kind.rawValue, terms.charge.transactionID.rawValue]
    case .trialEnded where number > 0:
      words += ["taken back", kind.rawValue, terms.productID.rawValue]
    default: words += [kind.rawValue, terms.productID.rawValue]
    }
    if kind != .state, !cause.isEmpty { words.append(cause) }
    if let price = terms.price {
      words.append(price.currency)
      if kind == .charged || kind == .refunded {
        words.append("\(price.amountMilliunits)")
      } else {
        let (monthly, rest) = monthlyTwelfths.quotientAndRemainder(dividingBy: 12)
        words.append("\(monthly)" + (rest == 0 ? "" : "+\(rest)/12"))
      }
      if price.source == .catalogue { words.append("by catalogue") }
    } else if kind == .charged || kind == .refunded || kind.isOfPaidStock {
      words.append("unpriced")
    }
    if let originAt { words.append("since \(originAt.inDaysOfStory)") }
    return words.joined(separator: " ")
  }
}

extension Timestamp {
  var inDaysOfStory: String {
    let milliseconds = (self - day(0)).inMilliseconds
    let (days, rest) = milliseconds.quotientAndRemainder(dividingBy: 86_400_000)
    return rest == 0 ? "\(days)" : "\(days)+\(rest / 1000)s"
  }
}

extension Movement.Kind {
  /// Whether it changes paid subscriptions or MRR.
  var isOfPaidStock: Bool {
    [.started, .resumed, .ended, .changedFrom, .changedTo, .repriced].contains(self)
  }
}
