import AppStoreSimulator
import Subscriptions

/// What the sample app sells, and what it lets its buyers use.
enum DemoCatalogue {
  static let app = SimulatedApp.sample

  /// What each product lets its buyers use.
  static let entitlements: [ProductID: [String]] = [
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
  static let seasonLength = CalendarPeriod(months: 6)

  /// Describes every product to Tenure.
  static func describe(to tenure: TenureClient) async throws {
    for product in app.products {
      try await tenure.describe(
        product.id,
        as: TenureClient.ProductDescription(
          type: product.type, entitlements: entitlements[product.id] ?? [], group: product.group,
          level: product.group == nil ? nil : product.level,
          period: product.type == .nonRenewing
            ? seasonLength.description : product.period?.description,
          priceMilliunits: product.priceMilliunits, currency: product.currency))
    }
  }
}
