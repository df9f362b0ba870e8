import struct Foundation.Data
import struct Foundation.UUID
import HeapModule
import Subscriptions

/// All that the simulated Apple knows.
///
/// Pure: time and chance are part of it, and nothing else has a say.
struct AppStoreState: Sendable {
  let configuration: AppStoreSimulation.Configuration
  var now: Timestamp
  /// Chance in customers' lives: apart from the chance in answers, so that asking changes no life.
  var life: SplitMix64
  var answering: SplitMix64
  var faults: FaultPlan
  /// Faults of the App Store Server API.
  var serverFaults: FaultPlan
  var quirks: Set<Quirk>
  var answerLag: Duration

  var apps: [SimulatedApp] = []
  var shelf: [ProductID: (product: SimulatedProduct, app: Int)] = [:]
  var withdrawn: Set<ProductID> = []
  var customers: [Customer] = []
  var customerNumbers: [AppleID: Int] = [:]
  var devices: [DeviceID: Device] = [:]
  var lines: [Line] = []
  var lineNumbers: [OriginalTransactionID: Int] = [:]
  var charges: [Charge] = []
  /// By every name that a charge has or had.
  var chargeNumbers: [TransactionID: Int] = [:]
  var events: [SimulatedEvent] = []
  let signer: SimulatedSigner
  var mail: NotificationMail
  var massExtensions: [MassExtension] = []
  var limits: RateLimits

  private var dues = Heap<Due>()
  private var dueSequence = 0
  private var modifications = 0
  /// How many events were made notifications of.
  private var settledEvents = 0
  /// Separate number spaces, as Apple's look in practice.
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
    mail = NotificationMail(seed: seeds.next())
    limits = RateLimits(scale: configuration.rateLimitScale)
    self.signer = signer
    quirks = configuration.quirks
    answerLag = configuration.answerLag
  }

  // MARK: Time

  /// Lets everything happen that is due until `moment`, in its order.
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

  /// Makes notifications of what happened, as Apple knows it now.
  mutating func settle() {
    while settledEvents < events.count {
      let event = events[settledEvents]
      settledEvents += 1
      if mail.hasTargets { notify(about: event) }
    }
  }

  /// Notes that what Apple says of a charge has changed.
  mutating func touch(_ charge: Int) {
    modifications += 1
    charges[charge].modification = modifications
  }

  // MARK: Numbers

  /// An unused number; the next few after it stay free, for restores to name charges with.
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

  /// Notes something about a line as such: the charge is its latest.
  @discardableResult
  mutating func note(
    _ kind: SimulatedEvent.Kind, line: Int, by account: AppAccountID? = nil
  ) -> SimulatedEvent {
    guard let latest = standingCharge(of: line) ?? lines[line].charges.last else {
      preconditionFailure("A line begins with a charge.")
    }
    return note(kind, charge: latest, by: account)
  }

  /// The line's latest charge that was neither given back nor replaced.
  func standingCharge(of line: Int) -> Int? {
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
      throw SimulationError(.unknownProduct, "There is no product \(id) for sale.")
    }
    return offering
  }

  /// The app of a bundle id; without one the only app there is.
  func appNumber(_ bundleID: String?) throws -> Int {
    guard let bundleID else {
      guard apps.count == 1 else {
        throw SimulationError(.unknownApp, "There is not just one app: name the bundle id.")
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

/// One Apple ID, as Apple knows it.
struct Customer: Sendable {
  /// The names under which one device knows charges, where they are not the charges' own.
  struct Restoration: Sendable {
    struct Name: Sendable {
      let id: TransactionID
      let givenAt: Timestamp
    }

    /// By the charge's number.
    var names: [Int: Name] = [:]
  }

  let appleID: AppleID
  let environment: Environment
  let since: Timestamp
  var cardWorks = true
  var isDeleted = false
  /// Who pays for this family member.
  var organizer: Int?
  var familyMembers: [Int] = []
  var lines: [Int] = []
  /// Groups in which the introductory offer was used up.
  var introducedGroups: Set<String> = []
  var restorations: [Restoration] = []
}

struct Device: Sendable {
  var customer: Int
  var account: AppAccountID?
  /// For each app the restoration whose names its receipts use.
  var restorations: [Int: Int] = [:]
}

/// Something that Apple will do at a moment, unless the line is scheduled anew before.
struct Due: Comparable, Sendable {
  enum Step: Sendable {
    case renewalAttempt
    case periodEnd
    case graceEnd
    case retryEnd
  }

  let at: Timestamp
  /// Breaks ties in the order of planning.
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
      throw SimulationError(.alreadyExists, "There is an app \(app.bundleID) already.")
    }
    var ids = Set(shelf.keys)
    for product in app.products {
      guard ids.insert(product.id).inserted else {
        throw SimulationError(.alreadyExists, "There is a product \(product.id) already.")
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
      throw SimulationError(.alreadyExists, "There is an Apple ID \(id) already.")
    }
    customers.append(Customer(appleID: id, environment: environment, since: now))
    customerNumbers[id] = customers.count - 1
  }

  /// A receipt as the device would send it now.
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

  /// A receipt as base64; `details` is what the property list of an iOS 6 receipt says beside its
  /// transaction id.
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
