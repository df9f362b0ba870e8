import AppStore
import Subscriptions

/// Which transactions a history lists, and in which order.
struct HistoryFilter {
  let isDescending: Bool
  private let start: Timestamp?
  private let end: Timestamp?
  private let products: Set<String>
  private let types: Set<String>
  private let groups: Set<String>
  private let ownership: String?
  private let isRevoked: Bool?
  /// The same for equal queries, whatever order they are written in; without the revision.
  let canonical: String

  /// Reads the parameters as strictly as Apple.
  init(_ request: ServerAPIRequest) throws {
    start = try request.date("startDate", or: .invalidStartDate)
    end = try request.date("endDate", or: .invalidEndDate)
    if let start, let end, start >= end { throw ServerAPIError.startDateAfterEndDate }
    let sort = request.value("sort") ?? "ASCENDING"
    guard ["ASCENDING", "DESCENDING"].contains(sort) else { throw ServerAPIError.invalidSort }
    isDescending = sort == "DESCENDING"
    products = Set(request.values("productId"))
    guard !products.contains("") else { throw ServerAPIError.invalidProductID }
    types = Set(request.values("productType"))
    guard types.isSubset(of: Set(ProductType.allCases.map(Self.name))) else {
      throw ServerAPIError.invalidProductType
    }
    groups = Set(request.values("subscriptionGroupIdentifier"))
    guard !groups.contains("") else { throw ServerAPIError.invalidGroup }
    ownership = request.value("inAppOwnershipType")
    guard ["PURCHASED", "FAMILY_SHARED", nil].contains(ownership) else {
      throw ServerAPIError.invalidOwnershipType
    }
    let revoked = request.value("revoked")
    guard ["true", "false", nil].contains(revoked) else { throw ServerAPIError.invalidRevoked }
    isRevoked = revoked.map { $0 == "true" }
    canonical = request.query.filter { $0.name != "revision" }
      .map { "\($0.name)=\($0.value)" }.sorted().joined(separator: "&")
  }

  private static func name(_ type: ProductType) -> String {
    switch type {
    case .autoRenewable: "AUTO_RENEWABLE"
    case .nonRenewing: "NON_RENEWABLE"
    case .nonConsumable: "NON_CONSUMABLE"
    case .consumable: "CONSUMABLE"
    }
  }

  func accepts(_ charge: Charge, _ line: Line, asOf now: Timestamp) -> Bool {
    (start.map { $0 <= charge.purchaseDate } ?? true)
      && (end.map { charge.purchaseDate < $0 } ?? true)
      && (products.isEmpty || products.contains(charge.product.id.rawValue))
      && (types.isEmpty || types.contains(Self.name(charge.product.type)))
      && (groups.isEmpty || line.group.map(groups.contains) ?? false)
      && (ownership.map { $0 == (line.ownership == .purchased ? "PURCHASED" : "FAMILY_SHARED") }
        ?? true)
      && (isRevoked.map { $0 == (charge.revocation(asOf: now) != nil) } ?? true)
  }
}
