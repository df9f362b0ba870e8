package import Subscriptions

/// An app in the simulated App Store, with what it sells.
package struct SimulatedApp: Hashable, Sendable {
  /// How long access goes on while Apple tries to collect a failed renewal; chosen once per app.
  ///
  /// App Store Connect help, "Enable Billing Grace Period for auto-renewable subscriptions".
  package enum GracePeriod: Int, Codable, CaseIterable, Sendable {
    case threeDays = 3
    case sixteenDays = 16
    case twentyEightDays = 28
  }

  package var bundleID: String
  /// The number of the app in App Store Connect, which receipts call `adam_id`.
  package var appAppleID: Int
  /// What verifyReceipt wants as `password` for receipts with subscriptions.
  package var sharedSecret: String
  package var version: String
  /// Nil: the app has not opted in.
  package var gracePeriod: GracePeriod?
  package var products: [SimulatedProduct]

  /// An app with a usual App Store number and no grace period.
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

/// Something an app sells.
package struct SimulatedProduct: Hashable, Sendable {
  /// A cheaper first period, once per Apple ID and group.
  package struct IntroductoryOffer: Hashable, Sendable {
    package var period: CalendarPeriod
    /// 0: a free trial.
    package var priceMilliunits: Int64

    /// An offer; free unless a price is given.
    package init(period: CalendarPeriod, priceMilliunits: Int64 = 0) {
      self.period = period
      self.priceMilliunits = priceMilliunits
    }
  }

  /// Unique among all apps of a simulation, so that a product names its app.
  package var id: ProductID
  package var type: ProductType
  /// Apple's `subscription_group_identifier`; set exactly for auto-renewable subscriptions.
  package var group: String?
  /// The rank in the group; 1 is the highest.
  package var level: Int
  /// What one charge pays for; set exactly for auto-renewable subscriptions.
  package var period: CalendarPeriod?
  package var priceMilliunits: Int64
  package var currency: String
  package var introductoryOffer: IntroductoryOffer?
  package var isFamilyShareable: Bool

  /// An auto-renewable subscription.
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

  /// Anything that is bought once: a consumable, a non-consumable or a non-renewing subscription.
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
  /// An app with one product of every kind, for demonstrations and tests.
  ///
  /// The group has two plans on its lowest level that differ in duration (`monthly`, `quarterly`),
  /// two of equal duration (`monthly`, `monthly.student`), and a higher one (`premium`).
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

/// A discount that the customer used for a purchase, other than the introductory one.
package struct SimulatedOffer: Hashable, Sendable {
  /// How the customer got it.
  package enum Kind: String, Sendable {
    /// Shown by receipts as `promotional_offer_id`.
    case promotional
    /// Redeemed with a code; shown by receipts as `offer_code_ref_name`.
    case code

    /// The field of receipts that names it.
    var receiptKey: String {
      self == .promotional ? "promotional_offer_id" : "offer_code_ref_name"
    }
    /// Apple's `offerType`.
    var number: Int64 { self == .promotional ? 2 : 3 }
  }

  package var kind: Kind
  package var name: String
  /// What the first period costs.
  package var priceMilliunits: Int64

  /// An offer; free in its first period unless a price is given.
  package init(_ kind: Kind, _ name: String, priceMilliunits: Int64 = 0) {
    self.kind = kind
    self.name = name
    self.priceMilliunits = priceMilliunits
  }
}

/// How long periods take: by the calendar, or on the rates of Apple's sandbox.
struct PeriodLengths: Sendable {
  let areSandboxRates: Bool

  /// How many times a tester's subscription renews before Apple ends it.
  ///
  /// App Store Connect help, "Manage Sandbox Apple Account settings".
  static let sandboxRenewalLimit = 12
  /// Apple documents no lengths for grace and retry on its rates; this one makes 60 days 10
  /// minutes.
  private static let sandboxScale = 8_640

  /// The end of the `count`th period that follows another from `anchor` on.
  func end(of period: CalendarPeriod, count: Int, from anchor: Timestamp) -> Timestamp {
    guard areSandboxRates else {
      return CalendarPeriod(months: period.months * count, days: period.days * count)
        .end(from: anchor)
    }
    return anchor + Self.sandboxLength(of: period) * count
  }

  /// A span other than a paid period, as grace and retry are.
  func span(_ duration: Duration) -> Duration {
    areSandboxRates ? duration / Self.sandboxScale : duration
  }

  // https://developer.apple.com/documentation/storekit/testing-an-auto-renewable-subscription
  private static func sandboxLength(of period: CalendarPeriod) -> Duration {
    if period.months > 0 { return .minutes(5 * period.months) }
    return period.days <= 3 ? .minutes(2) : .minutes(3)
  }
}
