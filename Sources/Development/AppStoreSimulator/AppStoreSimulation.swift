package import struct Foundation.UUID
package import Subscriptions
import Synchronization

/// A faithful App Store in one process, for development, demos and tests.
///
/// Customers are Apple IDs with devices. The app's accounts are logged in on devices, which
/// Apple does not know. Every call first processes all events that are due, so that renewals,
/// failures and expiries happen in order, however far the clock has moved. Safe for concurrent use;
/// deterministic if calls come in a fixed order.
package final class AppStoreSimulation: Sendable {
  package let clock: SimulatedClock
  let signer: SimulatedSigner
  /// The servers' key for the App Store Server API.
  package let apiKey: SimulatedAPIKey
  private let state: Mutex<AppStoreState>

  /// Fails if product IDs or bundle IDs are not unique.
  package init(configuration: Configuration) throws {
    clock = SimulatedClock(start: configuration.start, speed: configuration.speed)
    signer = try configuration.signer ?? SimulatedSigner()
    apiKey = SimulatedAPIKey()
    var state = AppStoreState(configuration: configuration, signer: signer)
    for app in configuration.apps { try state.add(app) }
    self.state = Mutex(state)
  }

  /// Processes all due events, then runs the body.
  func act<Result: Sendable>(
    _ body: (inout AppStoreState) throws -> Result
  ) rethrows -> Result {
    try state.withLock { state in
      state.process(until: clock.now)
      defer { state.settle() }
      return try body(&state)
    }
  }

  // MARK: Time

  package var now: Timestamp { clock.now }

  /// Advances the clock and returns the events that happened.
  @discardableResult
  package func advance(by duration: Duration) -> [SimulatedEvent] {
    clock.advance(by: duration)
    return catchUp()
  }

  /// Advances the clock to a time and returns the events that happened.
  @discardableResult
  package func advance(to moment: Timestamp) -> [SimulatedEvent] {
    clock.advance(to: moment)
    return catchUp()
  }

  private func catchUp() -> [SimulatedEvent] {
    state.withLock { state in
      let before = state.events.count
      state.process(until: clock.now)
      return Array(state.events[before...])
    }
  }

  // MARK: Apps, Apple IDs, devices

  /// Adds an app with products, whose IDs must be new.
  package func add(_ app: SimulatedApp) throws { try act { try $0.add(app) } }

  /// Sets the grace period in App Store Connect, for renewals that fail from now on; nil for none.
  package func setGracePeriod(_ period: SimulatedApp.GracePeriod?, of bundleID: String? = nil)
    throws
  {
    try act { state in
      state.apps[try state.appNumber(bundleID)].gracePeriod = period
    }
  }

  package func withdraw(_ product: ProductID) throws {
    try act {
      _ = try $0.offering(product)
      $0.withdrawn.insert(product)
    }
  }

  /// Creates a customer, who is a tester in the sandbox.
  package func addAppleID(_ id: AppleID, environment: Environment = .production) throws {
    try act { try $0.addCustomer(id, environment: environment) }
  }

  /// Closes an Apple ID: verifyReceipt returns 21010 from now on.
  package func deleteAppleID(_ id: AppleID) throws {
    try act { state in
      let number = try state.customerNumber(id)
      state.customers[number].isDeleted = true
      state.customers[number].cardWorks = false
    }
  }

  /// Adds a device with an Apple ID signed in and, optionally, an account of the app.
  package func addDevice(
    _ id: DeviceID, appleID: AppleID, account: AppAccountID? = nil
  ) throws {
    try act { state in
      guard state.devices[id] == nil else {
        throw SimulationError(.alreadyExists, "There is a device \(id) already.")
      }
      state.devices[id] = Device(
        customer: try state.customerNumber(appleID), account: account)
    }
  }

  package func signIn(_ appleID: AppleID, on device: DeviceID) throws {
    try act { state in
      let account = try state.device(device).account
      state.devices[device] = Device(
        customer: try state.customerNumber(appleID), account: account)
    }
  }

  /// Logs in an account of the app on a device; nil logs out.
  package func logIn(_ account: AppAccountID?, on device: DeviceID) throws {
    try act { state in
      _ = try state.device(device)
      state.devices[device]?.account = account
    }
  }

  // MARK: Buying

  /// Buys a product on a device; returns the resulting event.
  ///
  /// A change for the next renewal costs nothing now. The app attaches the token; a change of plan
  /// without one keeps the previous token.
  @discardableResult
  package func buy(
    _ product: ProductID, on device: DeviceID, appAccountToken: UUID? = nil, quantity: Int = 1,
    offer: SimulatedOffer? = nil
  ) throws -> SimulatedEvent {
    try act { state in
      let seller = try state.device(device)
      let offering = try state.offering(product)
      return try state.buy(
        PurchaseOrder(
          customer: try state.customerNumber(state.customers[seller.customer].appleID),
          app: offering.app, product: offering.product, device: device, account: seller.account,
          appAccountToken: appAccountToken, quantity: quantity, offer: offer))
    }
  }

  /// Buys a subscription outside the app, in Settings or with a code in the App Store, without a
  /// token and without an account of the app.
  @discardableResult
  package func buyInSettings(
    _ product: ProductID, appleID: AppleID, offer: SimulatedOffer? = nil
  ) throws -> SimulatedEvent {
    try act { state in
      let offering = try state.offering(product)
      return try state.buy(
        PurchaseOrder(
          customer: try state.customerNumber(appleID), app: offering.app,
          product: offering.product, offer: offer))
    }
  }

  /// Switches auto-renew; with a device, on behalf of the account logged in there.
  @discardableResult
  package func setAutoRenew(
    _ isOn: Bool, _ line: OriginalTransactionID, on device: DeviceID? = nil
  ) throws -> SimulatedEvent {
    try act { state in
      let account = try device.flatMap { try state.device($0).account }
      return try state.setAutoRenew(isOn, line: try state.lineNumber(line), by: account)
    }
  }

  /// Raises the price of future renewals, with or without asking for consent.
  package func raisePrice(
    of product: ProductID, to milliunits: Int64, needsConsent: Bool
  ) throws {
    try act { try $0.raisePrice(of: product, to: milliunits, needsConsent: needsConsent) }
  }

  /// Accepts a higher price for a subscriber.
  @discardableResult
  package func acceptPrice(_ line: OriginalTransactionID) throws -> SimulatedEvent {
    try act { try $0.acceptPrice(line: try $0.lineNumber(line)) }
  }

  /// Extends the paid period without a charge, as `Extend a Subscription Renewal Date` does.
  @discardableResult
  package func extend(_ line: OriginalTransactionID, days: Int) throws -> SimulatedEvent {
    try act { state in
      let number = try state.lineNumber(line)
      if let refusal = state.refusal(toExtend: number, days: days) {
        throw SimulationError(.notPossible, refusal.message)
      }
      return state.extend(number, days: days)
    }
  }

  /// Continues a subscription under a new original transaction ID, as a migration to the Advanced
  /// Commerce API does.
  ///
  /// Paid periods that have not ended move with their transaction IDs; earlier charges stay.
  @discardableResult
  package func migrate(_ line: OriginalTransactionID) throws -> SimulatedEvent {
    try act { try $0.migrate(try $0.lineNumber(line)) }
  }

  // MARK: Cards

  /// Makes an Apple ID's payments fail from now on.
  package func failCard(of appleID: AppleID) throws {
    try act { $0.customers[try $0.customerNumber(appleID)].cardWorks = false }
  }

  /// Makes payments succeed again; outstanding ones are collected now.
  @discardableResult
  package func repairCard(of appleID: AppleID) throws -> [SimulatedEvent] {
    try act { state in
      let before = state.events.count
      state.repairCard(of: try state.customerNumber(appleID))
      return Array(state.events[before...])
    }
  }

  // MARK: Refunds and families

  /// Refunds a charge in full.
  ///
  /// The reason is Apple's `cancellation_reason`: "1" a problem with the app, "0" other.
  @discardableResult
  package func refund(_ transaction: TransactionID, reason: String = "0") throws
    -> SimulatedEvent
  {
    try act { try $0.refund(try $0.chargeNumber(transaction), reason: reason) }
  }

  @discardableResult
  package func reverseRefund(_ transaction: TransactionID) throws -> SimulatedEvent {
    try act { try $0.reverseRefund(try $0.chargeNumber(transaction)) }
  }

  @discardableResult
  package func requestRefund(
    _ transaction: TransactionID,
    reason: SimulatedEvent.RefundRequestReason = .unintendedPurchase
  ) throws -> SimulatedEvent {
    try act { try $0.requestRefund(try $0.chargeNumber(transaction), reason: reason) }
  }

  @discardableResult
  package func declineRefund(_ transaction: TransactionID) throws -> SimulatedEvent {
    try act { try $0.declineRefund(try $0.chargeNumber(transaction)) }
  }

  /// Adds an Apple ID to another's family, which shares its shareable purchases.
  package func addFamilyMember(_ member: AppleID, of organizer: AppleID) throws {
    try act {
      try $0.addFamilyMember(
        try $0.customerNumber(member), of: try $0.customerNumber(organizer))
    }
  }

  /// Removes an Apple ID from its family and revokes its shares.
  @discardableResult
  package func revokeFamilyAccess(of member: AppleID) throws -> [SimulatedEvent] {
    try act { try $0.removeFamilyMember(try $0.customerNumber(member)) }
  }

  // MARK: Devices' side

  /// Restores purchases: the device's receipts show the same charges with new transaction IDs.
  @discardableResult
  package func restore(on device: DeviceID, bundleID: String? = nil) throws -> [SimulatedEvent] {
    try act { try $0.restore(on: device, app: try $0.appNumber(bundleID)) }
  }

  @discardableResult
  package func finish(_ transaction: TransactionID) throws -> SimulatedCharge {
    try act { try $0.finish(try $0.chargeNumber(transaction)) }
  }

  /// The current app receipt of a device, in base64.
  package func receipt(on device: DeviceID, bundleID: String? = nil) throws -> String {
    try act { try $0.receipt(on: device, bundleID: bundleID, transaction: nil) }
  }

  /// The iOS 6 style receipt of one transaction, in base64.
  package func transactionReceipt(_ transaction: TransactionID, on device: DeviceID) throws
    -> String
  {
    try act { try $0.receipt(on: device, bundleID: nil, transaction: transaction) }
  }

  // MARK: Apple's side

  /// Responds to the body of a verifyReceipt request at one of Apple's two endpoints, including
  /// faults.
  package func verifyReceipt(_ body: some Sequence<UInt8>, at endpoint: Environment)
    -> SimulatedAnswer
  {
    act { state in
      let fault = state.faults.takeFault(at: state.now)
      let answer = SimulatedAnswer(state.verifyReceipt(body, at: endpoint))
      return fault.map(answer.with) ?? answer
    }
  }

  /// Responds to a request that is not a POST.
  package func verifyReceiptWithoutPost() -> SimulatedAnswer {
    SimulatedAnswer(status: VerifyReceiptStatus.unreadableRequest.rawValue)
  }

  // MARK: Faults, quirks, truth

  package func setFaults(_ change: @Sendable (inout FaultPlan) -> Void) {
    act { change(&$0.faults) }
  }

  package func setQuirks(_ quirks: Set<Quirk>) { act { $0.quirks = quirks } }

  /// Sets the time until a new charge appears in responses.
  package func setAnswerLag(_ lag: Duration) { act { $0.answerLag = lag } }

  /// All charges with their true payers and accounts, in booking order.
  package func truth() -> [SimulatedCharge] {
    act { state in state.charges.indices.map { state.truth(of: $0) } }
  }

  /// The true charges of one Apple ID, grouped by original transaction.
  package func truth(of appleID: AppleID) -> [SimulatedCharge] {
    act { state in
      guard let number = state.customerNumbers[appleID] else { return [] }
      return state.customers[number].lines.flatMap { line in
        state.lines[line].charges.map { state.truth(of: $0) }
      }
    }
  }

  /// The truth about a charge, by any of its transaction IDs.
  package func truth(of transaction: TransactionID) throws -> SimulatedCharge {
    try act { $0.truth(of: try $0.chargeNumber(transaction)) }
  }

  /// The events after the one with this number; 0 returns all.
  package func events(after number: Int = 0) -> [SimulatedEvent] {
    act { Array($0.events.dropFirst(max(0, number))) }
  }
}

extension AppStoreSimulation {
  package struct Configuration: Sendable {
    /// The same seed and calls at the same simulated times produce the same bytes.
    ///
    /// Signatures differ, except those of receipts by the same signer.
    package var seed: UInt64
    /// The initial simulated time.
    package var start: Timestamp
    /// Simulated time per real time; 0 means that the clock only moves by `advance`.
    package var speed: Double
    /// Product IDs must be unique across all apps.
    package var apps: [SimulatedApp]
    /// The range from which the lead of each renewal charge before the period's end is drawn.
    ///
    /// In reality it is at most 24 hours.
    package var renewalLead: ClosedRange<Duration>
    /// Whether sandbox customers live at Apple's sandbox rates.
    ///
    /// A month then takes five minutes, and renewals are some seconds late.
    package var sandboxRates: Bool
    package var quirks: Set<Quirk>
    /// The time until a new charge appears in responses.
    package var answerLag: Duration
    /// Nil: a signer with new keys.
    package var signer: SimulatedSigner?
    /// Scales Apple's request limits for the App Store Server API; nil: unlimited.
    package var rateLimitScale: Double?

    package init(
      seed: UInt64, start: Timestamp = Timestamp(CalendarDate(year: 2026, month: 1, day: 1)),
      speed: Double = 0, apps: [SimulatedApp] = [.sample],
      renewalLead: ClosedRange<Duration> = .zero ... .hours(24), sandboxRates: Bool = false,
      quirks: Set<Quirk> = [], answerLag: Duration = .zero, signer: SimulatedSigner? = nil,
      rateLimitScale: Double? = nil
    ) {
      self.seed = seed
      self.start = start
      self.speed = speed
      self.apps = apps
      self.renewalLead = renewalLead
      self.sandboxRates = sandboxRates
      self.quirks = quirks
      self.answerLag = answerLag
      self.signer = signer
      self.rateLimitScale = rateLimitScale
    }
  }
}

/// The time of a simulated App Store, moved manually or running at a multiple of real time.
package final class SimulatedClock: Sendable {
  private struct Reading {
    var simulated: Timestamp
    var real: ContinuousClock.Instant
  }

  /// Simulated time per real time; 0 means that the clock only moves manually.
  package let speed: Double
  private let reading: Mutex<Reading>

  /// The clock starts running immediately unless the speed is 0.
  package init(start: Timestamp, speed: Double = 0) {
    precondition(speed >= 0, "Time does not run backwards.")
    self.speed = speed
    reading = Mutex(Reading(simulated: start, real: .now))
  }

  package var now: Timestamp {
    reading.withLock { $0.simulated + elapsed(since: $0.real) }
  }

  /// Advances the clock; a negative duration has no effect.
  package func advance(by duration: Duration) {
    guard duration > .zero else { return }
    reading.withLock { $0.simulated = $0.simulated + duration }
  }

  /// Advances the clock to `moment`; a time in the past has no effect.
  package func advance(to moment: Timestamp) {
    reading.withLock {
      let now = $0.simulated + elapsed(since: $0.real)
      guard moment > now else { return }
      $0 = Reading(simulated: moment, real: .now)
    }
  }

  private func elapsed(since instant: ContinuousClock.Instant) -> Duration {
    speed == 0 ? .zero : (ContinuousClock.now - instant) * speed
  }
}
