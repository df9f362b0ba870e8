import Hummingbird
import HummingbirdCore
import JSONText
import LedgerStorage
import Subscriptions

/// Lists and describes the products of the catalogue.
struct ProductController: Sendable {
  let catalogue: CatalogueCache
  let now: @Sendable () -> Timestamp

  @Sendable
  func list(_ request: Request, context: APIContext) async throws -> Response {
    let (products, next) = try Page(request.uri)
      .slice(of: catalogue.catalogue.products, cursor: \.id.rawValue)
    return Response(ProductList(products: Array(products), next: next))
  }

  @Sendable
  func put(_ request: Request, context: APIContext) async throws -> Response {
    let id = ProductID(try context.parameter(.productID))
    let description = try await request.json(ProductDescription.self)
    return Response(
      try await catalogue.describe(try description.product(id, validFrom: now())))
  }
}

/// The body of `PUT /v1/products/{product_id}`.
private struct ProductDescription: Decodable {
  /// More than any product needs, and few enough for one statement.
  static let maximumEntitlements = 100
  /// App Store Connect ranks the products of a group from 1 down.
  static let levels = 1...10_000

  var type: String
  var entitlements: [String]
  var subscriptionGroup: String?
  var level: Int?
  var period: String?
  var priceMilliunits: Int64?
  var currency: String?
  var displayName: String?

  enum CodingKeys: String, CodingKey {
    case type, entitlements, level, period, currency
    case subscriptionGroup = "subscription_group"
    case priceMilliunits = "price_milliunits"
    case displayName = "display_name"
  }

  /// Validates the body.
  func product(_ id: ProductID, validFrom: Timestamp) throws -> Product {
    Product(
      id: id, validFrom: validFrom, type: try checkedType(),
      entitlements: try checkedEntitlements(),
      subscriptionGroup: try subscriptionGroup.map(TextField.subscriptionGroup.checked),
      level: try checkedLevel(), period: try checkedPeriod(),
      priceMilliunits: try checkedPrice(), currency: try checkedCurrency(),
      displayName: try displayName.map(TextField.displayName.checked))
  }

  private func checkedType() throws -> ProductType {
    guard let type = ProductType(exactly: type) else {
      let types = ProductType.allCases.map(\.rawValue).joined(separator: ", ")
      throw Problem.invalid("type", "must be one of \(types)")
    }
    return type
  }

  private func checkedEntitlements() throws -> [String] {
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

  private func checkedLevel() throws -> Int? {
    guard let level else { return nil }
    guard Self.levels.contains(level) else {
      throw Problem.invalid(
        "level", "must be from \(Self.levels.lowerBound) (highest) to \(Self.levels.upperBound)"
      )
    }
    return level
  }

  private func checkedPeriod() throws -> CalendarPeriod? {
    guard let period else {
      guard type != ProductType.nonRenewing.rawValue else {
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
    guard let priceMilliunits else {
      guard currency == nil else {
        throw Problem.invalid("price_milliunits", "is missing: `currency` needs a price")
      }
      return nil
    }
    guard ChargePrice.believable.contains(priceMilliunits) else {
      throw Problem.invalid(
        "price_milliunits", "must be from 0 to \(ChargePrice.believable.upperBound)")
    }
    return priceMilliunits
  }

  private func checkedCurrency() throws -> String? {
    guard let currency else {
      guard priceMilliunits == nil else {
        throw Problem.invalid("currency", "is missing: `price_milliunits` needs a currency")
      }
      return nil
    }
    guard currency.utf8.count == 3,
      currency.utf8.allSatisfy({ (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains($0) })
    else { throw Problem.invalid("currency", "must be an ISO 4217 code, such as EUR") }
    return currency
  }
}

private struct ProductList: JSONWritable {
  let products: [Product]
  let next: String?

  func write(to json: inout JSONWriter) {
    json.object { json in
      json.member("products", products)
      json.member("next", next)
    }
  }
}

extension Product: JSONWritable {
  func write(to json: inout JSONWriter) {
    json.object { json in
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
}
