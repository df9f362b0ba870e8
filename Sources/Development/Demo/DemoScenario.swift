import AppStoreSimulator
import LedgerStorage
import Subscriptions

/// One small story, told on the stage: what people do, and what has to come out.
struct DemoScenario: Sendable {
  /// As the worked scenarios of the ownership rule are numbered; letters for those beyond.
  let number: String
  let title: String
  let play: @Sendable (DemoStage) async throws -> Void

  init(
    _ number: String, _ title: String, play: @escaping @Sendable (DemoStage) async throws -> Void
  ) {
    self.number = number
    self.title = title
    self.play = play
  }

  /// What happened in the past years, in this order.
  static let past = [
    renewalUnderAnotherLogin, purchaseAfterLapse, renewalOfThePurchase, upgradeAfterOff,
    changeAtRenewal, newsBeforeSubmission, recoveryAfterRetry, unknownRecovery,
    purchaseAfterMonths, purchaseAfterRefund, onAfterThePurchase, renewalNobodySubmits,
    resubscriptionNobodySubmits, restoredLifetime, restoredMonth, refundOfAnOldMonth, lateOff,
    earlyRenewal, renewalOfAnUnclaimedPurchase, offAfterEarlyCharge, correction,
    oldSubmission, lostOrder, refund,
  ]

  /// What happens today.
  static let today = [
    appleIsDown, sentTwice, fiftyAtOnce, signedWhileAppleIsDown, disorderAndForgery,
    reversedRefund, doorbell, revokedShare, purchaseFoundByToken, movedSubscription,
    foundInHistory,
  ]
}

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

/// How the story came out, as a table.
struct DemoSummary {
  let checks: [DemoCheck]
  let audit: LedgerAudit

  func print(with printer: StoryPrinter) {
    printer.heading("∑", "What came out")
    printer.table(
      [["", "scenario", "charge", "expected owner", "owner", "rule"]]
        + checks.compactMap { check in
          check.ownership.map {
            [
              StoryPrinter.mark(check.isMet), check.scenario, $0.what, $0.expected ?? "nobody",
              $0.owner ?? "nobody", $0.rule.rawValue,
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
      "The ledger, recomputed: \(audit.lines) original transactions, \(audit.charges) charges, "
        + "\(audit.entries) entries, \(audit.holdings) holdings, \(audit.orders) orders; "
        + "\(audit.differences.count) differences.")
    for difference in audit.differences { printer.remark("✗ \(difference)") }
  }
}

/// One outcome that was compared with what the rule's article says.
struct DemoCheck: Sendable {
  /// Whose a charge is.
  struct Ownership: Sendable {
    let what: String
    let transaction: TransactionID
    let expected: String?
    let owner: String?
    let rule: Decision.Rule
  }

  let scenario: String
  let isMet: Bool
  /// What came out, in words.
  let sentence: String
  /// Nil: the outcome is about something else.
  var ownership: Ownership?
}
