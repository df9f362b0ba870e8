package import Subscriptions

package struct SimulatedApp: Hashable, Sendable {
  /// How long access continues while Apple retries a failed renewal; set once per app.
  ///
  /// App Store Connect help, "Enable Billing Grace Period for auto-renewable subscriptions".
  package enum GracePeriod: Int, Codable, CaseIterable, Sendable {
    case threeDays = 3
    case sixteenDays = 16
    case twentyEightDays = 28
  }

  package var bundleID: String
  /// The app's number in App Store Connect, `adam_id` in receipts.
  package var appAppleID: Int
  /// The `password` that verifyReceipt requires for receipts with subscriptions.
  package var sharedSecret: String
  package var version: String
  package var gracePeriod: GracePeriod?  // Nil: not enabled
  package var products: [SimulatedProduct]

  package init(
    bundleID: String, appAppleID: Int = 1_234_567_890, sharedSecret: String,
    version: String = "1", gracePeriod: GracePeriod? = nil, products: [SimulatedProduct] = []
  ) {
    self.bundleID = bundleID
    self.appAppleID = appAppleID
    self.sharedSecret = sharedSecret
    self.version = version
    self.gracePeriod = gracePeriod
    self.products = products
  }
}

package struct SimulatedProduct: Hashable, Sendable {
  /// A cheaper first period, once per Apple ID and group.
  package struct IntroductoryOffer: Hashable, Sendable {
    package var period: CalendarPeriod
    package var priceMilliunits: Int64  // 0: a free trial

    package init(period: CalendarPeriod, priceMilliunits: Int64 = 0) {
      self.period = period
      self.priceMilliunits = priceMilliunits
    }
  }

  /// Unique across all apps of a simulation, so that a product identifies its app.
  package var id: ProductID
  package var type: ProductType
  /// Apple's `subscription_group_identifier`; only set for auto-renewable subscriptions.
  package var group: String?
  /// The rank within the group; 1 is the highest.
  package var level: Int
  /// The period paid by one charge; only set for auto-renewable subscriptions.
  package var period: CalendarPeriod?
  package var priceMilliunits: Int64
  package var currency: String
  package var introductoryOffer: IntroductoryOffer?
  package var isFamilyShareable: Bool

  package static func subscription(
    _ id: ProductID, group: String, level: Int, period: CalendarPeriod,
    priceMilliunits: Int64 = 9_990, currency: String = "USD",
    introductoryOffer: IntroductoryOffer? = nil, isFamilyShareable: Bool = false
  ) -> SimulatedProduct {
    SimulatedProduct(
      id: id, type: .autoRenewable, group: group, level: level, period: period,
      priceMilliunits: priceMilliunits, currency: currency, introductoryOffer: introductoryOffer,
      isFamilyShareable: isFamilyShareable)
  }

  /// A consumable, a non-consumable or a non-renewing subscription.
  package static func oneTime(
    _ id: ProductID, _ type: ProductType, priceMilliunits: Int64 = 4_990, currency: String = "USD",
    isFamilyShareable: Bool = false
  ) -> SimulatedProduct {
    precondition(type != .autoRenewable, "Subscriptions are made with subscription(_:…).")
    return SimulatedProduct(
      id: id, type: type, group: nil, level: 1, period: nil, priceMilliunits: priceMilliunits,
      currency: currency, introductoryOffer: nil, isFamilyShareable: isFamilyShareable)
  }
}

extension SimulatedApp {
  /// An app with one product of each kind.
  ///
  /// One group has two plans on its lowest level with different durations (`monthly`, `quarterly`),
  /// two with the same duration (`monthly`, `monthly.student`), and a higher plan (`premium`).
  package static let sample = SimulatedApp(
    bundleID: "com.example.tenure", sharedSecret: "0123456789abcdef0123456789abcdef",
    gracePeriod: .sixteenDays,
    products: [
      .subscription(
        "premium", group: "20500001", level: 1, period: CalendarPeriod(months: 1),
        priceMilliunits: 19_990, isFamilyShareable: true),
      .subscription("monthly", group: "20500001", level: 2, period: CalendarPeriod(months: 1)),
      .subscription(
        "monthly.student", group: "20500001", level: 2, period: CalendarPeriod(months: 1),
        priceMilliunits: 4_990),
      .subscription(
        "quarterly", group: "20500001", level: 2, period: CalendarPeriod(months: 3),
        priceMilliunits: 24_990),
      .subscription(
        "yearly", group: "20500001", level: 2, period: CalendarPeriod(months: 12),
        priceMilliunits: 89_990,
        introductoryOffer: SimulatedProduct.IntroductoryOffer(period: CalendarPeriod(days: 7))),
      .subscription(
        "news.weekly", group: "20500002", level: 1, period: CalendarPeriod(days: 7),
        priceMilliunits: 1_990),
      .oneTime("coins.100", .consumable, priceMilliunits: 990),
      .oneTime("lifetime", .nonConsumable, priceMilliunits: 49_990, isFamilyShareable: true),
      .oneTime("season.pass", .nonRenewing, priceMilliunits: 14_990),
    ])
}

/// A discount on a purchase, other than an introductory one.
package struct SimulatedOffer: Hashable, Sendable {
  package enum Kind: String, Sendable {
    /// `promotional_offer_id` in receipts.
    case promotional
    /// Redeemed with a code; `offer_code_ref_name` in receipts.
    case code

    var receiptKey: String {
      self == .promotional ? "promotional_offer_id" : "offer_code_ref_name"
    }
    /// Apple's `offerType`.
    var number: Int64 { self == .promotional ? 2 : 3 }
  }

  package var kind: Kind
  package var name: String
  /// The price of the first period.
  package var priceMilliunits: Int64

  package init(_ kind: Kind, _ name: String, priceMilliunits: Int64 = 0) {
    self.kind = kind
    self.name = name
    self.priceMilliunits = priceMilliunits
  }
}

/// The lengths of periods, by the calendar or at sandbox rates.
struct PeriodLengths: Sendable {
  let areSandboxRates: Bool

  /// The number of renewals after which Apple ends a tester's subscription.
  ///
  /// App Store Connect help, "Manage Sandbox Apple Account settings".
  static let sandboxRenewalLimit = 12
  /// Apple documents no sandbox lengths for grace and retry; this factor makes 60 days 10 minutes.
  private static let sandboxScale = 8_640

  /// The end of the `count`th consecutive period starting at `anchor`.
  func end(of period: CalendarPeriod, count: Int, from anchor: Timestamp) -> Timestamp {
    guard areSandboxRates else {
      return CalendarPeriod(months: period.months * count, days: period.days * count)
        .end(from: anchor)
    }
    return anchor + Self.sandboxLength(of: period) * count
  }

  /// The length of a span that is not a paid period, such as grace or retry.
  func span(_ duration: Duration) -> Duration {
    areSandboxRates ? duration / Self.sandboxScale : duration
  }

  // https://developer.apple.com/documentation/storekit/testing-an-auto-renewable-subscription
  private static func sandboxLength(of period: CalendarPeriod) -> Duration {
    if period.months > 0 { return .minutes(5 * period.months) }
    return period.days <= 3 ? .minutes(2) : .minutes(3)
  }
}
