import struct Foundation.Data
import struct Foundation.UUID
import HeapModule
import Subscriptions

/// The state of the simulated App Store: a pure value that includes time and randomness.
struct AppStoreState: Sendable {
  let configuration: AppStoreSimulation.Configuration
  var now: Timestamp
  /// Randomness in customers' lives; separate from that of responses, so that requests change no
  /// life.
  var life: SplitMix64
  var answering: SplitMix64
  var faults: FaultPlan
  var serverFaults: FaultPlan
  var quirks: Set<Quirk>
  var answerLag: Duration

  var apps: [SimulatedApp] = []
  var shelf: [ProductID: (product: SimulatedProduct, app: Int)] = [:]
  var withdrawn: Set<ProductID> = []
  var customers: [Customer] = []
  var customerNumbers: [AppleID: Int] = [:]
  var devices: [DeviceID: Device] = [:]
  var lines: [SimulatedSubscription] = []
  var lineNumbers: [OriginalTransactionID: Int] = [:]
  var charges: [Charge] = []
  /// By every current and former transaction ID.
  var chargeNumbers: [TransactionID: Int] = [:]
  var events: [SimulatedEvent] = []
  let signer: SimulatedSigner
  var mail: NotificationQueue
  var massExtensions: [MassExtension] = []
  var limits: RateLimits

  private var dues = Heap<Due>()
  private var dueSequence = 0
  private var modifications = 0
  /// The number of events for which notifications were created.
  private var settledEvents = 0
  /// Separate ranges for production and sandbox, as observed at Apple.
  private var lastNumbers: [Environment: Int] = [
    .production: 430_001_000_000_000, .sandbox: 2_000_000_100_000_000,
  ]

  init(configuration: AppStoreSimulation.Configuration, signer: SimulatedSigner) {
    self.configuration = configuration
    now = configuration.start
    var seeds = SplitMix64(seed: configuration.seed)
    life = SplitMix64(seed: seeds.next())
    answering = SplitMix64(seed: seeds.next())
    faults = FaultPlan(seed: seeds.next())
    serverFaults = FaultPlan(seed: seeds.next())
    serverFaults.kinds = FaultPlan.usualServerKinds
    mail = NotificationQueue(seed: seeds.next())
    limits = RateLimits(scale: configuration.rateLimitScale)
    self.signer = signer
    quirks = configuration.quirks
    answerLag = configuration.answerLag
  }

  // MARK: Time

  /// Processes all events due until `moment`, in order.
  mutating func process(until moment: Timestamp) {
    while let due = dues.min, due.at <= moment {
      dues.removeMin()
      now = max(now, due.at)
      perform(due)
      settle()
    }
    now = max(now, moment)
  }

  mutating func plan(_ step: Due.Step, at moment: Timestamp, line: Int, schedule: Int) {
    dueSequence += 1
    dues.insert(
      Due(at: moment, sequence: dueSequence, step: step, line: line, schedule: schedule))
  }

  func periodLengths(_ environment: Environment) -> PeriodLengths {
    PeriodLengths(areSandboxRates: configuration.sandboxRates && environment == .sandbox)
  }

  /// Creates the notifications for new events, from the current state.
  mutating func settle() {
    while settledEvents < events.count {
      let event = events[settledEvents]
      settledEvents += 1
      if mail.hasTargets { notify(about: event) }
    }
  }

  /// Records that Apple's data about a charge has changed.
  mutating func touch(_ charge: Int) {
    modifications += 1
    charges[charge].modification = modifications
  }

  // MARK: Numbers

  /// An unused number; the next few are reserved for restores.
  mutating func nextNumber(_ environment: Environment) -> Int {
    let number = lastNumbers[environment, default: 0] + life.number(in: 10...99_999)
    lastNumbers[environment] = number
    return number
  }

  // MARK: Writing down

  @discardableResult
  mutating func note(
    _ kind: SimulatedEvent.Kind, charge number: Int, as name: TransactionID? = nil,
    by account: AppAccountID? = nil
  ) -> SimulatedEvent {
    let charge = charges[number]
    let line = lines[charge.line]
    let event = SimulatedEvent(
      number: events.count + 1, at: now, kind: kind, environment: line.environment,
      bundleID: apps[line.app].bundleID, appleID: customers[line.customer].appleID,
      originalTransactionID: line.id, transactionID: name ?? charge.transactionID,
      productID: charge.product.id, account: account)
    events.append(event)
    return event
  }

  /// Records an event about an original transaction, with its latest charge.
  @discardableResult
  mutating func note(
    _ kind: SimulatedEvent.Kind, line: Int, by account: AppAccountID? = nil
  ) -> SimulatedEvent {
    guard let latest = validCharge(of: line) ?? lines[line].charges.last else {
      preconditionFailure("An original transaction begins with a charge.")
    }
    return note(kind, charge: latest, by: account)
  }

  /// The latest charge that was neither refunded nor upgraded.
  func validCharge(of line: Int) -> Int? {
    lines[line].charges.last { charges[$0].stands }
  }

  // MARK: Looking up

  func customerNumber(_ appleID: AppleID) throws -> Int {
    guard let number = customerNumbers[appleID], !customers[number].isDeleted else {
      throw SimulationError(.unknownAppleID, "There is no Apple ID \(appleID).")
    }
    return number
  }

  func device(_ id: DeviceID) throws -> Device {
    guard let device = devices[id] else {
      throw SimulationError(.unknownDevice, "There is no device \(id).")
    }
    return device
  }

  func lineNumber(_ id: OriginalTransactionID) throws -> Int {
    guard let number = lineNumbers[id] else {
      throw SimulationError(.unknownLine, "There is no original transaction \(id).")
    }
    return number
  }

  func chargeNumber(_ id: TransactionID) throws -> Int {
    guard let number = chargeNumbers[id] else {
      throw SimulationError(.unknownTransaction, "There is no transaction \(id).")
    }
    return number
  }

  func offering(_ id: ProductID) throws -> (product: SimulatedProduct, app: Int) {
    guard let offering = shelf[id], !withdrawn.contains(id) else {
      throw SimulationError(.unknownProduct, "The product \(id) is not for sale.")
    }
    return offering
  }

  /// The app with this bundle ID; without one, the only app.
  func appNumber(_ bundleID: String?) throws -> Int {
    guard let bundleID else {
      guard apps.count == 1 else {
        throw SimulationError(.unknownApp, "There are several apps: name the bundle ID.")
      }
      return 0
    }
    guard let number = apps.firstIndex(where: { $0.bundleID == bundleID }) else {
      throw SimulationError(.unknownApp, "There is no app \(bundleID).")
    }
    return number
  }

  func truth(of number: Int) -> SimulatedCharge {
    let charge = charges[number]
    let line = lines[charge.line]
    return SimulatedCharge(
      environment: line.environment, bundleID: apps[line.app].bundleID,
      appleID: customers[line.customer].appleID, originalTransactionID: line.id,
      transactionIDs: [charge.transactionID] + charge.aliases,
      webOrderLineItemID: charge.webOrderLineItemID, productID: charge.product.id,
      productType: charge.product.type, group: line.group, kind: charge.kind,
      ownership: line.ownership, madeAt: charge.madeAt, purchaseDate: charge.purchaseDate,
      expiresDate: charge.expiresDate, priceMilliunits: charge.priceMilliunits,
      currency: charge.product.currency, quantity: charge.quantity,
      appAccountToken: charge.appAccountToken, account: charge.account,
      upgradedAt: charge.upgradedAt, revokedAt: charge.revocation(asOf: now)?.at,
      orderID: line.ownership == .purchased ? charge.orderID : nil)
  }
}

struct Customer: Sendable {
  /// The transaction IDs of charges on one device that differ from the charges' own.
  struct Restoration: Sendable {
    struct Name: Sendable {
      let id: TransactionID
      let givenAt: Timestamp
    }

    var names: [Int: Name] = [:]  // By the charge's number
  }

  let appleID: AppleID
  let environment: Environment
  let since: Timestamp
  var cardWorks = true
  var isDeleted = false
  /// The member who pays for this one.
  var organizer: Int?
  var familyMembers: [Int] = []
  var lines: [Int] = []
  /// Groups whose introductory offer was used.
  var introducedGroups: Set<String> = []
  var restorations: [Restoration] = []
}

struct Device: Sendable {
  var customer: Int
  var account: AppAccountID?
  /// The restoration that each app's receipts use.
  var restorations: [Int: Int] = [:]
}

/// A scheduled step, cancelled if its subscription is scheduled again.
struct Due: Comparable, Sendable {
  enum Step: Sendable {
    case renewalAttempt
    case periodEnd
    case graceEnd
    case retryEnd
  }

  let at: Timestamp
  let sequence: Int
  let step: Step
  let line: Int
  let schedule: Int

  static func < (lhs: Due, rhs: Due) -> Bool {
    (lhs.at, lhs.sequence) < (rhs.at, rhs.sequence)
  }

  static func == (lhs: Due, rhs: Due) -> Bool { lhs.sequence == rhs.sequence }
}

extension AppStoreState {
  mutating func add(_ app: SimulatedApp) throws {
    guard !apps.contains(where: { $0.bundleID == app.bundleID }) else {
      throw SimulationError(.alreadyExists, "The app \(app.bundleID) already exists.")
    }
    var ids = Set(shelf.keys)
    for product in app.products {
      guard ids.insert(product.id).inserted else {
        throw SimulationError(.alreadyExists, "The product \(product.id) already exists.")
      }
      let isSubscription = product.type == .autoRenewable
      guard isSubscription == (product.group != nil), isSubscription == (product.period != nil)
      else {
        throw SimulationError(
          .notPossible, "\(product.id): subscriptions have a group and a period, others neither.")
      }
    }
    apps.append(app)
    for product in app.products { shelf[product.id] = (product, apps.count - 1) }
  }

  mutating func addCustomer(_ id: AppleID, environment: Environment) throws {
    guard customerNumbers[id] == nil else {
      throw SimulationError(.alreadyExists, "The Apple ID \(id) already exists.")
    }
    customers.append(Customer(appleID: id, environment: environment, since: now))
    customerNumbers[id] = customers.count - 1
  }

  func receipt(on id: DeviceID, bundleID: String?, transaction: TransactionID?) throws -> String {
    let device = try device(id)
    let customer = customers[device.customer]
    let app: Int
    var style = SimulatedReceipt.Style.app
    var details: [(key: String, value: String)] = []
    if let transaction {
      let charge = try chargeNumber(transaction)
      guard lines[charges[charge].line].customer == device.customer else {
        throw SimulationError(
          .unknownTransaction, "\(customer.appleID) has no transaction \(transaction).")
      }
      app = lines[charges[charge].line].app
      style = .transaction(transaction)
      details = purchaseInfo(of: charge)
    } else {
      app = try appNumber(bundleID)
    }
    return encoded(
      SimulatedReceipt(
        style: style, environment: customer.environment, bundleID: apps[app].bundleID,
        appleID: customer.appleID, madeAt: now, restoration: device.restorations[app]),
      app: app, customer: device.customer, details: details)
  }

  /// A receipt in base64; `details` are further entries of an iOS 6 receipt's property list.
  func encoded(
    _ receipt: SimulatedReceipt, app: Int, customer: Int,
    details: [(key: String, value: String)] = []
  ) -> String {
    switch receipt.style {
    case .app: Data(appReceipt(receipt, app: app, customer: customer)).base64EncodedString()
    case .transaction(let id):
      receipt.transactionReceipt(id, details, seed: configuration.seed)
    }
  }
}
