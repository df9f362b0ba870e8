import Foundation
import JSONText
import Postgres
package import Subscriptions

/// A rate by which reports convert amounts, from a day on.
package struct Rate: Hashable, Sendable {
  package enum Subject: Hashable, Sendable {
    /// The value of one unit of a currency in the reporting currency, as codes of ISO 4217.
    case exchange(currency: String, reportingCurrency: String)
    /// Apple's commission in percent on a product, or on all products without rates of their own.
    case commission(productID: String?)
  }

  package let subject: Subject
  /// ISO 8601.
  package let validFrom: String
  /// A decimal number.
  package let value: String
}

extension Rate {
  package init(_ subject: Subject, _ value: String, validFrom: String) throws(RateFault) {
    var subject = subject
    if case .exchange(let currency, let reportingCurrency) = subject {
      subject = .exchange(
        currency: currency.uppercased(), reportingCurrency: reportingCurrency.uppercased())
    }
    self.init(subject: subject, validFrom: validFrom, value: value)
    if case .exchange(let currency, let reportingCurrency) = subject {
      for (field, code) in [
        (RateFault.Field.currency, currency), (.reportingCurrency, reportingCurrency),
      ] where !Self.currencies.contains(code) {
        throw RateFault(field: field, text: "must be a code of ISO 4217, such as EUR")
      }
      guard currency != reportingCurrency else {
        throw RateFault(field: .currency, text: "must differ from the reporting currency")
      }
    }
    if case .commission(let productID?) = subject, !(1...255).contains(productID.count) {
      throw RateFault(field: .product, text: "must have 1 to 255 characters")
    }
    let isNumber = value.wholeMatch(of: /[0-9]{1,9}(\.[0-9]{1,12})?/) != nil
    switch subject {
    case .exchange:
      guard isNumber, value.contains(/[1-9]/) else {
        throw RateFault(field: .value, text: "must be a positive number, such as 0.92")
      }
    case .commission:
      guard isNumber, let percent = Double(value), percent <= 100 else {
        throw RateFault(field: .value, text: "must be a number from 0 to 100, such as 15")
      }
    }
    guard Timestamp(rfc3339: validFrom + "T00:00:00Z") != nil, validFrom.utf8.count == 10 else {
      throw RateFault(field: .validFrom, text: "must be a date such as 2026-12-31")
    }
  }

  /// The codes of ISO 4217, past ones included.
  package static let currencies = Set(
    Locale.Currency.isoCurrencies.map { $0.identifier.uppercased() })

  /// For example `USD in EUR`.
  package var label: String {
    switch subject {
    case .exchange(let currency, let reportingCurrency): "\(currency) in \(reportingCurrency)"
    case .commission(let productID): productID ?? "all products"
    }
  }
}

/// A refused part of a rate; the text is the end of a sentence that begins with the field's name.
package struct RateFault: Error, Hashable {
  package enum Field: String, Sendable {
    case currency
    case reportingCurrency = "reporting_currency"
    case product = "product_id"
    case value
    case validFrom = "valid_from"
  }

  package let field: Field
  package let text: String
}

/// Exchange rates and Apple's commission.
///
/// A correction is another row for the same day, and a removal a row without a value; the earlier
/// rows stay, so that reports as known at a moment don't change.
package struct RateStore: LedgerStore {
  package let core: LedgerCore

  package func rates() async throws -> [Rate] {
    let rows = try await database.batch([
      """
      SELECT DISTINCT ON (reporting_currency, currency, valid_from) currency, reporting_currency,
        rate::text, to_char(valid_from, 'YYYY-MM-DD')
      FROM tenure.exchange_rate
      ORDER BY reporting_currency, currency, valid_from DESC, recorded_at DESC
      """,
      """
      SELECT DISTINCT ON (product_id, valid_from) nullif(product_id, ''), percent::text,
        to_char(valid_from, 'YYYY-MM-DD')
      FROM tenure.commission
      ORDER BY product_id, valid_from DESC, recorded_at DESC
      """,
    ])
    return try rows[0].decode(String.self, String.self, String?.self, String.self).compactMap {
      currency, reportingCurrency, value, day in
      value.map {
        Rate(
          subject: .exchange(currency: currency, reportingCurrency: reportingCurrency),
          validFrom: day, value: $0)
      }
    }
      + rows[1].decode(String?.self, String?.self, String.self).compactMap { product, value, day in
        value.map { Rate(subject: .commission(productID: product), validFrom: day, value: $0) }
      }
  }

  /// The currencies that have a rate, in no order.
  package func currencies() async throws -> [String] {
    var currencies: Set<String> = []
    for rate in try await rates() {
      if case .exchange(let currency, let reportingCurrency) = rate.subject {
        currencies.formUnion([currency, reportingCurrency])
      }
    }
    return Array(currencies)
  }

  /// Sets a rate from its day on; throws ``RateFault`` for a product that is not in the catalogue.
  package func set(_ rate: Rate, by administrator: Administrator, at now: Timestamp) async throws {
    if case .commission(let productID?) = rate.subject {
      let known = try await database.query("SELECT DISTINCT product_id FROM tenure.product")
        .decode(String.self)
      guard known.contains(where: { ProductID($0) == ProductID(productID) }) else {
        let near = productID.nearest(in: known).map { " (did you mean \($0)?)" } ?? ""
        throw RateFault(field: .product, text: "is not in the catalogue\(near)")
      }
    }
    try await record(rate, value: rate.value, by: administrator, at: now)
  }

  /// Removes the rate of a day: from then on the one before it is valid again, if there is one.
  package func remove(_ rate: Rate, by administrator: Administrator, at now: Timestamp)
    async throws
  {
    try await record(rate, value: nil, by: administrator, at: now)
  }

  private func record(
    _ rate: Rate, value: String?, by administrator: Administrator, at now: Timestamp
  ) async throws {
    let (insert, action): (SQL, AdministratorAction.Action) =
      switch rate.subject {
      case .exchange(let currency, let reportingCurrency):
        (
          """
          INSERT INTO tenure.exchange_rate (reporting_currency, currency, valid_from, rate)
          VALUES (\(reportingCurrency), \(currency), \(rate.validFrom)::date,
            \(value)::numeric)
          """, .setExchangeRate
        )
      case .commission(let productID):
        (
          """
          INSERT INTO tenure.commission (product_id, valid_from, percent)
          VALUES (\(productID ?? ""), \(rate.validFrom)::date, \(value)::numeric)
          """, .setCommission
        )
      }
    let log = administrator.action(action, on: rate.label) { json in
      json.member("value", value)
      json.member("valid_from", rate.validFrom)
    }
    try await database.withTransaction { transaction in
      _ = try await transaction.batch([insert, log.insert(at: now)])
    }
  }
}
