/// What can be sold, in the App Store's four kinds.
package enum ProductType: String, Codable, CaseIterable, Sendable {
  case autoRenewable = "auto_renewable"
  case nonRenewing = "non_renewing"
  case nonConsumable = "non_consumable"
  case consumable
}

extension ProductType {
  /// A product's type: as Apple says, else as the catalogue does, else inferred from an expiry,
  /// which Apple gives auto-renewable subscriptions alone; nil: unknown.
  static func known(
    of product: ProductID, as said: ProductType?, hasExpiry: Bool, in catalogue: Catalogue? = nil
  ) -> ProductType? {
    said ?? catalogue?[product]?.type ?? (hasExpiry ? .autoRenewable : nil)
  }
}

/// One version of a product's description in the catalogue.
///
/// Versions are never rewritten: a price or a period that changes does not change the past.
package struct Product: Hashable, Sendable {
  package var id: ProductID
  /// From when on this version describes the product.
  package var validFrom: Timestamp
  package var type: ProductType
  /// The names of what a charge of this product lets its owner use, sorted.
  package var entitlements: [ExactText]
  package var subscriptionGroup: String?
  /// The product's rank in its group; 1 is the highest, as in App Store Connect.
  package var level: Int?
  /// The length of what one charge pays for.
  ///
  /// Needed for non-renewing subscriptions only, whose end Apple does not report.
  package var period: CalendarPeriod?
  package var priceMilliunits: Int64?
  /// ISO 4217.
  package var currency: String?
  package var displayName: String?

  /// Describes a product; the entitlements are put in order.
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

/// All versions of all products.
package struct Catalogue: Sendable {
  private var versions: [ProductID: [Product]]

  /// Takes all versions of all products, in any order.
  package init(_ products: some Sequence<Product>) {
    versions = Dictionary(grouping: products, by: \.id)
      .mapValues { $0.sorted { $0.validFrom < $1.validFrom } }
  }

  /// The product as it is described last.
  package subscript(id: ProductID) -> Product? { versions[id]?.last }

  /// The product as it was described at `moment`; before its first description, the first one.
  package func product(_ id: ProductID, at moment: Timestamp) -> Product? {
    guard let versions = versions[id] else { return nil }
    return versions.last { $0.validFrom <= moment } ?? versions.first
  }

  /// The catalogue as it was at `moment`: without the versions that were added later.
  package func known(at moment: Timestamp) -> Catalogue {
    Catalogue(versions.values.joined().filter { $0.validFrom <= moment })
  }

  /// Every version of every product, by id and date.
  package var allVersions: [Product] { versions.sorted { $0.key < $1.key }.flatMap(\.value) }

  /// Every product as it is described last, by id.
  package var products: [Product] {
    versions.values.compactMap(\.last).sorted { $0.id < $1.id }
  }
}

/// A length of time by the calendar: months and years keep the day of the month where they can.
package struct CalendarPeriod: Hashable, Sendable, CustomStringConvertible {
  /// The longest period that is read; whatever is sold for longer is sold for ever.
  package static let longestYears = 100

  package var months: Int
  package var days: Int

  package init(months: Int = 0, days: Int = 0) {
    self.months = months
    self.days = days
  }

  /// Reads an ISO 8601 duration of years, months, weeks and days, as in `P1M` or `P1Y`.
  ///
  /// Nil for anything else, for a time part, for a length of zero, and for more than a hundred
  /// years in total.
  package init?(iso8601 text: String) {
    var rest = text.utf8[...]
    guard rest.popFirst() == UInt8(ascii: "P") else { return nil }
    var (months, days, number, digits) = (0, 0, 0, 0)
    var units = "YMWD".utf8[...]
    for byte in rest {
      switch byte {
      case UInt8(ascii: "0")...UInt8(ascii: "9"):
        number = number * 10 + Int(byte - UInt8(ascii: "0"))
        digits += 1
        // Five digits of days are 273 years: more is too long anyhow.
        guard digits <= 5 else { return nil }
        continue
      // Each unit once, the longer before the shorter.
      case _ where digits == 0 || !units.contains(byte): return nil
      case UInt8(ascii: "Y"): months += number * 12
      case UInt8(ascii: "M"): months += number
      case UInt8(ascii: "W"): days += number * 7
      case UInt8(ascii: "D"): days += number
      default: return nil
      }
      units = units.drop { $0 != byte }.dropFirst()
      (number, digits) = (0, 0)
    }
    // A hundred years are 36,525 days; a month has 487/16 days on average.
    guard digits == 0, months + days > 0,
      months * 487 + days * 16 <= Self.longestYears * 12 * 487
    else { return nil }
    self.init(months: months, days: days)
  }

  package var description: String {
    let (years, rest) = (months / 12, months % 12)
    return "P" + (years > 0 ? "\(years)Y" : "") + (rest > 0 ? "\(rest)M" : "")
      + (days > 0 ? "\(days)D" : "")
  }

  /// The moment that lies this period after `start`, at the same time of day in UTC; at the latest
  /// the last one that can be written.
  package func end(from start: Timestamp) -> Timestamp {
    let (date, millisecondOfDay) = start.dayAndTime
    let end =
      Timestamp(date.adding(months: months), millisecondOfDay: millisecondOfDay) + .days(days)
    return min(end, Timestamp.writable.upperBound)
  }
}
