package import struct Foundation.UUID
package import Subscriptions
import Synchronization

/// A faithful App Store in one process, for development, demonstrations and tests.
///
/// Customers are Apple IDs with devices; accounts of the app are logged in on devices, which Apple
/// never learns. Every call first lets everything happen that is due by the clock, so renewals,
/// failures and expiries come in their order however far the clock has moved. Safe to use from any
/// number of tasks; deterministic as long as calls come in one order.
package final class AppStoreSimulation: Sendable {
  /// The time in which everything happens.
  package let clock: SimulatedClock
  let signer: SimulatedSigner
  /// The key with which servers ask the App Store Server API.
  package let apiKey: SimulatedAPIKey
  private let state: Mutex<AppStoreState>

  /// Opens the App Store with these apps; throws where two products or apps have one id.
  package init(configuration: Configuration) throws {
    clock = SimulatedClock(start: configuration.start, speed: configuration.speed)
    signer = try configuration.signer ?? SimulatedSigner()
    apiKey = SimulatedAPIKey()
    var state = AppStoreState(configuration: configuration, signer: signer)
    for app in configuration.apps { try state.add(app) }
    self.state = Mutex(state)
  }

  /// Brings the state up to the clock, then works on it.
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

  /// The simulated time.
  package var now: Timestamp { clock.now }

  /// Moves the clock forward and returns what happened by itself meanwhile.
  @discardableResult
  package func advance(by duration: Duration) -> [SimulatedEvent] {
    clock.advance(by: duration)
    return catchUp()
  }

  /// Moves the clock forward to a moment and returns what happened by itself meanwhile.
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

  /// Adds an app with its products, whose ids must be new.
  package func add(_ app: SimulatedApp) throws { try act { try $0.add(app) } }

  /// Changes how long access goes on after a failed renewal, as App Store Connect does; nil: not
  /// at all.
  ///
  /// Renewals that fail from now on follow it.
  package func setGracePeriod(_ period: SimulatedApp.GracePeriod?, of bundleID: String? = nil)
    throws
  {
    try act { state in
      state.apps[try state.appNumber(bundleID)].gracePeriod = period
    }
  }

  /// Takes a product from sale: it renews no more.
  package func withdraw(_ product: ProductID) throws {
    try act {
      _ = try $0.offering(product)
      $0.withdrawn.insert(product)
    }
  }

  /// Creates a customer; in the sandbox it is a tester.
  package func addAppleID(_ id: AppleID, environment: Environment = .production) throws {
    try act { try $0.addCustomer(id, environment: environment) }
  }

  /// Closes an Apple ID: verifyReceipt answers 21010 from now on.
  package func deleteAppleID(_ id: AppleID) throws {
    try act { state in
      let number = try state.customerNumber(id)
      state.customers[number].isDeleted = true
      state.customers[number].cardWorks = false
    }
  }

  /// Adds a device on which an Apple ID is signed in, and perhaps an account of the app.
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

  /// Signs in another Apple ID on a device.
  package func signIn(_ appleID: AppleID, on device: DeviceID) throws {
    try act { state in
      let account = try state.device(device).account
      state.devices[device] = Device(
        customer: try state.customerNumber(appleID), account: account)
    }
  }

  /// Logs an account of the app in on a device; nil logs out.
  package func logIn(_ account: AppAccountID?, on device: DeviceID) throws {
    try act { state in
      _ = try state.device(device)
      state.devices[device]?.account = account
    }
  }

  // MARK: Buying

  /// Buys a product on a device, and returns the charge or what else Apple does.
  ///
  /// A change for the next renewal costs nothing now. The token is what the app attaches; changes
  /// of plan without one keep the old.
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

  /// Buys a subscription outside the app: in the Settings app, or with a code in the App Store.
  ///
  /// Nobody attaches a token there, and no account of the app is involved.
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

  /// Switches automatic renewal; with a device, whoever is logged in there did it.
  @discardableResult
  package func setAutoRenew(
    _ isOn: Bool, _ line: OriginalTransactionID, on device: DeviceID? = nil
  ) throws -> SimulatedEvent {
    try act { state in
      let account = try device.flatMap { try state.device($0).account }
      return try state.setAutoRenew(isOn, line: try state.lineNumber(line), by: account)
    }
  }

  /// Raises the price of what renews from now on, with or without asking the subscribers.
  package func raisePrice(
    of product: ProductID, to milliunits: Int64, needsConsent: Bool
  ) throws {
    try act { try $0.raisePrice(of: product, to: milliunits, needsConsent: needsConsent) }
  }

  /// Lets a subscriber agree to a higher price.
  @discardableResult
  package func acceptPrice(_ line: OriginalTransactionID) throws -> SimulatedEvent {
    try act { try $0.acceptPrice(line: try $0.lineNumber(line)) }
  }

  /// Moves the end of what is paid by some days, without a charge, as
  /// `Extend a Subscription Renewal Date` does.
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

  /// Lets a line go on under a new original id, as a migration to the Advanced Commerce API does.
  ///
  /// What is paid for and has not ended goes with it, under the same transaction ids; earlier
  /// charges stay where they are.
  @discardableResult
  package func migrate(_ line: OriginalTransactionID) throws -> SimulatedEvent {
    try act { try $0.migrate(try $0.lineNumber(line)) }
  }

  // MARK: Cards

  /// Lets the payments of an Apple ID fail from now on.
  package func failCard(of appleID: AppleID) throws {
    try act { $0.customers[try $0.customerNumber(appleID)].cardWorks = false }
  }

  /// Lets payments succeed again; what Apple still tries to collect is paid at once.
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

  /// Takes a refund back.
  @discardableResult
  package func reverseRefund(_ transaction: TransactionID) throws -> SimulatedEvent {
    try act { try $0.reverseRefund(try $0.chargeNumber(transaction)) }
  }

  /// Lets a customer ask for the money of a charge back.
  @discardableResult
  package func requestRefund(
    _ transaction: TransactionID,
    reason: SimulatedEvent.RefundRequestReason = .unintendedPurchase
  ) throws -> SimulatedEvent {
    try act { try $0.requestRefund(try $0.chargeNumber(transaction), reason: reason) }
  }

  /// Lets Apple decline such a request.
  @discardableResult
  package func declineRefund(_ transaction: TransactionID) throws -> SimulatedEvent {
    try act { try $0.declineRefund(try $0.chargeNumber(transaction)) }
  }

  /// Takes an Apple ID into the family of another, which shares what it bought and can be shared.
  package func addFamilyMember(_ member: AppleID, of organizer: AppleID) throws {
    try act {
      try $0.addFamilyMember(
        try $0.customerNumber(member), of: try $0.customerNumber(organizer))
    }
  }

  /// Takes an Apple ID out of its family: what was shared with it is revoked.
  @discardableResult
  package func revokeFamilyAccess(of member: AppleID) throws -> [SimulatedEvent] {
    try act { try $0.removeFamilyMember(try $0.customerNumber(member)) }
  }

  // MARK: Devices' side

  /// Restores purchases: this device's receipts show the same charges under new transaction ids.
  @discardableResult
  package func restore(on device: DeviceID, bundleID: String? = nil) throws -> [SimulatedEvent] {
    try act { try $0.restore(on: device, app: try $0.appNumber(bundleID)) }
  }

  /// Finishes a consumable, which leaves the receipts made from now on.
  @discardableResult
  package func finish(_ transaction: TransactionID) throws -> SimulatedCharge {
    try act { try $0.finish(try $0.chargeNumber(transaction)) }
  }

  /// The app receipt of a device as it is now, in base64.
  package func receipt(on device: DeviceID, bundleID: String? = nil) throws -> String {
    try act { try $0.receipt(on: device, bundleID: bundleID, transaction: nil) }
  }

  /// The receipt of one transaction as iOS 6 made them, in base64.
  package func transactionReceipt(_ transaction: TransactionID, on device: DeviceID) throws
    -> String
  {
    try act { try $0.receipt(on: device, bundleID: nil, transaction: transaction) }
  }

  // MARK: Apple's side

  /// Answers the bytes of a request to verifyReceipt at one of Apple's two addresses, faults
  /// included.
  package func verifyReceipt(_ body: some Sequence<UInt8>, at endpoint: Environment)
    -> SimulatedAnswer
  {
    act { state in
      let fault = state.faults.takeFault(at: state.now)
      let answer = SimulatedAnswer(state.verifyReceipt(body, at: endpoint))
      return fault.map(answer.with) ?? answer
    }
  }

  /// Answers what is no POST.
  package func verifyReceiptWithoutPost() -> SimulatedAnswer {
    SimulatedAnswer(status: VerifyReceiptStatus.unreadableRequest.rawValue)
  }

  // MARK: Faults, quirks, truth

  /// Changes which requests fail.
  package func setFaults(_ change: @Sendable (inout FaultPlan) -> Void) {
    act { change(&$0.faults) }
  }

  /// Chooses the peculiarities of answers.
  package func setQuirks(_ quirks: Set<Quirk>) { act { $0.quirks = quirks } }

  /// Chooses how long a charge exists before answers show it.
  package func setAnswerLag(_ lag: Duration) { act { $0.answerLag = lag } }

  /// Who really paid and acted: every charge in the order of booking.
  package func truth() -> [SimulatedCharge] {
    act { state in state.charges.indices.map { state.truth(of: $0) } }
  }

  /// The truth about one Apple ID: its charges, line by line.
  package func truth(of appleID: AppleID) -> [SimulatedCharge] {
    act { state in
      guard let number = state.customerNumbers[appleID] else { return [] }
      return state.customers[number].lines.flatMap { line in
        state.lines[line].charges.map { state.truth(of: $0) }
      }
    }
  }

  /// The truth about one charge, by any of its transaction ids.
  package func truth(of transaction: TransactionID) throws -> SimulatedCharge {
    try act { $0.truth(of: try $0.chargeNumber(transaction)) }
  }

  /// What happened after the event with the given number; 0 gives everything.
  package func events(after number: Int = 0) -> [SimulatedEvent] {
    act { Array($0.events.dropFirst(max(0, number))) }
  }
}

extension AppStoreSimulation {
  /// What a simulation starts with.
  package struct Configuration: Sendable {
    /// The same seed and the same calls at the same simulated times give the same bytes, but for
    /// signatures: those of receipts are the same of the same signer.
    package var seed: UInt64
    /// The simulated time at the beginning.
    package var start: Timestamp
    /// Simulated time per real time; 0: the clock moves only by `advance`.
    package var speed: Double
    /// The apps there are; their product ids must all differ.
    package var apps: [SimulatedApp]
    /// How long before a period's end Apple charges for the next; drawn for each renewal.
    ///
    /// Equal bounds make it certain. At most 24 hours in reality.
    package var renewalLead: ClosedRange<Duration>
    /// Whether sandbox customers live on Apple's sandbox rates instead of by the calendar.
    ///
    /// A month is five minutes then, and renewals come some seconds late, as there.
    package var sandboxRates: Bool
    /// The peculiarities of answers.
    package var quirks: Set<Quirk>
    /// How long a charge exists before answers show it.
    package var answerLag: Duration
    /// What signs; nil: one with new keys.
    package var signer: SimulatedSigner?
    /// How many times Apple's number of requests the App Store Server API takes; nil: any number.
    package var rateLimitScale: Double?

    /// Describes a simulation; everything but the seed has a usual value.
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

/// The time in a simulated App Store: moved by hand, or running at a multiple of real time.
package final class SimulatedClock: Sendable {
  private struct Reading {
    var simulated: Timestamp
    var real: ContinuousClock.Instant
  }

  /// Simulated time per real time; 0 stands still until somebody moves it.
  package let speed: Double
  private let reading: Mutex<Reading>

  /// Sets the clock; it begins to run at once where the speed is not 0.
  package init(start: Timestamp, speed: Double = 0) {
    precondition(speed >= 0, "Time does not run backwards.")
    self.speed = speed
    reading = Mutex(Reading(simulated: start, real: .now))
  }

  /// The simulated time.
  package var now: Timestamp {
    reading.withLock { $0.simulated + elapsed(since: $0.real) }
  }

  /// Moves the clock forward; a negative duration moves nothing.
  package func advance(by duration: Duration) {
    guard duration > .zero else { return }
    reading.withLock { $0.simulated = $0.simulated + duration }
  }

  /// Moves the clock to `moment`, unless that has passed already.
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
