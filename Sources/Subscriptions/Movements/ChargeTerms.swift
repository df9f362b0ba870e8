/// The product, owner and price of one charge.
package struct ChargeTerms: Hashable, Sendable {
  package var charge: Charge.ID
  package var productID: ProductID
  package var productType: ProductType?
  package var ownershipType: OwnershipType
  package var periodType: PeriodType
  package var offerID: String?
  package var quantity: Int
  /// Nil: unclaimed.
  package var owner: AccountKey?
  /// Nil where neither Apple nor the catalogue has one.
  package var price: ChargePrice?
  /// The paid period; nil for other products than subscriptions, and where nothing determines it.
  package var period: BillingPeriod?

  /// Twelfths of a milliunit per month; 0 where price or period is unknown.
  package var monthlyTwelfths: Int64 {
    guard let price, let period else { return 0 }
    return price.amountMilliunits * period.monthlyTwelfths
  }
}

package struct ChargePrice: Hashable, Sendable {
  package enum Source: String, Codable, CaseIterable, Sendable {
    case appStore = "app_store"
    /// The catalogue's price at the date: Apple reported none, as in old receipts.
    case catalogue
  }

  /// Up to a billion of any currency, so that sums of millions of charges fit a 64-bit integer.
  package static let believable: ClosedRange<Int64> = 0...1_000_000_000_000

  /// 0 for trials, and for purchases shared by a family member.
  package var amountMilliunits: Int64
  /// ISO 4217.
  package var currency: String
  package var source: Source

  /// Nil for an amount out of range, or a malformed currency code.
  init?(_ amountMilliunits: Int64?, _ currency: String?, source: Source) {
    guard let amountMilliunits, let currency, Self.believable.contains(amountMilliunits),
      currency.utf8.count == 3,
      currency.utf8.allSatisfy((UInt8(ascii: "A")...UInt8(ascii: "Z")).contains)
    else { return nil }
    self.amountMilliunits = amountMilliunits
    self.currency = currency
    self.source = source
  }

  /// The catalogue's price is for one; Apple's is for all.
  fileprivate init?(catalogue product: Product?, quantity: Int) {
    let amount = product?.priceMilliunits?.multipliedReportingOverflow(by: Int64(quantity))
    self.init(
      amount.flatMap { $0.overflow ? nil : $0.partialValue }, product?.currency,
      source: .catalogue)
  }
}

extension OriginalTransaction {
  /// The terms of each of the rule's charges, in their order, by all transactions that report it;
  /// where these disagree, the smallest identifier wins, whatever the order of arrival.
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
      ownershipType: ownershipType, periodType: periodType,
      offerID: reports.compactMap(\.offerID).first, quantity: quantity,
      owner: owner, price: price,
      period: charge.isSubscription
        ? Self.period(of: charge, periodType: periodType, product: product) : nil)
  }

  /// The period that a charge pays for.
  ///
  /// The catalogue's is preferred, because Apple's extensions and recoveries in the grace period
  /// move dates. For offers, which may cover several periods at once, and commitments, which are
  /// paid monthly, dates are preferred.
  private static func period(of charge: Charge, periodType: PeriodType, product: Product?)
    -> BillingPeriod?
  {
    let described = product?.period.flatMap { BillingPeriod($0) }
    let dated = charge.end.flatMap { BillingPeriod(nearest: $0 - charge.date) }
    return periodType == .normal && !charge.isCommitment
      ? described ?? dated : dated ?? described
  }
}

/// The subscription periods that Apple sells.
package enum BillingPeriod: String, CaseIterable, Sendable {
  case day
  case week
  case twoWeeks = "two_weeks"
  case month
  case twoMonths = "two_months"
  case threeMonths = "three_months"
  case sixMonths = "six_months"
  case year

  /// Twelfths of a period's price per month, whole numbers so that sums are exact.
  package var monthlyTwelfths: Int64 { terms.twelfths }

  /// A day counts thirty times, a week four times and two weeks twice; longer periods in part.
  private var terms: (twelfths: Int64, length: Duration) {
    switch self {
    case .day: (360, Self.length(days: 1))
    case .week: (48, Self.length(days: 7))
    case .twoWeeks: (24, Self.length(days: 14))
    case .month: (12, Self.length(months: 1))
    case .twoMonths: (6, Self.length(months: 2))
    case .threeMonths: (4, Self.length(months: 3))
    case .sixMonths: (2, Self.length(months: 6))
    case .year: (1, Self.length(months: 12))
    }
  }

  /// Finds the period within a tenth of a length of time, which covers February and daylight saving
  /// time and is unambiguous; nil for others, such as the sandbox's minutes.
  package init?(nearest length: Duration) {
    let nearest = Self.allCases.first {
      let period = $0.terms.length
      return (length - period).isWithin(period / 10)
    }
    guard let nearest else { return nil }
    self = nearest
  }

  /// `P1M`, `P4W` and `P30D` are all a month.
  package init?(_ period: CalendarPeriod) {
    self.init(nearest: Self.length(months: period.months, days: period.days))
  }

  /// A month has 487/16 days on average.
  private static func length(months: Int = 0, days: Int = 0) -> Duration {
    .minutes((months * 487 + days * 16) * 90)
  }
}
