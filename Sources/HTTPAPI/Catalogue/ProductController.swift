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

  func product(_ id: ProductID, validFrom: Timestamp) throws -> Product {
    var problems: [Problem] = []
    guard let product = try product(id, validFrom: validFrom, noting: &problems) else {
      throw problems[0]
    }
    return product
  }

  /// Checks all fields; nil if there are problems.
  package func product(
    _ id: ProductID, validFrom: Timestamp, noting problems: inout [Problem]
  ) throws -> Product? {
    let type = try problems.note(checkedType)
    let level = try problems.note(checkedLevel)
    let price = try problems.note(checkedPrice)
    let currency = try problems.note(checkedCurrency)
    let entitlements = try problems.note(checkedEntitlements)
    let group = try problems.note { try body.text(.subscriptionGroup) }
    let period = try problems.note { try checkedPeriod(of: type) }
    let name = try problems.note { try body.text(.displayName) }
    guard let type, let entitlements, problems.isEmpty else { return nil }
    return Product(
      id: id, validFrom: validFrom, type: type, entitlements: entitlements,
      subscriptionGroup: group ?? nil, level: level ?? nil, period: period ?? nil,
      priceMilliunits: price ?? nil, currency: currency ?? nil, displayName: name ?? nil)
  }

  private func checkedType() throws -> ProductType {
    guard let type = ProductType(exactly: try body.required("type", body.text("type"))) else {
      let types = ProductType.allCases.map(\.rawValue).joined(separator: ", ")
      throw Problem.invalid("type", "must be one of \(types)")
    }
    return type
  }

  private func checkedLevel() throws -> Int? {
    guard let level = try body.integer("level") else { return nil }
    guard Self.levels.contains(level) else {
      throw Problem.invalid(
        "level", "must be from \(Self.levels.lowerBound) (highest) to \(Self.levels.upperBound)")
    }
    return Int(level)
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

  private func checkedPeriod(of type: ProductType?) throws -> CalendarPeriod? {
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

  private func checkedPrice() throws -> Int64? {
    guard let price = try body.integer("price_milliunits") else {
      guard body.isWithout("currency") else {
        throw Problem.invalid("price_milliunits", "is missing: `currency` needs a price")
      }
      return nil
    }
    guard ChargePrice.believable.contains(price) else {
      throw Problem.invalid(
        "price_milliunits", "must be from 0 to \(ChargePrice.believable.upperBound)")
    }
    return price
  }

  private func checkedCurrency() throws -> String? {
    guard let currency = try body.text("currency") else {
      guard body.isWithout("price_milliunits") else {
        throw Problem.invalid("currency", "is missing: `price_milliunits` needs a currency")
      }
      return nil
    }
    guard currency.isThreeCapitals else {
      throw Problem.invalid("currency", "must be an ISO 4217 code, such as EUR")
    }
    return currency
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
