import AppStore
import AppStoreSimulator
import Foundation
import Subscriptions
import Testing

/// Two years of one Apple ID on which two accounts buy, and of a family member: what each way to
/// the ledger would have brought, moment by moment.
struct Life: Sendable {
  /// A way by which Apple's words come.
  enum Source: String, CaseIterable, Sendable {
    /// The device's receipt, submitted.
    case receipts
    /// StoreKit 2 transactions, submitted by the app.
    case signedTransactions = "signed transactions"
    /// Notifications of version 2.
    case notifications
    /// Notifications of version 1, behind which Apple is asked.
    case doorbells
    /// The App Store Server API, asked about the line.
    case polls
    /// verifyReceipt, asked about a receipt that was stored once.
    case receiptPolls = "polls by receipt"

    /// Whether it names the app server's account.
    var claims: Bool { self == .receipts || self == .signedTransactions }
  }

  /// One thing that a source brought.
  struct Item: Sendable {
    enum Content: Sendable {
      case receipt(String, by: String)
      case signed(transactions: [String], renewalInfo: [String], by: String)
      case notification([UInt8])
      case doorbell([UInt8])
      case poll(OriginalTransactionKey, after: String?)
      case receiptPoll(String)
    }

    let source: Source
    /// When it was there.
    let at: Timestamp
    let content: Content
    /// Apple's responses at the time, by receipt.
    var receiptAnswers: [String: [UInt8]] = [:]
    /// The App Store Server API's responses at the time, by path and query.
    var serverAnswers: [String: [UInt8]] = [:]
  }

  static let accounts = ["anna", "ben", "mia"]
  static let begin = Timestamp(CalendarDate(year: 2026, month: 1, day: 1))
  static let end = Timestamp(CalendarDate(year: 2028, month: 1, day: 5))

  static let app: SimulatedApp = {
    var app = SimulatedApp.sample
    let month = CalendarPeriod(months: 1)
    app.products = [
      .subscription("premium", group: "1", level: 1, period: month, isFamilyShareable: true),
      .subscription(
        "monthly", group: "1", level: 2, period: month,
        introductoryOffer: SimulatedProduct.IntroductoryOffer(period: CalendarPeriod(days: 7))),
      .subscription("quarterly", group: "1", level: 2, period: CalendarPeriod(months: 3)),
      .oneTime("coins", .consumable),
      .oneTime("lifetime", .nonConsumable, isFamilyShareable: true),
    ]
    return app
  }()

  let signer: SimulatedSigner
  /// In the order in which they came.
  let items: [Item]
  /// Every charge, as it really was.
  let truth: [SimulatedCharge]

  /// When anything happened.
  var moments: [Timestamp] { Set(items.map(\.at)).sorted() }

  func items(of source: Source) -> [Item] {
    items.filter { $0.source == source }
  }

  /// A charge's name in this life: product and day, and whose it is if it was shared.
  static func name(of charge: SimulatedCharge) -> String {
    let day = charge.purchaseDate.description.prefix(10)
    return (charge.ownership == .familyShared ? "shared " : "") + "\(charge.productID) \(day)"
  }

  /// Lives it once; `tokens` are what each account's app attaches to purchases.
  static func lived(with tokens: [String: UUID] = [:]) async throws -> Life {
    let recorder = try LifeRecorder(tokens: tokens)
    try await recorder.live()
    return Life(
      signer: recorder.signer, items: recorder.items, truth: recorder.simulation.truth())
  }
}

extension LifeRecorder {
  /// The life itself.
  // swift-format-ignore
  fileprivate func live() async throws {
    // A trial, months that renew, a failure with grace, another without.
    try await at("2026-01-05T10:00", on: "phone") { [try $0.buy("monthly", on: "phone")] }
    try await at("2026-04-05T10:00", on: "phone") { try $0.failCard(of: "ada"); return [] }
    try await at("2026-04-20T10:00", on: "phone") { try $0.repairCard(of: "ada") }
    try await at("2026-05-20T10:00", on: "phone") { try $0.simulation.setGracePeriod(nil); return [] }
    try await at("2026-06-01T10:00", on: "phone") { try $0.failCard(of: "ada"); return [] }
    try await at("2026-06-30T10:00", on: "phone") { try $0.repairCard(of: "ada") }
    try await at("2026-07-05T10:00", on: "phone") {
      try $0.simulation.setGracePeriod(.sixteenDays); return []
    }
    // Bought once.
    try await at("2026-08-03T10:00", on: "phone") { [try $0.buy("coins", on: "phone")] }
    try await at("2026-08-04T10:00", on: "phone") { try $0.finishCoins(); return [] }
    try await at("2026-08-10T10:00", on: "phone") { [try $0.buy("lifetime", on: "phone")] }
    try await at("2026-08-15T10:00", on: "tablet") { try $0.restore(on: "tablet") }
    // Anna leaves; Ben buys on the same Apple ID, upgrades, shares, and goes down again.
    try await at("2026-09-05T10:00", on: "phone") { [try $0.setAutoRenew(false, on: "phone")] }
    try await at("2026-10-20T10:00", on: "tablet") { [try $0.buy("quarterly", on: "tablet")] }
    try await at("2027-02-10T10:00", on: "tablet") { [try $0.buy("premium", on: "tablet")] }
    try await at("2027-02-15T10:00", on: "mia's phone") { try $0.addMia() }
    try await at("2027-03-20T10:00", on: "mia's phone") { try $0.revokeMia() }
    try await at("2027-03-25T10:00", on: "tablet") { [try $0.buy("monthly", on: "tablet")] }
    // Refunds: of an old month of Anna's, and of Ben's current one, which is reversed.
    try await at("2027-04-20T10:00", on: "tablet") { [try $0.refund("monthly 2026-05-12")] }
    try await at("2027-05-20T10:00", on: "tablet") { [try $0.refundLatest()] }
    try await at("2027-05-28T10:00", on: "tablet") { [try $0.reverseRefund()] }
    try await at("2027-05-30T10:00", on: "tablet") { [try $0.setAutoRenew(true, on: "tablet")] }
    try await at("2027-06-05T10:00", on: "tablet") { [try $0.extend(days: 14)] }
    // Off and on again, off and a lapse, and Anna comes back.
    try await at("2027-09-02T10:00", on: "tablet") { [try $0.setAutoRenew(false, on: "tablet")] }
    try await at("2027-09-04T10:00", on: "tablet") { [try $0.setAutoRenew(true, on: "tablet")] }
    try await at("2027-10-01T10:00", on: "tablet") { [try $0.setAutoRenew(false, on: "tablet")] }
    try await at("2027-11-10T10:00", on: "phone") { [try $0.buy("monthly", on: "phone")] }
    try await pass(until: Life.end)
  }
}
