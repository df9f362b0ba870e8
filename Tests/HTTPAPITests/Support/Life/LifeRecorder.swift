import AppStore
import AppStoreSimulator
import Foundation
import JSONText
import Subscriptions
import Testing

@testable import HTTPAPI

/// Lives in the simulation, and notes at each moment at which something happened what each source
/// would bring.
final class LifeRecorder {
  private static let devices: [(device: DeviceID, appleID: AppleID, account: String)] = [
    ("phone", "ada", "anna"), ("tablet", "ada", "ben"), ("mia's phone", "mia", "mia"),
  ]

  let signer: SimulatedSigner
  let simulation: AppStoreSimulation
  private(set) var items: [Life.Item] = []
  private let tokens: [String: UUID]
  private let api: RecordedServerAPI
  private let client: AppStoreServerAPI
  private var known: Set<SimulatedCharge> = []
  private var notified = 0
  /// By Apple ID: the line that is polled, and the last poll's revision.
  private var polled: [AppleID: (line: OriginalTransactionKey, revision: String?)] = [:]
  /// By Apple ID: receipts that a device sent once.
  private var stored: [AppleID: String] = [:]

  init(tokens: [String: UUID]) throws {
    self.tokens = tokens
    signer = try SimulatedSigner()
    var configuration = AppStoreSimulation.Configuration(
      seed: 20_260_105, start: Life.begin, apps: [Life.app], renewalLead: .zero ... .hours(22))
    configuration.signer = signer
    simulation = try AppStoreSimulation(configuration: configuration)
    for id: AppleID in ["ada", "mia"] { try simulation.addAppleID(id) }
    for (device, appleID, account) in Self.devices {
      try simulation.addDevice(device, appleID: appleID, account: AppAccountID(account))
    }
    try simulation.setNotificationTargets([
      NotificationTarget(.v2, url: "v2"), NotificationTarget(.v1, url: "v1"),
    ])
    api = RecordedServerAPI(simulation)
    let clock = simulation.clock
    client = try simulation.serverAPI(
      over: api,
      verifier: SignedDataVerifier(
        roots: try TrustedRoots(pem: signer.rootCertificatePEM),
        apps: try AppStoreApps([AppStoreApp(bundleID: Life.app.bundleID)]), now: { clock.now }))
  }

  // MARK: Living

  /// Advances the time to a moment, then performs an action on a device.
  func at(
    _ moment: String, on device: DeviceID, _ action: (LifeRecorder) throws -> [SimulatedEvent]
  ) async throws {
    try await pass(until: try #require(Timestamp(rfc3339: moment + ":00Z")))
    try await note(try action(self), first: device)
  }

  /// Advances the time hour by hour; automatic events are noted within the hour.
  func pass(until moment: Timestamp) async throws {
    while simulation.now < moment {
      let next = min(simulation.now + .hours(1), moment)
      try await note(simulation.advance(to: next), first: "phone")
    }
  }

  func buy(_ product: ProductID, on device: DeviceID) throws -> SimulatedEvent {
    try simulation.buy(
      product, on: device, appAccountToken: tokens[device == "phone" ? "anna" : "ben"])
  }

  func setAutoRenew(_ isOn: Bool, on device: DeviceID) throws -> SimulatedEvent {
    try simulation.setAutoRenew(isOn, try subscription.originalTransactionID, on: device)
  }

  func failCard(of id: AppleID) throws { try simulation.failCard(of: id) }
  func repairCard(of id: AppleID) throws -> [SimulatedEvent] { try simulation.repairCard(of: id) }
  func restore(on device: DeviceID) throws -> [SimulatedEvent] {
    try simulation.restore(on: device)
  }

  func finishCoins() throws {
    let coins = try #require(simulation.truth().first { $0.productID == "coins" })
    try simulation.finish(coins.transactionID)
    // A receipt without them says nothing new.
    known = Set(simulation.truth())
  }

  func addMia() throws -> [SimulatedEvent] {
    try simulation.addFamilyMember("mia", of: "ada")
    return []
  }

  func revokeMia() throws -> [SimulatedEvent] { try simulation.revokeFamilyAccess(of: "mia") }

  func refund(_ name: String) throws -> SimulatedEvent {
    let charge = simulation.truth(of: "ada").first { Life.name(of: $0) == name }
    return try simulation.refund(try #require(charge).transactionID)
  }

  func refundLatest() throws -> SimulatedEvent {
    try simulation.refund(try subscription.transactionID)
  }

  func reverseRefund() throws -> SimulatedEvent {
    try simulation.reverseRefund(try subscription.transactionID)
  }

  func extend(days: Int) throws -> SimulatedEvent {
    try simulation.extend(try subscription.originalTransactionID, days: days)
  }

  /// The latest charge of the subscription.
  private var subscription: SimulatedCharge {
    get throws {
      try #require(simulation.truth(of: "ada").last { $0.productType == .autoRenewable })
    }
  }

  // MARK: Noting

  /// Notes what every source brings now that this has happened.
  private func note(_ events: [SimulatedEvent], first device: DeviceID) async throws {
    let truth = simulation.truth()
    let changed = truth.filter { !known.contains($0) }
    guard !events.isEmpty || !changed.isEmpty else { return }
    known = Set(truth)
    let about = events.map(\.transactionID)
    let charges = truth.filter { charge in
      changed.contains(charge) || charge.transactionIDs.contains { about.contains($0) }
    }
    let appleIDs = Set(charges.map(\.appleID))
    let devices = Self.devices.filter { appleIDs.contains($0.appleID) }
    for (device, appleID, account) in devices.filter({ $0.device == device })
      + devices.filter({ $0.device != device })
    {
      try noteReceipt(on: device, of: appleID, by: account)
      try noteSigned(charges.filter { $0.appleID == appleID }, by: account)
    }
    try noteNotifications()
    for appleID in appleIDs.sorted() {
      try await notePoll(of: appleID)
      if let receipt = stored[appleID] {
        add(.receiptPolls, .receiptPoll(receipt), about: receipt)
      }
    }
  }

  private func add(_ source: Life.Source, _ content: Life.Item.Content, about receipt: String?) {
    var item = Life.Item(source: source, at: simulation.now, content: content)
    if let receipt { item.receiptAnswers[receipt] = answer(to: receipt) }
    items.append(item)
  }

  private func answer(to receipt: String) -> [UInt8] {
    let request: JSONValue = [
      "receipt-data": .string(receipt), "password": .string(Life.app.sharedSecret),
    ]
    return simulation.verifyReceipt(request.bytes, at: .production).body
  }

  private func noteReceipt(on device: DeviceID, of appleID: AppleID, by account: String) throws {
    let receipt = try simulation.receipt(on: device)
    if stored[appleID] == nil { stored[appleID] = receipt }
    add(.receipts, .receipt(receipt, by: account), about: receipt)
  }

  private func noteSigned(_ charges: [SimulatedCharge], by account: String) throws {
    let lines = Set(
      charges.filter { $0.productType == .autoRenewable }.map(\.originalTransactionID))
    add(
      .signedTransactions,
      .signed(
        transactions: try charges.map { try simulation.signedTransaction(of: $0.transactionID) },
        renewalInfo: try lines.sorted().map { try simulation.signedRenewalInfo(of: $0) },
        by: account),
      about: nil)
  }

  private func noteNotifications() throws {
    let newer = simulation.notifications(after: notified)
    notified += newer.count
    for notification in newer {
      switch notification.version {
      case .v2: add(.notifications, .notification(notification.body), about: nil)
      case .v1, .v1Before2021:
        let json = try JSONValue(parsing: notification.body)
        let receipt = try #require(json["unified_receipt"]?["latest_receipt"]?.string)
        add(.doorbells, .doorbell(notification.body), about: receipt)
      }
    }
  }

  private func notePoll(of appleID: AppleID) async throws {
    if polled[appleID] == nil, let charge = simulation.truth(of: appleID).first {
      polled[appleID] = (charge.line, nil)
    }
    guard let (line, revision) = polled[appleID] else { return }
    api.forget()
    let id = line.originalTransactionID.rawValue
    for try await page in client.transactionHistoryPages(
      of: id, in: Life.app.bundleID, environment: .production, after: revision)
    {
      polled[appleID]?.revision = page.content.revision
    }
    _ = try await client.subscriptionStatuses(
      of: id, in: Life.app.bundleID, environment: .production)
    var item = Life.Item(source: .polls, at: simulation.now, content: .poll(line, after: revision))
    item.serverAnswers = api.answers
    items.append(item)
  }
}
