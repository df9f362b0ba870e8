package import Subscriptions

/// A column of a report.
package struct ReportColumn: Hashable, Sendable {
  /// How its values are read and shown.
  package enum Kind: String, Sendable {
    case text
    case number
    case time
    /// In milliseconds.
    case duration
    /// A day without a time.
    case date
    /// Milliunits of the row's currency.
    case money
    /// An exact decimal fraction.
    case fraction
    /// A part of 1.
    case rate
    case flag
  }

  /// As in JSON and CSV.
  package let name: String
  package let kind: Kind

  init(_ name: String, _ kind: Kind) {
    self.name = name
    self.kind = kind
  }
}

/// One value of a report.
package enum ReportValue: Hashable, Sendable {
  case text(String)
  case number(Int64)
  case time(Timestamp)
  case duration(milliseconds: Int64)
  case date(String)
  /// Thousandths of a unit of a currency by its code of ISO 4217; nil: it is not known.
  case money(milliunits: Int64, currency: String?)
  /// As the database writes it: never a binary fraction.
  case fraction(String)
  /// Of 1, as the database writes it.
  case rate(String)
  case flag(Bool)
  /// Not known, or without meaning in this row.
  case none
}

/// What a report answers.
package struct ReportTable: Hashable, Sendable {
  package let report: Report
  /// The moment that it is about.
  package let asOf: Timestamp
  package let columns: [ReportColumn]
  /// Each with a value for each column.
  package let rows: [[ReportValue]]
  /// There are more rows than were asked for.
  package let isCutShort: Bool
}
