import AppStoreSimulator
import LedgerStorage
import Subscriptions

/// A short story: people's actions and the expected outcomes.
struct DemoScenario: Sendable {
  /// The scenario's number in the article on ownership; letters for scenarios beyond it.
  let number: String
  let title: String
  let play: @Sendable (DemoEnvironment) async throws -> Void

  init(
    _ number: String, _ title: String,
    play: @escaping @Sendable (DemoEnvironment) async throws -> Void
  ) {
    self.number = number
    self.title = title
    self.play = play
  }

  static let past = [
    renewalUnderAnotherLogin, purchaseAfterLapse, renewalOfThePurchase, upgradeAfterOff,
    changeAtRenewal, notificationBeforeSubmission, recoveryAfterRetry, unknownRecovery,
    purchaseAfterMonths, purchaseAfterRefund, onAfterThePurchase, renewalWithoutSubmission,
    resubscriptionWithoutSubmission, restoredLifetime, restoredMonth, refundOfAnOldMonth, lateOff,
    earlyRenewal, renewalOfAnUnclaimedPurchase, offAfterEarlyCharge, correction,
    oldSubmission, lostOrder, refund,
  ]

  static let today = [
    appleIsDown, sentTwice, fiftyAtOnce, signedWhileAppleIsDown, disorderAndForgery,
    reversedRefund, doorbell, revokedShare, purchaseFoundByToken, movedSubscription,
    foundInHistory,
  ]
}

/// The sample app's products and their entitlements.
enum DemoCatalogue {
  static let app = SimulatedApp.sample

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

  /// The length of a non-renewing season pass, which Apple doesn't know.
  static let seasonLength = CalendarPeriod(months: 6)

  /// Adds every product to Tenure's catalogue.
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

struct DemoSummary {
  let checks: [DemoCheck]
  let audit: LedgerAudit

  func print(with printer: StoryPrinter) {
    printer.heading("∑", "Results")
    printer.table(
      [["", "scenario", "charge", "expected owner", "owner", "rule"]]
        + checks.compactMap { check in
          check.ownership.map {
            [
              StoryPrinter.mark(check.isMet), check.scenario, $0.what,
              $0.expected ?? "unclaimed", $0.owner ?? "unclaimed", $0.rule.rawValue,
            ]
          }
        })
    let met = checks.count(where: \.isMet)
    let scenarios = Set(checks.map(\.scenario)).count
    printer.line()
    printer.remark("\(scenarios) scenarios: \(met) of \(checks.count) outcomes as expected.")
    for check in checks where !check.isMet {
      printer.remark("✗ scenario \(check.scenario): \(check.sentence)")
    }
    printer.remark(
      "Ledger audit: \(audit.lines) original transactions, \(audit.charges) charges, "
        + "\(audit.entries) entries, \(audit.holdings) holdings, \(audit.orders) orders; "
        + "\(audit.differences.count) differences.")
    for difference in audit.differences { printer.remark("✗ \(difference)") }
  }
}

/// An outcome compared with the expected one.
struct DemoCheck: Sendable {
  struct Ownership: Sendable {
    let what: String
    let transaction: TransactionID
    let expected: String?
    let owner: String?
    let rule: Decision.Rule
  }

  let scenario: String
  let isMet: Bool
  let sentence: String
  /// Nil: the outcome is not about a charge's owner.
  var ownership: Ownership?
}
