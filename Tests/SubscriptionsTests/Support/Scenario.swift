import Subscriptions
import Testing

/// One of the worked scenarios of the specification: what happened, day by day, and what comes of
/// it.
struct Scenario: Sendable, CustomTestStringConvertible {
  /// An event of the story; every number is a day.
  enum Step: Sendable {
    // At Apple's:
    case buys(
      TransactionID, ProductID, Double, to: Double? = nil, token: AccountKey? = nil)
    case renews(TransactionID, ProductID, Double, to: Double, token: AccountKey? = nil)
    case upgrades(TransactionID, at: Double)
    case refunds(TransactionID, at: Double)
    /// On another device Apple lists the same charge under another id.
    case relists(TransactionID, as: TransactionID)
    case switches(on: Bool, token: AccountKey? = nil)
    case fails(RenewalStatus.Phase)
    case expires
    // At the app's:
    case orders(AccountKey, ProductID, Double)
    // Received by the ledger:
    /// A receipt, verified `verified` days into the story, else at once.
    case submits(AccountKey, Double, verified: Double? = nil, restores: Bool = false)
    case polls(Double)
    case notifies(TransactionID, ChargeKind, Double)
    case receives(RenewalStatus)
  }

  struct Holds: Sendable {
    var account: AccountKey
    var day: Double
    var state: Entitlement.State?
    var until: Double?

    init(
      _ account: AccountKey, _ day: Double, _ state: Entitlement.State?, until: Double? = nil
    ) {
      self.account = account
      self.day = day
      self.state = state
      self.until = until
    }
  }

  var name: String
  var steps: [Step]
  /// The owner and the row of the decision table for each charge.
  var owners: [TransactionID: (AccountKey?, Decision.Rule)]
  /// The account to which the line is bound, and since which day.
  var bindings: [(AccountKey?, Double)]
  var holds: [Holds]

  init(
    _ name: String, _ steps: [Step], owners: [TransactionID: (AccountKey?, Decision.Rule)],
    bindings: [(AccountKey?, Double)], holds: [Holds]
  ) {
    self.name = name
    self.steps = steps
    self.owners = owners
    self.bindings = bindings
    self.holds = holds
  }

  var testDescription: String { name }
}

/// The input of one recording, and its day.
struct Delivery {
  var at: Timestamp
  var items: [Item]
}

extension Scenario {
  var openedOrders: Set<OpenedOrder> {
    Set(
      steps.compactMap { step in
        if case .orders(let account, let product, let at) = step {
          OpenedOrder(account: account, productID: product, openedAt: day(at))
        } else {
          nil
        }
      })
  }

  /// Plays the story at Apple's, and collects the ledger's input.
  func deliveries() -> [Delivery] {
    var apple = Apple()
    return steps.compactMap { apple.live(through: $0) }
  }

  func ledger(receiving deliveries: [[Item]]) -> Ledger {
    var ledger = Ledger(orders: openedOrders)
    for items in deliveries { ledger.record(items) }
    return ledger
  }
}

/// Apple's records of the one line of a scenario.
private struct Apple {
  private var transactions: [TransactionRecord] = []
  private var autoRenews = true
  private var phase = RenewalStatus.Phase.undisturbed
  private var token: AccountKey?

  mutating func live(through step: Scenario.Step) -> Delivery? {
    switch step {
    case .buys(let id, let product, let start, let end, let token):
      add(id, product, start, end, token)
    case .renews(let id, let product, let start, let end, let token):
      add(id, product, start, end, token)
    case .upgrades(let id, let at), .refunds(let id, let at):
      change(id) { $0.revocation = .revoked(at: day(at), reason: nil) }
    case .relists(let id, let other):
      change(id) { $0.key = key(other, $0.key.productID) }
    case .switches(let on, let account):
      autoRenews = on
      token = account ?? token
    case .fails(let newPhase):
      phase = newPhase
    case .expires:
      (phase, autoRenews) = (.expired, false)
    case .orders:
      break
    case .submits(let account, let at, let verified, let restores):
      let selection: ClaimSelection = restores ? .restore : .latest
      let records = answer(asOf: day(verified ?? at))
      let selected = selection.select(from: records, receivedAt: day(at), catalogue: catalogue)
      return Delivery(
        at: day(verified ?? at),
        items: evidence(records, asOf: day(verified ?? at))
          + [
            .actions(
              selected.map {
                .claim(Claim(account: account, transaction: $0.key, receivedAt: day(at)))
              })
          ])
    case .polls(let at):
      return Delivery(
        at: day(at), items: evidence(answer(asOf: day(at)), asOf: day(at)))
    case .notifies(let id, let kind, let at):
      let records = answer(asOf: day(at)).filter { $0.key.transactionID == id }
      return Delivery(
        at: day(at),
        items: records.map { record in
          var record = record
          record.kind = kind
          return .evidence(.transaction(record))
        })
    case .receives(let status):
      return Delivery(
        at: status.asOf, items: [.evidence(.renewalStatus(status, line: mainKey))])
    }
    return nil
  }

  private mutating func add(
    _ id: TransactionID, _ product: ProductID, _ start: Double, _ end: Double?,
    _ account: AccountKey?
  ) {
    phase = .undisturbed
    transactions.append(
      charge(
        id, product, from: day(start), to: end.map { day($0) },
        item: end.map { _ in WebOrderLineItemID("w\(id)") },
        token: account.map { issuedToken($0) }))
  }

  private mutating func change(
    _ id: TransactionID, _ change: (inout TransactionRecord) -> Void
  ) {
    for index in transactions.indices where transactions[index].key.transactionID == id {
      change(&transactions[index])
    }
  }

  /// Everything that Apple knows, in an order of no meaning.
  private func answer(asOf: Timestamp) -> [TransactionRecord] {
    transactions.reversed().map { record in
      var record = record
      record.asOf = asOf
      return record
    }
  }

  private func evidence(_ records: [TransactionRecord], asOf: Timestamp) -> [Item] {
    let line = records.contains { $0.expiresDate != nil }
    let status = RenewalStatus(
      asOf: asOf, autoRenews: autoRenews, phase: phase,
      appAccountToken: token.map { issuedToken($0) })
    return records.map { .evidence(.transaction($0)) }
      + (line ? [.evidence(.renewalStatus(status, line: mainKey))] : [])
  }
}
