import AppStoreSimulator
import Subscriptions

import struct Foundation.UUID

/// People who share an Apple ID: its devices, and the accounts that are logged in there.
struct YearHousehold {
  /// What the app sends to its server.
  enum Form {
    /// The receipt of the old StoreKit.
    case receipts
    /// What StoreKit 2 gives to the app, signed by Apple.
    case signedData
  }

  /// What the app sends of a device, for the account that is logged in there.
  struct Letter: Sendable {
    enum Content: Sendable {
      case receipt(TenureClient.ReceiptSubmission)
      case signedData(TenureClient.SignedSubmission)
    }

    var content: Content
    /// Whether the app will send it again, as if no answer had come.
    var isSentTwice = false
  }

  let appleID: AppleID
  let devices: [DeviceID]
  let accounts: [String]
  let form: Form
  /// Whether the app attaches the account's token to purchases.
  let attachesTokens: Bool
  /// Whether the app opens an order before a purchase.
  let opensOrders: Bool
  var loggedIn: [DeviceID: String] = [:]
  var cardWorks = true
  /// When the next thing happens here.
  var nextVisit: Timestamp
  /// What could not be sent when it was made; the app does so when it is opened next.
  var unsent: [Letter] = []
  /// What is to be sent now.
  var outbox: [Letter] = []
  /// What Tenure has taken and not decided yet, with the time at which it was sent.
  var undecided: [(id: String, sentAt: Timestamp)] = []
  var random: SplitMix64

  /// Draws who lives here.
  ///
  /// - Parameters:
  ///   - number: Counted from 0.
  ///   - plan: What is lived.
  ///   - seed: Of everything that happens here.
  init(_ number: Int, in plan: YearPlan, seed: UInt64) {
    var random = SplitMix64(seed: seed)
    appleID = AppleID("customer-\(number)")
    let letters = ["a", "b", "c"].prefix(random.number(in: 1...3))
    var accounts = letters.map { "customer-\(number)\($0)" }
    // Some people use the app with two Apple IDs: their own, and a neighbour's.
    if number > 0, random.chance(0.1) { accounts.append("customer-\(number - 1)a") }
    self.accounts = accounts
    devices = (1...random.number(in: 1...2)).map { DeviceID("customer-\(number)-\($0)") }
    form = random.chance(0.5) ? .receipts : .signedData
    attachesTokens = random.chance(0.5)
    opensOrders = random.chance(0.5)
    for device in devices { loggedIn[device] = random.choice(of: accounts) }
    nextVisit = plan.start + .minutes(random.number(in: 60...Int(plan.firstVisits / .minutes(1))))
    self.random = random
  }
}
