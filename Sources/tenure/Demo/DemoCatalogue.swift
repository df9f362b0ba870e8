import AppStoreSimulator
import Subscriptions

/// What the sample app sells, and what it lets its buyers use.
enum DemoCatalogue {
  static let app = SimulatedApp.sample

  private static let entitlements: [ProductID: [String]] = [
    "premium": ["premium", "pro"],
    "monthly": ["pro"],
    "monthly.student": ["pro"],
    "quarterly": ["pro"],
    "yearly": ["pro"],
    "news.weekly": ["news"],
    "coins.100": [],
    "lifetime": ["lifetime"],
    "season.pass": ["season"],
  ]

  /// How long a season is: Apple doesn't know.
  private static let season = "P6M"

  /// Describes every product to Tenure.
  static func describe(to tenure: TenureClient) async throws {
    for product in app.products {
      try await tenure.describe(
        product.id,
        as: TenureClient.ProductDescription(
          type: product.type, entitlements: entitlements[product.id] ?? [], group: product.group,
          level: product.group == nil ? nil : product.level,
          period: product.type == .nonRenewing ? season : product.period?.description,
          priceMilliunits: product.priceMilliunits, currency: product.currency))
    }
  }
}
