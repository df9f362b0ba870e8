import Subscriptions
import Testing

/// The events of a recording, by account.
struct OriginalTransactionEventsTests {
  /// Steps of a story, each with its events.
  struct Story: Sendable, CustomTestStringConvertible {
    let testDescription: String
    let steps: [(step: @Sendable (inout Ledger) -> Void, published: [String])]

    init(_ name: String, _ steps: [(@Sendable (inout Ledger) -> Void, [String])]) {
      testDescription = name
      self.steps = steps
    }
  }

  // swift-format-ignore
  static let stories: [Story] = [
    Story("A purchase that is submitted", [
      ({ $0.record(bought("1", 0) + [claims("1", a, 0)]) }, [
        "transaction.recorded A 1",
        "transaction.claimed A 1 gained by submitter",
        "binding.opened A 1 by submitter from none",
      ]),
      ({ $0.record(bought("1", 0) + [claims("1", a, 1)]) }, []),
      ({ $0.record(bought("1", 0, asOf: 5)) }, []),
      ({ $0.claim(key("1"), by: b) }, []),
    ]),

    Story("Apple's notification beats the submission", [
      ({ $0.record(bought("1", 0)) }, ["transaction.recorded - 1"]),
      ({ $0.claim(key("1"), by: a) }, [
        "transaction.claimed A 1 gained by submitter",
        "binding.opened A 1 by submitter from none",
      ]),
    ]),

    Story("What was bought with a token of its own is its account's", [
      ({ $0.receive(charge("1", from: day(0), to: day(30), token: issuedToken(t))) }, [
        "transaction.recorded T 1",
        "transaction.owner_decided T 1 gained by app_account_token",
        "binding.opened T 1 by app_account_token from none",
      ]),
      ({ $0.claim(key("1"), by: a) }, []),
    ]),

    Story("The holder of a repeated token yields to a claim", [
      ({ $0.receive(charge("0", from: day(-60), to: day(-30), token: issuedToken(t))) }, [
        "transaction.recorded T 0",
        "transaction.owner_decided T 0 gained by app_account_token",
        "binding.opened T 0 by app_account_token from none",
      ]),
      ({ $0.receive(charge("1", from: day(0), to: day(30), token: issuedToken(t))) }, [
        "transaction.recorded T 1",
        "transaction.owner_decided T 1 gained by app_account_token",
      ]),
      ({ $0.claim(key("1"), by: a) }, [
        "transaction.owner_corrected T 1 lost by submitter from another_account",
        "transaction.claimed A 1 gained by submitter from another_account",
        "binding.closed T 1 by submitter from another_account",
        "binding.opened A 1 by submitter from another_account",
      ]),
    ]),

    Story("A renewal; and what Apple says of auto-renew", [
      ({ $0.record(bought("1", 0) + [claims("1", a, 0)]) }, [
        "transaction.recorded A 1",
        "transaction.claimed A 1 gained by submitter",
        "binding.opened A 1 by submitter from none",
      ]),
      ({ $0.receive([on(day(1))]) }, []),
      ({ $0.receive([off(day(2))]) }, ["renewal_status.changed A 1 off for monthly"]),
      ({ $0.receive([off(day(3))]) }, []),
      // Late evidence of an ended period.
      ({ $0.receive([on(day(1.5))]) }, []),
      ({ $0.receive([on(day(4))]) }, ["renewal_status.changed A 1 on for monthly"]),
      ({ $0.record(bought("2", 30)) }, [
        "transaction.recorded A 2",
        "transaction.owner_decided A 2 gained by actively_auto_renewing",
      ]),
    ]),

    Story("A first answer that says off", [
      ({ $0.record(bought("1", 0) + [claims("1", a, 0), says(off(day(1)))]) }, [
        "transaction.recorded A 1",
        "transaction.claimed A 1 gained by submitter",
        "binding.opened A 1 by submitter from none",
        "renewal_status.changed A 1 off for monthly",
      ]),
    ]),

    Story("A bought and switched off before any claim: no event, then one for A", [
      ({ $0.record(bought("1", 0) + [says(off(day(1)))]) }, [
        "transaction.recorded - 1", "renewal_status.changed - 1 off for monthly",
      ]),
      ({ $0.claim(key("1"), by: a) }, [
        "transaction.claimed A 1 gained by submitter",
        "binding.opened A 1 by submitter from none",
        "renewal_status.changed A 1 off for monthly",
      ]),
    ]),

    Story("A off, A's month ends, B buys: events for both", [
      ({ $0.record(bought("1", 0) + [claims("1", a, 0), says(off(day(1)))]) }, [
        "transaction.recorded A 1",
        "transaction.claimed A 1 gained by submitter",
        "binding.opened A 1 by submitter from none",
        "renewal_status.changed A 1 off for monthly",
      ]),
      ({ $0.record(bought("2", 35, .quarterly) + [says(on(day(35.1))), claims("2", b, 35, .quarterly)]) }, [
        "transaction.recorded B 2",
        "transaction.claimed B 2 gained by submitter",
        "binding.closed A 2 by submitter from another_account",
        "binding.opened B 2 by submitter from another_account",
      ]),
    ]),

    Story("A off, lapsed, and buys again", [
      ({ $0.record(bought("1", 0) + [claims("1", a, 0), says(off(day(1)))]) }, [
        "transaction.recorded A 1",
        "transaction.claimed A 1 gained by submitter",
        "binding.opened A 1 by submitter from none",
        "renewal_status.changed A 1 off for monthly",
      ]),
      ({ $0.record(bought("2", 35) + [claims("2", a, 35)]) }, [
        "transaction.recorded A 2",
        "transaction.claimed A 2 gained by submitter",
        "renewal_status.changed A 2 on for monthly",
      ]),
    ]),

    Story("An unclaimed resubscription ends A's binding", [
      ({ $0.record(bought("1", 0) + [claims("1", a, 0)]) }, [
        "transaction.recorded A 1",
        "transaction.claimed A 1 gained by submitter",
        "binding.opened A 1 by submitter from none",
      ]),
      ({ $0.record(bought("2", 120)) }, [
        "transaction.recorded - 2",
        "binding.closed A 2 by unclaimed from none",
      ]),
    ]),

    Story("A's card fails", [
      ({ $0.record(bought("1", 0) + [claims("1", a, 0)]) }, [
        "transaction.recorded A 1",
        "transaction.claimed A 1 gained by submitter",
        "binding.opened A 1 by submitter from none",
      ]),
      ({ $0.receive([status(day(30), .gracePeriod(until: day(46)))]) }, [
        "subscription.in_grace_period A 1 day 46",
      ]),
      ({ $0.receive([status(day(31), .gracePeriod(until: day(46)))]) }, []),
      ({ $0.receive([status(day(46), .billingRetry)]) }, ["subscription.in_billing_retry A 1"]),
      ({ $0.record(bought("2", 50)) }, [
        "transaction.recorded A 2",
        "transaction.owner_decided A 2 gained by actively_auto_renewing",
        "subscription.recovered A 2",
      ]),
      ({ $0.receive([status(day(80), .billingRetry)]) }, ["subscription.in_billing_retry A 2"]),
      ({ $0.receive([status(day(81), .undisturbed)]) }, ["subscription.recovered A 2"]),
      ({ $0.receive([status(day(82), .billingRetry)]) }, ["subscription.in_billing_retry A 2"]),
      ({ $0.receive([status(day(140), .expired)]) }, []),
      ({ $0.record(bought("3", 150) + [claims("3", a, 150)]) }, [
        "transaction.recorded A 3",
        "transaction.claimed A 3 gained by submitter",
      ]),
    ]),

    Story("B's card does not recover A's", [
      ({ $0.record(bought("1", 0) + [claims("1", a, 0)]) }, [
        "transaction.recorded A 1",
        "transaction.claimed A 1 gained by submitter",
        "binding.opened A 1 by submitter from none",
      ]),
      ({ $0.receive([status(day(30), .billingRetry)]) }, ["subscription.in_billing_retry A 1"]),
      ({ $0.record(bought("2", 100) + [claims("2", b, 100)]) }, [
        "transaction.recorded B 2",
        "transaction.claimed B 2 gained by submitter",
        "binding.closed A 2 by submitter from another_account",
        "binding.opened B 2 by submitter from another_account",
      ]),
    ]),

    Story("A refund, taken back, and another", [
      ({ $0.record(bought("1", 0) + [claims("1", a, 0)]) }, [
        "transaction.recorded A 1",
        "transaction.claimed A 1 gained by submitter",
        "binding.opened A 1 by submitter from none",
      ]),
      ({ $0.record(refunded("1", 0, on: 10, asOf: 11)) }, ["transaction.revoked A 1 day 10"]),
      ({ $0.record(refunded("1", 0, on: 10, asOf: 12)) }, []),
      ({ $0.record(bought("1", 0, asOf: 13)) }, ["transaction.restored A 1"]),
      ({ $0.record(refunded("1", 0, on: 14, asOf: 15)) }, ["transaction.revoked A 1 day 14"]),
      ({ $0.record(refunded("1", 0, on: 16, asOf: 17)) }, ["transaction.revoked A 1 day 16"]),
    ]),

    Story("An unclaimed charge is refunded before it is known", [
      ({ $0.record(refunded("1", 0, on: 10, asOf: 11)) }, [
        "transaction.recorded - 1", "transaction.revoked - 1 day 10",
      ]),
    ]),

    Story("An upgrade is no refund", [
      ({ $0.record(bought("1", 0) + [claims("1", a, 0)]) }, [
        "transaction.recorded A 1",
        "transaction.claimed A 1 gained by submitter",
        "binding.opened A 1 by submitter from none",
      ]),
      // The upgrade first looks like a refund.
      ({ $0.record(refunded("1", 0, on: 15, asOf: 15)) }, ["transaction.revoked A 1 day 15"]),
      ({ $0.record(bought("2", 15, .quarterly) + [claims("2", a, 15, .quarterly)]) }, [
        "transaction.recorded A 2",
        "transaction.owner_decided A 2 gained by actively_auto_renewing",
        "transaction.restored A 1",
        "product.changed A 2 monthly to quarterly",
      ]),
    ]),

    Story("An announced change of plan", [
      ({ $0.record(bought("1", 0) + [claims("1", a, 0)]) }, [
        "transaction.recorded A 1",
        "transaction.claimed A 1 gained by submitter",
        "binding.opened A 1 by submitter from none",
      ]),
      ({ $0.receive([announces(.quarterly, 10)]) }, ["renewal_status.changed A 1 on for quarterly"]),
      ({ $0.receive([announces(.quarterly, 11)]) }, []),
      ({ $0.record(bought("2", 30, .quarterly)) }, [
        "transaction.recorded A 2",
        "transaction.owner_decided A 2 gained by actively_auto_renewing",
        "product.changed A 2 monthly to quarterly",
      ]),
      ({ $0.receive([announces(.monthly, 31)]) }, ["renewal_status.changed A 2 on for monthly"]),
      // Another one is bought before that comes.
      ({ $0.record(bought("3", 40, "both") + [claims("3", a, 40, "both")]) }, [
        "transaction.recorded A 3",
        "transaction.owner_decided A 3 gained by actively_auto_renewing",
        "product.changed A 3 quarterly to both",
      ]),
    ]),

    Story("Apple's late evidence proves an owner wrong", [
      ({ $0.record(bought("1", 0) + [claims("1", a, 0)]) }, [
        "transaction.recorded A 1",
        "transaction.claimed A 1 gained by submitter",
        "binding.opened A 1 by submitter from none",
      ]),
      ({ $0.record(bought("2", 35) + [claims("2", b, 35)]) }, [
        "transaction.recorded B 2",
        "transaction.claimed B 2 gained by submitter",
        "binding.closed A 2 by submitter from another_account",
        "binding.opened B 2 by submitter from another_account",
      ]),
      ({ $0.record(bought("2", 35, kind: .renewal)) }, [
        "transaction.owner_corrected B 2 lost by actively_auto_renewing from another_account",
        "transaction.owner_corrected A 2 gained by actively_auto_renewing from another_account",
        "binding.closed B 2 by actively_auto_renewing from another_account",
        "binding.opened A 2 by actively_auto_renewing from another_account",
      ]),
    ]),

    Story("An administrator places a charge", [
      ({ $0.record(bought("1", 0)) }, ["transaction.recorded - 1"]),
      ({ $0.place(key("1"), with: a, from: day(1)) }, [
        "transaction.owner_decided A 1 gained by administrator",
        "binding.opened A 1 by administrator from none",
      ]),
      ({ $0.place(key("1"), with: a, from: day(2)) }, []),
      ({ $0.place(key("1"), with: b, from: day(3)) }, [
        "transaction.owner_corrected A 1 lost by administrator from another_account",
        "transaction.owner_corrected B 1 gained by administrator from another_account",
        "binding.closed A 1 by administrator from another_account",
        "binding.opened B 1 by administrator from another_account",
      ]),
      ({ $0.place(key("1"), with: nil, from: day(4)) }, [
        "transaction.owner_corrected B 1 lost by unclaimed from none",
        "binding.closed B 1 by unclaimed from none",
      ]),
    ]),

    Story("What was taken for a charge reports another", [
      ({ $0.receive(charge("1", .lifetime, from: day(0), asOf: day(9), productType: .nonConsumable)) },
        ["transaction.recorded - 1"]),
      ({ $0.claim(key("1", .lifetime), by: a) }, [
        "transaction.claimed A 1 gained by submitter",
        "binding.opened A 1 by submitter from none",
      ]),
      // Refunded before it was bought again, as it seems.
      ({ $0.record([
          .evidence(.transaction(charge("1", .lifetime, from: day(0), asOf: day(10),
            revocation: .revoked(at: day(5), reason: nil), productType: .nonConsumable)))
        ]) }, ["transaction.revoked A 1 day 5"]),
      ({ $0.record([
          .evidence(.transaction(charge("2", .lifetime, from: day(8), asOf: day(11),
            productType: .nonConsumable))),
          .actions([.claim(Claim(account: b, transaction: key("2", .lifetime), receivedAt: day(11)))])
        ]) }, [
        "transaction.recorded B 2",
        "transaction.claimed B 2 gained by submitter",
        "binding.closed A 2 by submitter from another_account",
        "binding.opened B 2 by submitter from another_account",
      ]),
      ({ $0.receive(charge("1", .lifetime, from: day(0), asOf: day(12),
          productType: .nonConsumable)) }, [
        "transaction.owner_corrected B 2 lost by unclaimed",
        "transaction.restored A 1",
        "binding.closed B 1 by submitter from another_account",
        "binding.opened A 1 by submitter from another_account",
      ]),
    ]),
  ]

  @Test(arguments: stories)
  func `both accounts get their events, once, in order`(_ story: Story) {
    var ledger = Ledger()
    for (number, (step, published)) in story.steps.enumerated() {
      let events = ledger.published(step)
      #expect(events.map(\.words) == published, "step \(number + 1)")
      #expect(events.allSatisfy { $0.occurredAt == ledger.now })
    }
  }

  @Test func `a charge's event says what was bought`() {
    var ledger = Ledger()
    let events = ledger.published { $0.record(Self.refunded("1", 0, on: 10, asOf: 11)) }
    let data = events.first?.data
    #expect(data?.line == mainKey)
    #expect(data?.productID == .monthly)
    #expect(data?.purchasedAt == day(0))
    #expect(data?.expiresAt == day(30))
    #expect(data?.revokedAt == day(10))
  }

  @Test func `the reason names no account`() {
    var ledger = Ledger()
    ledger.record(Self.bought("1", 0) + [Self.claims("1", a, 0)])
    let bought = ledger.published { $0.record(Self.bought("2", 35) + [Self.claims("2", b, 35)]) }
    let reasons = Dictionary(grouping: bought, by: \.account).mapValues {
      Set($0.compactMap(\.data.because))
    }
    let rest =
      " submitted it first; the period of transaction 1 had ended, and Apple had not reported a "
      + "billing retry."
    #expect(reasons == [a: ["Another account" + rest], b: ["This account" + rest]])
    let unclaimed = ledger.published { $0.record(Self.bought("3", 300)) }
    #expect(unclaimed.last?.data.because?.hasPrefix("No account has submitted it yet; ") == true)
    let placed = ledger.published { $0.place(key("3"), with: a, from: day(301)) }
    #expect(placed.last?.data.because == "An administrator assigned it to this account.")
  }

  @Test func `linked original transactions publish as one`() {
    var ledger = Ledger(members: [mainKey, otherKey])
    ledger.record(Self.bought("1", 0) + [Self.claims("1", a, 0)])
    let events = ledger.published {
      $0.record([
        .evidence(.link(line: otherKey, previous: mainKey)),
        .evidence(
          .transaction(charge("2", from: day(30), to: day(60), line: otherKey, item: "w2"))),
      ])
    }
    #expect(
      events.map(\.words) == [
        "transaction.recorded A 2",
        "transaction.owner_decided A 2 gained by actively_auto_renewing",
      ])
    #expect(events.allSatisfy { $0.data.line == otherKey })
  }

  @Test(
    "The price is that of movements: from any transaction of the charge, and 0 if nothing is paid",
    arguments: [
      (PeriodType.normal, OwnershipType.purchased, 9990), (.trial, .purchased, 0),
      (.normal, .familyShared, 0),
    ] as [(PeriodType, OwnershipType, Int64)])
  func prices(period: PeriodType, ownership: OwnershipType, price: Int64) {
    var (first, alias) = (
      charge("1", from: day(0), to: day(30), item: "w"),
      charge("9", from: day(0), to: day(30), item: "w")
    )
    (first.periodType, first.ownershipType) = (period, ownership)
    (alias.periodType, alias.ownershipType) = (period, ownership)
    (alias.priceMilliunits, alias.currency) = (9990, "EUR")
    var ledger = Ledger()
    let events = ledger.published {
      $0.record([.evidence(.transaction(first)), .evidence(.transaction(alias))])
    }
    #expect(events.first?.data.transactionID == "1")
    #expect(events.first?.data.terms?.price?.amountMilliunits == price)
    #expect(events.first?.data.terms?.ownershipType == ownership)
  }

  // MARK: Listeners

  /// The state of a reader that has received every event.
  struct Listener {
    var owners: [TransactionID: AccountKey] = [:]
    var revoked: Set<TransactionID> = []
    var recorded: Set<TransactionID> = []
    var bound: AccountKey?
    var autoRenews = true
    var phase = LedgerEvent.Kind.recovered

    /// Returns a contradiction to an earlier event.
    mutating func receive(_ event: LedgerEvent) -> String? {
      let data = event.data
      guard let id = data.transactionID else { return "which charge? \(event)" }
      switch event.kind {
      case .transactionRecorded:
        if !recorded.insert(id).inserted { return "recorded again: \(id)" }
      case .ownerDecided, .transactionClaimed, .ownerCorrected:
        if data.isOwner == true { owners[id] = event.account }
        if data.isOwner == false, owners[id] == event.account { owners[id] = nil }
        if data.because == nil || data.rule == nil { return "no reason: \(event.words)" }
      case .transactionRevoked: revoked.insert(id)
      case .transactionRestored:
        if revoked.remove(id) == nil { return "was not revoked: \(id)" }
      case .bindingClosed:
        if bound != event.account { return "was not bound: \(event.words)" }
        (bound, autoRenews, phase) = (nil, true, .recovered)
      case .bindingOpened:
        if bound != nil { return "was bound: \(event.words)" }
        (bound, autoRenews, phase) = (event.account, true, .recovered)
      case .renewalStatusChanged: autoRenews = data.autoRenewing ?? autoRenews
      case .inGracePeriod, .inBillingRetry, .recovered:
        if event.kind == .recovered, phase == .recovered { return "was not disturbed: \(id)" }
        phase = event.kind
      default: break
      }
      return nil
    }
  }

  @Test func `a reader of all events knows owners, bindings, revocations and auto-renew`() {
    var (corrections, restored, statuses) = (0, 0, 0)
    forAll("The events describe the whole original transaction", iterations: 200) { generator in
      let isHostile = generator.once(in: 2)
      let history = RandomHistory(isHostile: isHostile, using: &generator)
      // A reader distinguishes charges by their transactions' ids.
      guard history.hasUniqueTransactionIDs else { return nil }
      var (ledger, listener) = (history.ledger, Listener())
      for batch in batches(rearranged(history.items, using: &generator), using: &generator) {
        let events = ledger.published { $0.record(batch) }
        for event in events {
          corrections += event.kind == .ownerCorrected ? 1 : 0
          restored += event.kind == .transactionRestored ? 1 : 0
          statuses += event.kind == .renewalStatusChanged ? 1 : 0
          if let contradiction = listener.receive(event) { return contradiction }
        }
        let repeated = ledger.published { $0.record(batch.filter(\.isNoOverride)) }
        if let first = repeated.first { return "published again: \(first.words)" }

        let rule = ledger.rule
        let owners = rule.charges.compactMap { charge in
          ledger.line.decisions[charge.id]?.decision.owner.map { (charge.id.transactionID, $0) }
        }
        let known = Dictionary(uniqueKeysWithValues: owners)
        if known != listener.owners { return "owners \(listener.owners) are \(known)" }
        // No event reports what became of a charge between its retirement and its return.
        let steady = Set(rule.charges.map(\.id)).subtracting(ledger.retired)
        let revoked = rule.charges.filter { steady.contains($0.id) && $0.revocation != nil }
        if Set(revoked.map(\.id.transactionID))
          != listener.revoked.intersection(steady.map(\.transactionID))
        {
          return "revoked are \(revoked.map(\.id.transactionID)) and not \(listener.revoked)"
        }
        if listener.bound != ledger.bindings.last?.account { return "another account is bound" }
        guard !isHostile, let position = rule.charges.latestPosition else { continue }
        let renewal = rule.renewal(ofChargeAt: position)
        if renewal.autoRenews != listener.autoRenews {
          return "auto-renew is \(renewal.autoRenews) after \(events.map(\.words))"
        }
      }
      return nil
    }
    #expect(corrections > 0 && restored > 0 && statuses > 0, "the property is about something")
  }
}

// MARK: The stories' words

extension OriginalTransactionEventsTests {
  static func bought(
    _ id: TransactionID, _ start: Double, _ product: ProductID = .monthly,
    kind: ChargeKind = .unknown, asOf: Double? = nil
  ) -> [Item] {
    [.evidence(.transaction(record(id, start, product, kind: kind, asOf: asOf)))]
  }

  static func refunded(_ id: TransactionID, _ start: Double, on date: Double, asOf: Double)
    -> [Item]
  {
    var record = record(id, start, .monthly, asOf: asOf)
    record.revocation = .revoked(at: day(date), reason: nil)
    return [.evidence(.transaction(record))]
  }

  private static func record(
    _ id: TransactionID, _ start: Double, _ product: ProductID, kind: ChargeKind = .unknown,
    asOf: Double?
  ) -> TransactionRecord {
    charge(
      id, product, from: day(start), to: day(start + (product == .quarterly ? 90 : 30)),
      asOf: asOf.map { day($0) }, kind: kind, item: WebOrderLineItemID("w\(id)"))
  }

  static func claims(
    _ id: TransactionID, _ account: AccountKey, _ date: Double, _ product: ProductID = .monthly
  ) -> Item {
    claimItem(key(id, product), by: account, receivedAt: day(date, .hours(1)))
  }

  static func says(_ status: RenewalStatus) -> Item {
    .evidence(.renewalStatus(status, line: mainKey))
  }

  static func announces(_ product: ProductID, _ date: Double) -> RenewalStatus {
    RenewalStatus(asOf: day(date), autoRenews: true, autoRenewProductID: product)
  }
}

extension Ledger {
  /// Charges that turned out to be duplicates of others.
  fileprivate var retired: Set<Charge.ID> {
    Set(
      items.compactMap { item in
        if case .ownership(let change) = item.content, change.retiresCharge {
          change.charge
        } else {
          nil
        }
      })
  }
}

extension RandomHistory {
  fileprivate var hasUniqueTransactionIDs: Bool {
    let keys = Set(
      items.compactMap { item in
        if case .evidence(.transaction(let record)) = item { record.key } else { nil }
      })
    return Set(keys.map(\.transactionID)).count == keys.count
  }
}

extension Item {
  /// An administrator who says the same twice has said it twice.
  fileprivate var isNoOverride: Bool {
    guard case .actions(let actions) = self else { return true }
    return actions.allSatisfy { if case .claim = $0 { true } else { false } }
  }
}
