import AppStoreSimulator
import LedgerStorage
import Subscriptions

/// A short story: people's actions and the expected outcomes.
struct DemoScenario: Sendable {
  let title: String
  /// Why the outcome matters, for the few scenarios that are told in full; nil for the others,
  /// which the table of results lists.
  let moral: String?
  let play: @Sendable (DemoEnvironment) async throws -> Void

  init(
    _ title: String, moral: String? = nil,
    play: @escaping @Sendable (DemoEnvironment) async throws -> Void
  ) {
    self.title = title
    self.moral = moral
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

  /// All scenarios in order, which are numbered from 1.
  static let all = past + today
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
  /// The number of the App Store's charges.
  let charges: Int
  /// Those of them that the ledger lacks.
  var missing: [TransactionID] = []

  var isAsExpected: Bool {
    checks.allSatisfy(\.isMet) && audit.isClean && missing.isEmpty
  }

  func print(with printer: StoryPrinter) {
    printer.heading("\(DemoScenario.all.count) scenarios")
    let byScenario = Dictionary(grouping: checks, by: \.scenario)
    printer.table(
      DemoScenario.all.enumerated().map { position, scenario in
        let checks = byScenario[scenario.title] ?? []
        let met = checks.count(where: \.isMet)
        return [
          printer.mark(met == checks.count), "\(position + 1)", "\(met) of \(checks.count)",
          scenario.title,
        ]
      })
    let met = checks.count(where: \.isMet)
    printer.line()
    printer.remark("\(met) of \(checks.count) outcomes as expected.")
    for check in checks where !check.isMet {
      printer.remark("✗ \(check.scenario): \(check.sentence)")
    }
    printer.remark(
      "Ledger audit: \(audit.lines) original transactions, \(audit.charges) charges, "
        + "\(audit.entries) entries, \(audit.holdings) holdings, \(audit.orders) orders; "
        + "\(audit.differences.count) differences.")
    for difference in audit.differences { printer.remark("✗ \(difference)") }
    printer.remark(
      "After a poll of each original transaction, \(charges - missing.count) of \(charges) charges "
        + "of the App Store are in the ledger.")
    for charge in missing { printer.remark("✗ \(charge)") }
  }
}

/// An outcome compared with the expected one.
struct DemoCheck: Sendable {
  struct Ownership: Sendable {
    let what: String
    let transaction: TransactionID
  }

  /// The scenario's title.
  let scenario: String
  let isMet: Bool
  let sentence: String
  /// Nil: the outcome is not about a charge's owner.
  var ownership: Ownership?
}
