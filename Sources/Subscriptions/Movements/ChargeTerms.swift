/// What one charge is for, whose it is, and what was paid for it.
package struct ChargeTerms: Hashable, Sendable {
  package var charge: Charge.ID
  package var productID: ProductID
  package var productType: ProductType?
  package var subscriptionGroup: String?
  package var ownershipType: OwnershipType
  package var periodType: PeriodType
  package var offerID: String?
  package var quantity: Int
  /// The account that owns the charge; nil: it is unclaimed.
  package var owner: AccountKey?
  /// Nil where neither Apple nor the catalogue names one.
  package var price: ChargePrice?
  /// For how long the charge pays; nil for what is no subscription, and where nothing tells.
  package var period: BillingPeriod?

  /// Twelfths of a milliunit that the charge comes to in a month; 0 where price or period is not
  /// known.
  package var monthlyTwelfths: Int64 {
    guard let price, let period else { return 0 }
    return price.amountMilliunits * period.monthlyTwelfths
  }
}

/// What was paid for a charge.
package struct ChargePrice: Hashable, Sendable {
  /// Who says so.
  package enum Source: String, Codable, CaseIterable, Sendable {
    case appStore = "app_store"
    /// Apple named no price, as old receipts don't: it is what the catalogue had at that date.
    case catalogue
  }

  /// Up to a billion of any currency, so that sums of millions of charges fit a 64-bit integer.
  package static let believable: ClosedRange<Int64> = 0...1_000_000_000_000

  /// Nothing for trials, and for what somebody else of the family paid.
  package var amountMilliunits: Int64
  /// ISO 4217.
  package var currency: String
  package var source: Source

  /// Nil for what is no price: an amount below zero, or a currency that is no code.
  init?(_ amountMilliunits: Int64?, _ currency: String?, source: Source) {
    guard let amountMilliunits, let currency, Self.believable.contains(amountMilliunits),
      currency.utf8.count == 3,
      currency.utf8.allSatisfy((UInt8(ascii: "A")...UInt8(ascii: "Z")).contains)
    else { return nil }
    self.amountMilliunits = amountMilliunits
    self.currency = currency
    self.source = source
  }

  /// What some of a product cost: Apple's price is for all of them, the catalogue's for one.
  fileprivate init?(catalogue product: Product?, quantity: Int) {
    let amount = product?.priceMilliunits?.multipliedReportingOverflow(by: Int64(quantity))
    self.init(
      amount.flatMap { $0.overflow ? nil : $0.partialValue }, product?.currency,
      source: .catalogue)
  }
}

extension Line {
  /// The terms of a line's charges, one after the other.
  ///
  /// They are facts of all the transactions that report a charge, the smallest identifier first
  /// where these disagree: so the order in which they arrived is none of them.
  ///
  /// - Parameters:
  ///   - rule: The line's charges and decisions.
  ///   - catalogue: What products cost, and for how long.
  /// - Returns: The terms of each of the rule's charges, in their order.
  package func terms(_ rule: OwnershipRule, in catalogue: Catalogue) -> [ChargeTerms] {
    zip(rule.charges, rule.decisions).map { charge, decision in
      terms(of: charge, owner: decision.owner, in: catalogue)
    }
  }

  private func terms(of charge: Charge, owner: AccountKey?, in catalogue: Catalogue)
    -> ChargeTerms
  {
    let reports = charge.transactions.sorted().compactMap { history[$0] }
    let product = catalogue.product(charge.productID, at: charge.date)
    let quantity = max(1, reports.first?.quantity ?? 1)
    let periodType = reports.map(\.periodType).min() ?? .normal
    let ownershipType = reports.map(\.ownershipType).min() ?? .purchased
    var price =
      reports.lazy.compactMap {
        ChargePrice($0.priceMilliunits, $0.currency, source: .appStore)
      }.first ?? ChargePrice(catalogue: product, quantity: quantity)
    if periodType == .trial || ownershipType == .familyShared { price?.amountMilliunits = 0 }
    return ChargeTerms(
      charge: charge.id, productID: charge.productID, productType: charge.type(in: catalogue),
      subscriptionGroup: reports.compactMap(\.subscriptionGroup).first
        ?? product?.subscriptionGroup,
      ownershipType: ownershipType, periodType: periodType,
      offerID: reports.compactMap(\.offerID).first, quantity: quantity,
      owner: owner, price: price,
      period: charge.isSubscription
        ? Self.period(of: charge, periodType: periodType, product: product) : nil)
  }

  /// For how long a charge pays.
  ///
  /// That is what the catalogue says: dates may have been moved, by Apple's extension or by a
  /// recovery in the grace period. But an offer may be paid for several periods at once, and a
  /// commitment month by month; of these the dates tell first.
  private static func period(of charge: Charge, periodType: PeriodType, product: Product?)
    -> BillingPeriod?
  {
    let described = product?.period.flatMap { BillingPeriod($0) }
    let dated = charge.end.flatMap { BillingPeriod(nearest: $0 - charge.date) }
    return periodType == .normal && !charge.isCommitment
      ? described ?? dated : dated ?? described
  }
}

/// For how long one charge of a subscription pays, among the lengths that Apple sells.
package enum BillingPeriod: String, CaseIterable, Sendable {
  case day
  case week
  case twoWeeks = "two_weeks"
  case month
  case twoMonths = "two_months"
  case threeMonths = "three_months"
  case sixMonths = "six_months"
  case year

  /// How many twelfths of a period's price one month comes to.
  ///
  /// A day counts thirty times, a week four times and two weeks twice; of longer periods a month is
  /// a part. Twelfths make all of these whole numbers, so that sums are exact.
  package var monthlyTwelfths: Int64 {
    switch self {
    case .day: 360
    case .week: 48
    case .twoWeeks: 24
    case .month: 12
    case .twoMonths: 6
    case .threeMonths: 4
    case .sixMonths: 2
    case .year: 1
    }
  }

  /// Finds the period that a length of time comes nearest to, a tenth more or less.
  ///
  /// A tenth is enough for February and for clocks that change, and too little for two periods to
  /// be within it of one length. Nil for any other length: the sandbox's minutes, say.
  package init?(nearest length: Duration) {
    let milliseconds = length.inMilliseconds
    let nearest = Self.allCases.first { period in
      let deviation = (milliseconds - period.milliseconds).magnitude
      return deviation <= period.milliseconds.magnitude / 10
    }
    guard let nearest else { return nil }
    self = nearest
  }

  /// Finds the period that the catalogue means: `P1M`, `P4W` and `P30D` are all a month.
  package init?(_ period: CalendarPeriod) {
    self.init(nearest: Self.length(months: period.months, days: period.days))
  }

  private var milliseconds: Int64 {
    switch self {
    case .day: Self.length(days: 1).inMilliseconds
    case .week: Self.length(days: 7).inMilliseconds
    case .twoWeeks: Self.length(days: 14).inMilliseconds
    case .month: Self.length(months: 1).inMilliseconds
    case .twoMonths: Self.length(months: 2).inMilliseconds
    case .threeMonths: Self.length(months: 3).inMilliseconds
    case .sixMonths: Self.length(months: 6).inMilliseconds
    case .year: Self.length(months: 12).inMilliseconds
    }
  }

  /// A month has 487/16 days on average.
  private static func length(months: Int = 0, days: Int = 0) -> Duration {
    .minutes((months * 487 + days * 16) * 90)
  }
}
