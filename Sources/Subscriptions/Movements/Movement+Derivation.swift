extension Movement {
  /// Derives all movements of an original transaction, past and expected; in order, unique by key.
  package static func movements(
    of line: OriginalTransaction, rule: OwnershipRule, in catalogue: Catalogue
  ) -> [Movement] {
    let terms = line.terms(rule, in: catalogue)
    var journal = Journal()
    let ownerships = line.ownerships(rule)
    let expiries = line.expiries
    for (charge, terms) in zip(rule.charges, terms) {
      journal.add(charge, terms, ownerships[charge.id], expiries[charge.id])
    }
    journal.add(SubscriptionTimeline(of: line, rule: rule, terms: terms))
    // Apple never reports two charges under one name; should it, recording must not fail.
    var keys: Set<Movement.Key> = []
    return journal.movements.sorted().filter { keys.insert($0.key).inserted }
  }
}

private struct Journal {
  private typealias Span = SubscriptionTimeline.Span

  private(set) var movements: [Movement] = []

  private mutating func add(
    _ kind: Movement.Kind, at moment: Timestamp, _ terms: ChargeTerms, number: Int = 1,
    cause: String = "", from origin: Timestamp? = nil, price: ChargePrice? = nil, amount: Int64 = 0,
    monthlyTwelfths: Int64 = 0, ownership: Movement.Ownership? = nil, expiry: Movement.Expiry? = nil
  ) {
    var terms = terms
    terms.period = nil
    terms.price = price
    terms.price?.amountMilliunits = amount
    movements.append(
      Movement(
        kind: kind, at: moment, terms: terms, cause: cause, originAt: origin, number: number,
        monthlyTwelfths: monthlyTwelfths, ownership: ownership, expiry: expiry))
  }

  // MARK: Charges

  mutating func add(
    _ charge: Charge, _ terms: ChargeTerms, _ ownership: Movement.Ownership?,
    _ expiry: Movement.Expiry?
  ) {
    let amount = terms.price?.amountMilliunits ?? 0
    add(
      .charged, at: charge.date, terms, price: terms.price, amount: amount, ownership: ownership,
      expiry: expiry)
    if let revocation = charge.revocation, revocation.isRefund {
      add(
        .refunded, at: revocation.at, terms, number: -1, cause: revocation.reason ?? "",
        from: charge.date, price: terms.price, amount: -revocation.refunded(of: amount))
    }
  }

  // MARK: The subscription

  mutating func add(_ timeline: SubscriptionTimeline) {
    addStates(timeline.spans)
    addPaid(timeline.spans)
    addTrials(timeline.spans)
    addTrouble(timeline.spans)
    for change in timeline.switches {
      add(change.isOn ? .autoRenewOn : .autoRenewOff, at: change.at, change.terms)
    }
  }

  /// One movement out of each state, by the charge that ran last, and one into the next, also if
  /// product, ownership or segment change, so that the stock of each is right.
  private mutating func addStates(_ spans: [Span]) {
    var last: Span?
    for span in spans {
      defer { last = span }
      if let last {
        if last.state == span.state, last.terms.isCountedWith(span.terms) { continue }
        add(.state, at: span.start, last.terms, number: -1, cause: last.state.rawValue)
      }
      add(.state, at: span.start, span.terms, cause: span.state.rawValue)
    }
  }

  /// All movements of an uninterrupted paid time are in the segments of its first charge.
  private mutating func addPaid(_ spans: [Span]) {
    guard let first = spans.first(where: \.isPaid)?.start else { return }
    var last: Span?
    var begin: ChargeTerms?
    for var span in spans {
      begin = span.isPaid ? begin ?? span.terms : nil
      if let begin { span.terms.join(begin) }
      defer { last = span }
      let moment = span.start
      switch (last.flatMap { $0.isPaid ? $0 : nil }, span.isPaid) {
      case (nil, true) where moment == first: addPaid(.started, at: moment, span.terms, from: first)
      case (nil, true):
        addPaid(
          .resumed, at: moment, span.terms,
          cause: last?.state == .inBillingRetry ? Movement.recovered : "", from: first)
      case (let last?, false):
        addPaid(
          .ended, at: moment, last.terms, number: -1,
          cause: (last.endCause ?? .unknown).rawValue, from: first)
      case (let last?, true): addChange(from: last.terms, to: span.terms, at: moment, since: first)
      case (nil, false): break
      }
    }
  }

  private mutating func addPaid(
    _ kind: Movement.Kind, at moment: Timestamp, _ terms: ChargeTerms, number: Int = 1,
    cause: String = "", from first: Timestamp
  ) {
    add(
      kind, at: moment, terms, number: number, cause: cause, from: first, price: terms.price,
      monthlyTwelfths: Int64(number) * terms.monthlyTwelfths)
  }

  /// The change of paid subscriptions and MRR from one charge to the next; another currency or
  /// price source moves the whole amount, and a change of the price itself is separate.
  private mutating func addChange(
    from old: ChargeTerms, to new: ChargeTerms, at moment: Timestamp, since first: Timestamp
  ) {
    guard old.charge != new.charge else { return }
    let (was, becomes) = (old.monthlyTwelfths, new.monthlyTwelfths)
    if old.productID != new.productID || old.ownershipType != new.ownershipType {
      addPaid(.changedFrom, at: moment, old, number: -1, from: first)
      addPaid(.changedTo, at: moment, new, from: first)
      return
    }
    let hasOtherCurrency = old.price?.currency != new.price?.currency
    if hasOtherCurrency || old.price?.source != new.price?.source {
      add(
        .repriced, at: moment, old, number: 0, cause: "from", from: first, price: old.price,
        monthlyTwelfths: -was)
      add(
        .repriced, at: moment, new, number: 0, cause: "to", from: first, price: new.price,
        monthlyTwelfths: hasOtherCurrency ? becomes : was)
    }
    guard !hasOtherCurrency,
      was != becomes || old.price?.amountMilliunits != new.price?.amountMilliunits
    else { return }
    add(
      .repriced, at: moment, new, number: 0, from: first, price: new.price,
      monthlyTwelfths: becomes - was)
  }

  private mutating func addTrials(_ spans: [Span]) {
    var trial: Span?
    for (index, span) in spans.enumerated() {
      if let begun = trial, !span.isTrial || !begun.terms.isCountedWith(span.terms) {
        addTrialEnd(before: index, in: spans, begunAt: begun.start)
        trial = nil
      }
      if trial == nil, span.isTrial {
        add(.trialStarted, at: span.start, span.terms, from: span.start)
        trial = span
      }
    }
  }

  /// A trial is converted when a paid period follows; if Apple retried the charge in between, the
  /// trial ended unpaid first, and that end is reversed and replaced by a conversion.
  private mutating func addTrialEnd(before index: Int, in spans: [Span], begunAt start: Timestamp) {
    let last = spans[index - 1]
    func add(at moment: Timestamp, number: Int = -1, _ cause: String) {
      self.add(.trialEnded, at: moment, last.terms, number: number, cause: cause, from: start)
    }
    let isPaid = last.endCause == nil && spans[index].isPaid
    let cause = isPaid ? Movement.converted : (last.endCause ?? .unknown).rawValue
    add(at: spans[index].start, cause)
    guard last.endCause != .refunded, spans[index].state == .inBillingRetry,
      let payment = spans[index...].first(where: { $0.state != .inBillingRetry }), payment.isPaid
    else { return }
    add(at: payment.start, number: 1, Movement.recovered)
    add(at: payment.start, Movement.converted)
  }

  private mutating func addTrouble(_ spans: [Span]) {
    var begun: Span?
    for (index, span) in spans.enumerated() {
      if let start = begun, !span.isInTrouble || start.terms.charge != span.terms.charge {
        let isRecovered = span.isPaid || span.isTrial
        add(
          isRecovered ? .billingRecovered : .billingLost, at: span.start,
          isRecovered ? span.terms : start.terms, from: start.start)
        begun = nil
      }
      guard span.isInTrouble else { continue }
      begun = begun ?? span
      if index == 0 || spans[index - 1].state != span.state
        || spans[index - 1].terms.charge != span.terms.charge
      {
        add(
          span.state == .inGracePeriod ? .graceEntered : .retryEntered, at: span.start, span.terms)
      }
    }
  }
}

extension OriginalTransaction {
  /// By transaction, whether it names a charge or not.
  fileprivate var expiries: [Charge.ID: Movement.Expiry] {
    Dictionary(
      history.transactions.map { ($0.key, Movement.Expiry(date: $0.expiresDate?.value)) },
      uniquingKeysWith: { first, _ in first })
  }

  fileprivate func ownerships(_ rule: OwnershipRule) -> [Charge.ID: Movement.Ownership] {
    var moves: [Charge.ID: Movement.Ownership.Move] = [:]
    var accounts: Set<AccountKey> = []
    var last: Binding?
    for binding in Binding.bindings(of: rule.charges, decisions: rule.decisions) {
      let isNew = binding.account.map { accounts.insert($0).inserted } ?? false
      if let last {
        let isSecond = isNew && accounts.count == 2
        moves[binding.charge] = Movement.Ownership.Move(
          from: last.account, sharedWith: isSecond ? accounts.first { $0 != binding.account } : nil)
      }
      last = binding
    }
    return rule.charges.reduce(into: [:]) { ownerships, charge in
      guard let recorded = decisions[charge.id] else { return }
      ownerships[charge.id] = Movement.Ownership(
        rule: recorded.decision.rule, decidedAt: recorded.decidedAt,
        correctedAt: recorded.correctedAt, move: moves[charge.id],
        isRenewal: recorded.decision.isAutomaticRenewal(charge.kind))
    }
  }
}

extension ChargeTerms {
  /// Whether reports count both in the same place.
  fileprivate func isCountedWith(_ other: ChargeTerms) -> Bool {
    productID == other.productID && ownershipType == other.ownershipType
      && periodType == other.periodType && offerType == other.offerType
      && storefront == other.storefront
  }

  fileprivate mutating func join(_ other: ChargeTerms) {
    (periodType, offerType, storefront) = (other.periodType, other.offerType, other.storefront)
  }
}

/// The product, owner and price of one charge.
package struct ChargeTerms: Hashable, Sendable {
  package var charge: Charge.ID
  package var productID: ProductID
  package var productType: ProductType?
  package var ownershipType: OwnershipType
  package var periodType: PeriodType
  package var offerType: OfferType?
  package var offerID: String?
  package var storefront: String?
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
      currency.isThreeCapitals
    else { return nil }
    (self.amountMilliunits, self.currency, self.source) = (amountMilliunits, currency, source)
  }

  /// The catalogue's price is for one; Apple's is for all.
  fileprivate init?(catalogue product: Product?, quantity: Int) {
    let amount = product?.priceMilliunits?.multipliedReportingOverflow(by: Int64(quantity))
    self.init(
      amount.flatMap { $0.overflow ? nil : $0.partialValue }, product?.currency, source: .catalogue)
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

  /// The terms of a charge without its owner and the catalogue's price.
  package func reportedTerms(of charge: Charge) -> ChargeTerms {
    terms(of: charge, owner: nil, in: Catalogue([]))
  }

  func terms(of charge: Charge, owner: AccountKey?, in catalogue: Catalogue) -> ChargeTerms {
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
      offerType: reports.compactMap(\.offerType).min(),
      offerID: reports.compactMap(\.offerID).first,
      storefront: reports.compactMap(\.storefront).first, quantity: quantity,
      owner: owner, price: price,
      period: charge.isSubscription
        ? Self.period(of: charge, periodType: periodType, product: product) : nil)
  }

  /// The period that a charge pays for: the catalogue's, because Apple's extensions and recoveries
  /// move dates, but by dates for offers, which may cover several periods at once, and commitments,
  /// which are paid monthly.
  private static func period(of charge: Charge, periodType: PeriodType, product: Product?)
    -> BillingPeriod?
  {
    let described = product?.period.flatMap { BillingPeriod($0) }
    let dated = charge.end.flatMap { BillingPeriod(nearest: $0 - charge.date) }
    return periodType == .normal && !charge.isCommitment ? described ?? dated : dated ?? described
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
