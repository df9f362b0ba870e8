import AppStoreSimulator
import Foundation
import Subscriptions

/// The customers of the old backend: each has an account and has bought one thing.
///
/// What the old backend knows of them goes to two files, as a team would make them: whose the
/// subscriptions are, for `tenure import`, and what everybody may use, for `tenure compare`.
struct RehearsalOwners {
  private enum Life {
    /// Bought some time ago; Apple renews it.
    case renews
    /// Switched off, and running.
    case ends
    /// Switched off, and over.
    case over
  }

  /// Who bought what how many days ago, and how often of a hundred that is.
  private struct Kind {
    let life: Life
    let product: ProductID
    let days: ClosedRange<Int>
    let weight: Int
  }

  private static let kinds = [
    Kind(life: .renews, product: "monthly", days: 1...95, weight: 56),
    Kind(life: .renews, product: "yearly", days: 20...90, weight: 20),
    Kind(life: .renews, product: "news.weekly", days: 1...60, weight: 6),
    Kind(life: .ends, product: "monthly", days: 1...25, weight: 10),
    Kind(life: .over, product: "monthly", days: 40...95, weight: 8),
  ]

  let residents: [YearResident]
  /// Those who may use something throughout the week, whatever happens.
  let steady: [String]
  /// Those who may use nothing.
  let former: [String]
  /// Whose subscriptions Apple renews and who may change their minds.
  private let restless: [YearResident]

  /// Lets everybody buy, from the simulation's beginning until the day of the switch.
  ///
  /// - Throws: What the App Store does not accept.
  init(_ plan: RehearsalPlan, in simulation: AppStoreSimulation) throws {
    var random = SplitMix64(seed: plan.seed)
    var purchases: [(at: Timestamp, number: Int, life: Life, product: ProductID)] = []
    for number in 0..<plan.owners {
      var rest = random.number(in: 1...Self.kinds.reduce(0) { $0 + $1.weight })
      guard
        let kind = Self.kinds.first(where: { kind in
          rest -= kind.weight
          return rest <= 0
        })
      else { continue }
      let ago: Duration =
        .days(random.number(in: kind.days)) + .seconds(random.number(in: 0...86_399))
      purchases.append((plan.switchDay - ago, number, kind.life, kind.product))
    }
    purchases.sort { ($0.at, $0.number) < ($1.at, $1.number) }
    var (residents, steady, former): ([YearResident], [String], [String]) = ([], [], [])
    var restless: [YearResident] = []
    for purchase in purchases {
      simulation.advance(to: purchase.at)
      let appleID = AppleID("owner-\(purchase.number)")
      let device = DeviceID("owner-\(purchase.number)")
      let account = "owner-\(purchase.number)"
      try simulation.addAppleID(appleID)
      try simulation.addDevice(device, appleID: appleID, account: AppAccountID(account))
      let event = try simulation.buy(purchase.product, on: device)
      let resident = YearResident(
        appleID: appleID, account: account, bought: event.transactionID)
      residents.append(resident)
      switch purchase.life {
      case .renews where purchase.product == "yearly": steady.append(account)
      case .renews: restless.append(resident)
      case .ends, .over:
        try simulation.setAutoRenew(false, event.originalTransactionID, on: device)
        if purchase.life == .over { former.append(account) }
      }
    }
    simulation.advance(to: plan.switchDay)
    (self.residents, self.steady, self.former) = (residents, steady, former)
    self.restless = restless
  }

  // MARK: What the old backend writes

  /// Writes whose each original transaction is.
  func writeOwners(of simulation: AppStoreSimulation, to file: URL) throws {
    var text = "environment,original_transaction_id,account_id\n"
    for resident in residents {
      let line = try simulation.truth(of: resident.bought).originalTransactionID
      text += "production,\(line),\(resident.account)\n"
    }
    try Data(text.utf8).write(to: file)
  }

  /// Writes until when each account may use what.
  func writeAnswers(_ truth: [String: YearOracle.Account], to file: URL) throws {
    var text = "account_id,entitlement,until\n"
    for resident in residents {
      for (name, end) in truth[resident.account]?.access.sorted(by: { $0.key < $1.key }) ?? [] {
        text += "\(resident.account),\(name),\(end.map { "\($0)" } ?? "")\n"
      }
    }
    try Data(text.utf8).write(to: file)
  }

  // MARK: What they do

  /// Lets a few of those whose subscriptions renew switch that off, or ask for their money.
  ///
  /// - Returns: How many did something.
  func act(in simulation: AppStoreSimulation, _ random: inout SplitMix64) -> Int {
    var deeds = 0
    for _ in 0..<max(1, restless.count / 2000) {
      guard let resident = random.choice(of: restless) else { break }
      let refunds = random.chance(0.5)
      let charges = simulation.truth(of: resident.appleID)
      guard let last = charges.last, last.revokedAt == nil else { continue }
      // With a renewal that is paid for already, nobody could say whose that is then.
      guard refunds, last.purchaseDate <= simulation.now - .hours(2) else {
        if (try? simulation.setAutoRenew(false, last.originalTransactionID)) != nil { deeds += 1 }
        continue
      }
      if (try? simulation.refund(last.transactionID)) != nil { deeds += 1 }
    }
    return deeds
  }
}
