import Hummingbird
import HummingbirdCore
package import JSONText
import LedgerStorage
package import Subscriptions

struct ProductController: Controller {
  let api: API

  func list(_ request: Request, context: APIContext) async throws -> Response {
    let (products, next) = try Page(request.query)
      .slice(of: catalogue.products, cursor: \.id.rawValue)
    return Response { json in
      json.member("products", Array(products))
      json.member("next", next)
    }
  }

  func put(_ request: Request, context: APIContext) async throws -> Response {
    let id = ProductID(try context.parameter(.productID))
    let description = ProductDescription(body: try await request.json())
    return Response(
      try await api.catalogue.describe(
        try description.product(id, validFrom: now()), by: try context.administrator()))
  }
}

/// The body of `PUT /v1/products/{product_id}`.
package struct ProductDescription {
  /// More than any product needs, and few enough for one statement.
  static let maximumEntitlements = 100
  /// App Store Connect ranks the products of a group from 1 down.
  static let levels: ClosedRange<Int64> = 1...10_000

  let body: RequestBody

  init(body: RequestBody) { self.body = body }

  /// Reads an object from elsewhere, such as a form.
  package init(_ object: JSONValue) { body = RequestBody(object) }

  package func product(_ id: ProductID, validFrom: Timestamp) throws -> Product {
    guard let type = ProductType(exactly: try body.required("type", body.text("type"))) else {
      let types = ProductType.allCases.map(\.rawValue).joined(separator: ", ")
      throw Problem.invalid("type", "must be one of \(types)")
    }
    let level = try body.integer("level")
    if let level, !Self.levels.contains(level) {
      throw Problem.invalid(
        "level", "must be from \(Self.levels.lowerBound) (highest) to \(Self.levels.upperBound)")
    }
    let (price, currency) = try checkedPrice()
    return Product(
      id: id, validFrom: validFrom, type: type, entitlements: try checkedEntitlements(),
      subscriptionGroup: try body.text(.subscriptionGroup), level: level.map { Int($0) },
      period: try checkedPeriod(of: type), priceMilliunits: price, currency: currency,
      displayName: try body.text(.displayName))
  }

  private func checkedEntitlements() throws -> [String] {
    let entitlements = try body.required("entitlements", body.texts("entitlements"))
    guard entitlements.count <= Self.maximumEntitlements else {
      throw Problem.invalid(
        "entitlements", "must have at most \(Self.maximumEntitlements) elements")
    }
    let checked = try entitlements.map(TextField.entitlements.checked)
    guard Set(checked.map { ExactText($0) }).count == checked.count else {
      throw Problem.invalid("entitlements", "must not contain duplicates")
    }
    return checked
  }

  private func checkedPeriod(of type: ProductType) throws -> CalendarPeriod? {
    guard let period = try body.text("period") else {
      guard type != .nonRenewing else {
        throw Problem.invalid(
          "period", "is missing: Apple does not report when a non-renewing subscription ends")
      }
      return nil
    }
    guard let period = CalendarPeriod(iso8601: period) else {
      throw Problem.invalid(
        "period",
        "must be an ISO 8601 duration of years, months, weeks and days, such as P1M, and at most "
          + "\(CalendarPeriod.longestYears) years")
    }
    return period
  }

  private func checkedPrice() throws -> (milliunits: Int64?, currency: String?) {
    let (price, currency) = (try body.integer("price_milliunits"), try body.text("currency"))
    switch (price, currency) {
    case (nil, nil): break
    case (nil, _): throw Problem.invalid("price_milliunits", "is missing: `currency` needs a price")
    case (let price?, _) where !ChargePrice.believable.contains(price):
      throw Problem.invalid(
        "price_milliunits", "must be from 0 to \(ChargePrice.believable.upperBound)")
    case (_, nil):
      throw Problem.invalid("currency", "is missing: `price_milliunits` needs a currency")
    case (_, let currency?):
      guard currency.utf8.count == 3,
        currency.utf8.allSatisfy({ (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains($0) })
      else { throw Problem.invalid("currency", "must be an ISO 4217 code, such as EUR") }
    }
    return (price, currency)
  }
}

extension Product: JSONObjectWritable {
  package func writeMembers(to json: inout JSONWriter) {
    json.member("product_id", id)
    json.member("type", type)
    json.member("entitlements", entitlements.map(\.rawValue))
    json.memberIfPresent("subscription_group", subscriptionGroup)
    json.memberIfPresent("level", level)
    json.memberIfPresent("period", period?.description)
    json.memberIfPresent("price_milliunits", priceMilliunits)
    json.memberIfPresent("currency", currency)
    json.memberIfPresent("display_name", displayName)
    json.member("valid_from", validFrom)
  }
}
