import AppStore
import AppStoreSimulator
import JSONText
import Subscriptions
import Testing

/// Invariants of every population; the seed in a test's name reproduces its failure.
struct PopulationTests {
  private static let seeds: [UInt64] = [1, 0xdead_beef, 20_261_121]

  private func population(
    _ seed: UInt64, customers: Int = 40, months: Int = 14, sandboxShare: Double = 0.1,
    signer: SimulatedSigner? = nil
  ) throws -> SimulatedPopulation {
    try SimulatedPopulation(
      configuration: SimulatedPopulation.Configuration(
        seed: seed, customers: customers, months: months, sandboxShare: sandboxShare,
        signer: signer))
  }

  @Test(arguments: seeds) func sameSeedSameBytes(_ seed: UInt64) throws {
    let signer = try SimulatedSigner()
    func run() throws -> ([SimulatedSubmission], [[UInt8]], [SimulatedEvent]) {
      let population = try population(seed, customers: 8, months: 6, signer: signer)
      population.simulation.setQuirks([.shuffled, .doubled, .split])
      population.simulation.setFaults { $0.rate = 0.1 }
      var submissions: [SimulatedSubmission] = []
      var answers: [[UInt8]] = []
      for submission in population {
        submissions.append(submission)
        let body = Stage.body(submission.receiptData)
        answers.append(
          population.simulation.verifyReceipt(body, at: submission.environment).body)
      }
      return (submissions, answers, population.simulation.events())
    }
    let (first, second) = (try run(), try run())
    #expect(first.0 == second.0)
    #expect(first.1 == second.1)
    #expect(first.2 == second.2)
    #expect(first.0.count > 50)
  }

  @Test func anotherSeedIsAnotherCrowd() throws {
    let receipts = try [1, 2].map { seed in
      try population(seed, customers: 3, months: 3).map(\.receiptData)
    }
    #expect(receipts[0] != receipts[1])
  }

  @Test func askingChangesNoLife() throws {
    func lives(asking: Bool) throws -> [SimulatedCharge] {
      let population = try population(7, customers: 10, months: 6)
      population.simulation.setQuirks([.shuffled])
      for submission in population where asking {
        _ = population.simulation.verifyReceipt(
          Stage.body(submission.receiptData), at: submission.environment)
      }
      return population.simulation.truth()
    }
    #expect(try lives(asking: true) == lives(asking: false))
  }

  @Test(arguments: seeds) func everythingHappens(_ seed: UInt64) throws {
    let population = try population(seed)
    var restores = 0
    for submission in population { restores += submission.restores ? 1 : 0 }
    let kinds = Set(population.simulation.events().map(\.kind.name))
    let expected: Set = [
      "subscribed", "resubscribed", "renewed", "recovered", "upgraded", "renewal_product_changed",
      "auto_renew_turned_off", "auto_renew_turned_on", "renewal_failed", "expired", "bought_once",
      "refunded", "restored",
    ]
    #expect(kinds.isSuperset(of: expected), "missing: \(expected.subtracting(kinds)), seed \(seed)")
    #expect(restores > 0)
    let lines = Dictionary(grouping: population.simulation.truth(), by: \.line)
    let shared = lines.values.filter { Set($0.compactMap(\.account)).count > 1 }
    #expect(!shared.isEmpty, "Some lines have charges of several accounts; seed \(seed)")
  }

  @Test(arguments: seeds) func invariantsOfSubscriptions(_ seed: UInt64) throws {
    let population = try population(seed)
    for _ in population {}
    let now = population.simulation.now
    let truth = population.simulation.truth()
    #expect(truth.count > 300)

    // One line per Apple ID and group, family sharing aside.
    let own = truth.filter { $0.group != nil && $0.ownership == .purchased }
    for (key, charges) in Dictionary(grouping: own, by: { "\($0.appleID) \($0.group ?? "")" }) {
      #expect(Set(charges.map(\.line)).count == 1, "\(key), seed \(seed)")
    }
    // Every name of a charge and every line item belongs to one charge.
    let names = truth.flatMap(\.transactionIDs)
    #expect(Set(names).count == names.count, "seed \(seed)")
    let items = truth.compactMap(\.webOrderLineItemID)
    #expect(Set(items).count == items.count, "seed \(seed)")
    #expect(items.count == truth.count { $0.productType == .autoRenewable }, "seed \(seed)")

    let reinstated = Set(
      population.simulation.events().filter { $0.kind == .refundReversed }
        .map(\.originalTransactionID))
    for (line, charges) in Dictionary(grouping: truth, by: \.line) where charges[0].group != nil {
      for charge in charges {
        let end = try #require(charge.expiresDate)
        #expect(charge.purchaseDate < end, "\(line), seed \(seed)")
        #expect(charge.madeAt <= now, "\(line), seed \(seed)")
        if charge.kind == .renewal, charge.ownership == .purchased {
          let lead = charge.purchaseDate - charge.madeAt
          #expect(.zero <= lead && lead <= .hours(24), "\(line), seed \(seed)")
        }
      }
      // Valid charges never overlap, unless Apple reversed a refund after a new purchase.
      let validCharges = charges.filter { $0.revokedAt == nil && $0.upgradedAt == nil }
        .sorted { $0.purchaseDate < $1.purchaseDate }
      for (previous, next) in zip(validCharges, validCharges.dropFirst())
      where !reinstated.contains(line.originalTransactionID) {
        let end = try #require(previous.expiresDate)
        #expect(end <= next.purchaseDate, "\(line), seed \(seed)")
      }
      let ends = Set(charges.compactMap(\.expiresDate))
      for charge in charges where charge.kind == .renewal && charge.ownership == .purchased {
        #expect(ends.contains(charge.purchaseDate), "\(line), seed \(seed)")
      }
    }
  }

  @Test(arguments: seeds) func answersAreTrue(_ seed: UInt64) throws {
    let population = try population(seed, customers: 8, months: 6)
    var lineItems: [String: String] = [:]
    for submission in population {
      let answer = population.simulation.verifyReceipt(
        Stage.body(submission.receiptData), at: submission.environment)
      let json = try JSONValue(parsing: answer.body)
      #expect(json.status == 0, "seed \(seed)")
      for item in json.latest + json.inApp {
        let id = TransactionID(try #require(item.text("transaction_id")))
        let charge = try population.simulation.truth(of: id)
        #expect(item.text("original_transaction_id") == charge.originalTransactionID.rawValue)
        #expect(item.text("product_id") == charge.productID.rawValue)
        #expect(item.date("purchase") == charge.purchaseDate)
        guard let lineItem = item.text("web_order_line_item_id") else { continue }
        // The line item permanently names the charge, whatever a restore calls the transaction.
        let known = lineItems.updateValue(charge.transactionID.rawValue, forKey: lineItem)
        #expect(known == nil || known == charge.transactionID.rawValue, "seed \(seed)")
      }
      let current = json.latest.filter {
        $0["cancellation_date"] == nil && $0["is_upgraded"] == nil
      }
      if let transaction = submission.transactionID, !submission.restores {
        let bought = try population.simulation.truth(of: transaction)
        if bought.productType == .autoRenewable, bought.revokedAt == nil, bought.upgradedAt == nil {
          let items = current.compactMap { $0.text("web_order_line_item_id") }
          #expect(items.contains(bought.webOrderLineItemID?.rawValue ?? ""), "seed \(seed)")
        }
      }
    }
  }
}
