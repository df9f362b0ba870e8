package enum ProductType: String, Codable, CaseIterable, Comparable, Sendable {
  case autoRenewable = "auto_renewable"
  case nonRenewing = "non_renewing"
  case nonConsumable = "non_consumable"
  case consumable

  /// By name, so that merging has an order.
  package static func < (lhs: ProductType, rhs: ProductType) -> Bool { lhs.rawValue < rhs.rawValue }

  /// A product's type as reported by Apple, else by the catalogue, else inferred from an expiry,
  /// which only auto-renewable subscriptions have; nil: unknown.
  static func known(
    of product: ProductID, as said: ProductType?, hasExpiry: Bool, in catalogue: Catalogue? = nil
  ) -> ProductType? {
    said ?? catalogue?[product]?.type ?? (hasExpiry ? .autoRenewable : nil)
  }
}

/// One version of a product's description in the catalogue; a new price doesn't change the past.
package struct Product: Hashable, Sendable {
  package var id: ProductID
  package var validFrom: Timestamp
  package var type: ProductType
  /// The names of the entitlements that a charge grants, sorted.
  package var entitlements: [ExactText]
  package var subscriptionGroup: String?
  /// The product's rank in its group; 1 is the highest, as in App Store Connect.
  package var level: Int?
  /// What one charge pays for; needed for non-renewing ones, whose end Apple does not report.
  package var period: CalendarPeriod?
  package var priceMilliunits: Int64?
  /// ISO 4217.
  package var currency: String?
  package var displayName: String?

  package init(
    id: ProductID, validFrom: Timestamp, type: ProductType, entitlements: [String],
    subscriptionGroup: String? = nil, level: Int? = nil, period: CalendarPeriod? = nil,
    priceMilliunits: Int64? = nil, currency: String? = nil, displayName: String? = nil
  ) {
    self.id = id
    self.validFrom = validFrom
    self.type = type
    self.entitlements = entitlements.map { ExactText($0) }.sorted()
    self.subscriptionGroup = subscriptionGroup
    self.level = level
    self.period = period
    self.priceMilliunits = priceMilliunits
    self.currency = currency
    self.displayName = displayName
  }
}

package struct Catalogue: Sendable {
  private var versions: [ProductID: [Product]]

  package init(_ products: some Sequence<Product>) {
    versions = Dictionary(grouping: products, by: \.id)
      .mapValues { $0.sorted { $0.validFrom < $1.validFrom } }
  }

  package subscript(id: ProductID) -> Product? { versions[id]?.last }

  /// The version in force at `moment`; before the first version, that one.
  package func product(_ id: ProductID, at moment: Timestamp) -> Product? {
    versions[id].flatMap { all in all.last { $0.validFrom <= moment } ?? all.first }
  }

  /// The catalogue without the versions added after `moment`.
  package func known(at moment: Timestamp) -> Catalogue {
    Catalogue(versions.values.joined().filter { $0.validFrom <= moment })
  }

  /// By product id and date.
  package var allVersions: [Product] { versions.sorted { $0.key < $1.key }.flatMap(\.value) }

  package var products: [Product] { versions.values.compactMap(\.last).sorted { $0.id < $1.id } }
}

/// A length of time by the calendar: months and years keep the day of the month if possible.
package struct CalendarPeriod: Hashable, Sendable, CustomStringConvertible {
  /// The longest accepted period; longer ones count as unlimited.
  package static let longestYears = 100

  package var months: Int
  package var days: Int

  package init(months: Int = 0, days: Int = 0) {
    (self.months, self.days) = (months, days)
  }

  /// Reads an ISO 8601 duration of years, months, weeks and days, such as `P1M` or `P1Y`; nil for
  /// anything else, for a time part, for zero, and for more than a hundred years.
  package init?(iso8601 text: String) {
    // Five digits of days are 273 years, which is too long already.
    let form = /P(?:([0-9]{1,5})Y)?(?:([0-9]{1,5})M)?(?:([0-9]{1,5})W)?(?:([0-9]{1,5})D)?/
    // Its characters are compared byte by byte.
    guard text.isASCII, let match = text.wholeMatch(of: form)?.output else { return nil }
    func number(_ digits: Substring?) -> Int { digits.flatMap { Int($0) } ?? 0 }
    let months = number(match.1) * 12 + number(match.2)
    let days = number(match.3) * 7 + number(match.4)
    // A hundred years are 36,525 days; a month has 487/16 days on average.
    guard months + days > 0, months * 487 + days * 16 <= Self.longestYears * 12 * 487 else {
      return nil
    }
    self.init(months: months, days: days)
  }

  package var description: String {
    let (years, rest) = (months / 12, months % 12)
    return "P" + (years > 0 ? "\(years)Y" : "") + (rest > 0 ? "\(rest)M" : "")
      + (days > 0 ? "\(days)D" : "")
  }

  /// The same time of day in UTC this period later, limited to the last writable moment.
  package func end(from start: Timestamp) -> Timestamp {
    let (date, millisecondOfDay) = start.dayAndTime
    let end =
      Timestamp(date.adding(months: months), millisecondOfDay: millisecondOfDay) + .days(days)
    return min(end, Timestamp.writable.upperBound)
  }
}
