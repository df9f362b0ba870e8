import Subscriptions
import Testing

/// The worked scenarios of the ownership rule, as receipts, polls and notifications would bring
/// them.
struct WorkedScenarioTests {
  // swift-format-ignore
  static let scenarios: [Scenario] = [
    Scenario("1: A's renewal, submitted by B's session", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0),
        .renews("2", .monthly, 30, to: 60), .submits(b, 29.5), .submits(b, 30.2),
      ],
      owners: ["1": (a, .submitter), "2": (a, .activelyAutoRenewing)],
      bindings: [(a, 0)],
      holds: [.init(a, 29.6, .active, until: 60), .init(a, 59, .active), .init(b, 45, nil)]),

    Scenario("2: A off, A's month ends, B buys quarterly", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0),
        .switches(on: false),    .polls(10),
        .buys("2", .quarterly, 35, to: 125), .switches(on: true), .submits(b, 35),
      ],
      owners: ["1": (a, .submitter), "2": (b, .submitter)],
      bindings: [(a, 0), (b, 35)],
      holds: [.init(a, 29, .active, until: 30), .init(a, 36, .expired), .init(b, 36, .active, until: 125)]),

    Scenario("2b: A off, B upgrades while A's month runs", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0),
        .switches(on: false),    .polls(10),
        .buys("2", .quarterly, 15, to: 105), .upgrades("1", at: 15), .switches(on: true), .submits(b, 15),
      ],
      owners: ["1": (a, .submitter), "2": (b, .submitter)],
      bindings: [(a, 0), (b, 15)],
      holds: [.init(a, 16, .expired, until: 15), .init(b, 16, .active, until: 105)]),

    Scenario("2c: A off, B ordered, Apple charges when A's month ends", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0),
        .switches(on: false),    .polls(10),
        .orders(b, .quarterly, 12), .switches(on: true), .submits(b, 12),
        .renews("2", .quarterly, 30, to: 120), .submits(b, 30.1),
      ],
      owners: ["1": (a, .submitter), "2": (b, .submitter)],
      bindings: [(a, 0), (b, 30)],
      holds: [.init(a, 29, .active, until: 30), .init(a, 31, .expired), .init(b, 31, .active, until: 120)]),

    Scenario("2c, without order or token: A is still renewing", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0),
        .switches(on: false),    .polls(10),
        .switches(on: true),     .submits(b, 12),
        .renews("2", .quarterly, 30, to: 120), .submits(b, 30.1),
      ],
      owners: ["1": (a, .submitter), "2": (a, .activelyAutoRenewing)],
      bindings: [(a, 0)],
      holds: [.init(a, 31, .active, until: 120), .init(b, 31, nil)]),

    Scenario("2c, the switch was not reported, Apple calls it a renewal: B, by the order", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0),
        .switches(on: false),    .polls(10),
        .orders(b, .quarterly, 12),
        .renews("2", .quarterly, 30, to: 120), .notifies("2", .renewal, 30), .submits(b, 30.1),
      ],
      owners: ["1": (a, .submitter), "2": (b, .submitter)],
      bindings: [(a, 0), (b, 30)],
      holds: [.init(a, 31, .expired), .init(b, 31, .active, until: 120)]),

    Scenario("2c, the switch was not reported, no order: A", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0),
        .switches(on: false),    .polls(10),
        .renews("2", .quarterly, 30, to: 120), .notifies("2", .renewal, 30), .submits(b, 30.1),
      ],
      owners: ["1": (a, .submitter), "2": (a, .activelyAutoRenewing)],
      bindings: [(a, 0)],
      holds: [.init(a, 31, .active, until: 120), .init(b, 31, nil)]),

    Scenario("2c, by the token in the renewal info", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0),
        .switches(on: false),    .polls(10),
        .switches(on: true, token: b), .polls(12),
        .renews("2", .quarterly, 30, to: 120), .submits(b, 30.1),
      ],
      owners: ["1": (a, .submitter), "2": (b, .submitter)],
      bindings: [(a, 0), (b, 30)],
      holds: [.init(a, 31, .expired), .init(b, 31, .active, until: 120)]),

    Scenario("2c, by the charge's own token, before anybody submits", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0),
        .switches(on: false),    .polls(10),
        .switches(on: true),     .polls(12),
        .renews("2", .quarterly, 30, to: 120, token: b), .polls(30.1),
      ],
      owners: ["1": (a, .submitter), "2": (b, .appAccountToken)],
      bindings: [(a, 0), (b, 30)],
      holds: [.init(a, 31, .expired), .init(b, 31, .active, until: 120)]),

    Scenario("3: B's quarterly plan renews while the phone is A's", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0),
        .switches(on: false),    .polls(10),
        .buys("2", .quarterly, 35, to: 125), .switches(on: true), .submits(b, 35),
        .renews("3", .quarterly, 125, to: 215), .submits(a, 125.1),
      ],
      owners: ["1": (a, .submitter), "2": (b, .submitter), "3": (b, .activelyAutoRenewing)],
      bindings: [(a, 0), (b, 35)],
      holds: [.init(a, 126, .expired), .init(b, 126, .active, until: 215)]),

    Scenario("4: the notification comes before the submission", [
        .buys("1", .monthly, 0, to: 30),   .notifies("1", .purchase, 0), .submits(a, 0.01),
      ],
      owners: ["1": (a, .submitter)],
      bindings: [(a, 0)],
      holds: [.init(a, 1, .active, until: 30)]),

    Scenario("4, before the submission", [
        .buys("1", .monthly, 0, to: 30),   .notifies("1", .purchase, 0),
      ],
      owners: ["1": (nil, .unclaimed)],
      bindings: [],
      holds: [.init(a, 1, nil)]),

    Scenario("5: A's card fails, recovered on day 20, B submits", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0),
        .fails(.billingRetry),   .polls(31),
        .renews("2", .monthly, 50, to: 80), .submits(b, 50.1),
      ],
      owners: ["1": (a, .submitter), "2": (a, .activelyAutoRenewing)],
      bindings: [(a, 0)],
      holds: [.init(a, 51, .active, until: 80), .init(b, 51, nil)]),

    Scenario("5b: the same, but the retry was not reported", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0),
        .fails(.billingRetry),
        .renews("2", .monthly, 50, to: 80), .submits(b, 50.1),
      ],
      owners: ["1": (a, .submitter), "2": (b, .submitter)],
      bindings: [(a, 0), (b, 50)],
      holds: [.init(a, 51, .expired), .init(b, 51, .active, until: 80)]),

    Scenario("6: A lapsed four months ago, B submits a resubscription", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0),
        .expires,                .polls(31),
        .buys("2", .monthly, 150, to: 180), .switches(on: true), .submits(b, 150),
      ],
      owners: ["1": (a, .submitter), "2": (b, .submitter)],
      bindings: [(a, 0), (b, 150)],
      holds: [.init(a, 151, .expired), .init(b, 151, .active)]),

    Scenario("7: A's latest period is refunded, then B buys", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0),
        .refunds("1", at: 10),   .polls(11),
        .buys("2", .monthly, 12, to: 42),  .submits(b, 12),
      ],
      owners: ["1": (a, .submitter), "2": (b, .submitter)],
      bindings: [(a, 0), (b, 12)],
      holds: [.init(a, 13, .revoked), .init(b, 13, .active, until: 42)]),

    Scenario("8: one answer brings B's purchase and a later on; the last word before it was off", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0),
        .switches(on: false),    .polls(20),
        .buys("2", .quarterly, 25, to: 115), .switches(on: true), .submits(b, 25.01),
      ],
      owners: ["1": (a, .submitter), "2": (b, .submitter)],
      bindings: [(a, 0), (b, 25)],
      holds: [.init(b, 26, .active, until: 115)]),

    Scenario("9: A's renewal comes by poll, without a submission", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0),
        .renews("2", .monthly, 30, to: 60), .polls(30.5),
      ],
      owners: ["1": (a, .submitter), "2": (a, .activelyAutoRenewing)],
      bindings: [(a, 0)],
      holds: [.init(a, 31, .active, until: 60)]),

    Scenario("10: a resubscription comes by notification, A lapsed", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0),
        .switches(on: false),    .polls(10),
        .buys("2", .monthly, 40, to: 70),  .notifies("2", .purchase, 40),
      ],
      owners: ["1": (a, .submitter), "2": (nil, .unclaimed)],
      bindings: [(a, 0), (nil, 40)],
      holds: [.init(a, 41, .expired)]),

    Scenario("10, with T's token", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0),
        .switches(on: false),    .polls(10),
        .buys("2", .monthly, 40, to: 70, token: t), .notifies("2", .purchase, 40),
      ],
      owners: ["1": (a, .submitter), "2": (t, .appAccountToken)],
      bindings: [(a, 0), (t, 40)],
      holds: [.init(a, 41, .expired), .init(t, 41, .active, until: 70)]),

    Scenario("10, with T's token, then claimed by B", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0),
        .switches(on: false),    .polls(10),
        .buys("2", .monthly, 40, to: 70, token: t), .notifies("2", .purchase, 40), .submits(b, 41),
      ],
      owners: ["1": (a, .submitter), "2": (t, .appAccountToken)],
      bindings: [(a, 0), (t, 40)],
      holds: [.init(t, 41, .active, until: 70), .init(b, 41, nil)]),

    Scenario("11: B restores A's non-consumable under a new id", [
        .buys("1", .lifetime, 0), .submits(a, 0),
        .relists("1", as: "9"),  .submits(b, 50, restores: true),
      ],
      owners: ["1": (a, .submitter), "9": (a, .submitter)],
      bindings: [(a, 0)],
      holds: [.init(a, 500, .active), .init(b, 51, nil)]),

    Scenario("12: B restores A's month under a new id, same line item, A off", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0),
        .switches(on: false),    .polls(10),
        .relists("1", as: "9"),  .submits(b, 15, restores: true),
      ],
      owners: ["1": (a, .submitter), "9": (a, .submitter)],
      bindings: [(a, 0)],
      holds: [.init(a, 16, .active, until: 30), .init(b, 16, nil)]),

    Scenario("13: a refund of three months ago", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0),
        .renews("2", .monthly, 30, to: 60), .polls(30.1), .renews("3", .monthly, 60, to: 90), .polls(60.1),
        .renews("4", .monthly, 90, to: 120), .polls(90.1),
        .refunds("1", at: 95),   .polls(95),
      ],
      owners: ["1": (a, .submitter), "4": (a, .activelyAutoRenewing)],
      bindings: [(a, 0)],
      holds: [.init(a, 96, .active, until: 120)]),

    Scenario("14: Monday's off is delivered on Thursday, after Tuesday's on", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0),
        .receives(on(day(2))),      .receives(off(day(1))),
        .renews("2", .monthly, 30, to: 60), .polls(30.1),
      ],
      owners: ["1": (a, .submitter), "2": (a, .activelyAutoRenewing)],
      bindings: [(a, 0)],
      holds: [.init(a, 31, .active)]),

    Scenario("15: a renewal is reported 20 hours early, then submitted by B", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0),
        .renews("2", .monthly, 30, to: 60), .polls(29.2), .submits(b, 30.1),
      ],
      owners: ["1": (a, .submitter), "2": (a, .activelyAutoRenewing)],
      bindings: [(a, 0)],
      holds: [.init(a, 29.4, .active, until: 60), .init(b, 31, nil)]),

    Scenario("16: bought again unclaimed, it renews, B submits the renewal", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0),
        .switches(on: false),    .polls(10),
        .buys("2", .monthly, 35, to: 65),  .notifies("2", .purchase, 35),
        .switches(on: true),     .renews("3", .monthly, 65, to: 95), .submits(b, 65.1),
      ],
      owners: ["1": (a, .submitter), "2": (nil, .unclaimed), "3": (b, .submitter)],
      bindings: [(a, 0), (nil, 35), (b, 65)],
      holds: [.init(a, 66, .expired), .init(b, 66, .active)]),

    Scenario("17: Apple charges 22 hours early, A switches off, B's session submits", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0), .polls(28),
        .renews("2", .monthly, 30, to: 60), .switches(on: false), .submits(b, 29.2), .submits(b, 30.2),
      ],
      owners: ["1": (a, .submitter), "2": (a, .activelyAutoRenewing)],
      bindings: [(a, 0)],
      holds: [.init(a, 31, .active, until: 60), .init(b, 31, nil)]),

    Scenario("18: a late notification proves that B's claim was A's renewal", [
        .buys("1", .monthly, 0, to: 30),   .submits(a, 0),
        .fails(.billingRetry),   .renews("2", .monthly, 40, to: 70), .submits(b, 40.1),
        .notifies("2", .renewal, 43),
      ],
      owners: ["1": (a, .submitter), "2": (a, .activelyAutoRenewing)],
      bindings: [(a, 0)],
      holds: [.init(a, 44, .active, until: 70), .init(b, 44, nil)]),

    Scenario("19: A's old submission does not claim what was bought meanwhile", [
        .buys("1", .monthly, -40, to: -10),
        .buys("2", .monthly, 15, to: 45),  .notifies("2", .purchase, 15),
        .submits(a, 0, verified: 19),
      ],
      owners: ["1": (a, .submitter), "2": (nil, .unclaimed)],
      bindings: [(a, -40), (nil, 15)],
      holds: [.init(a, 20, .expired)]),

    Scenario("20: A buys with A's token and uses it; B's session sends what the device holds", [
        .buys("1", .monthly, 0, to: 30, token: a), .notifies("1", .purchase, 0), .submits(b, 10),
      ],
      owners: ["1": (a, .appAccountToken)],
      bindings: [(a, 0)],
      holds: [.init(a, 11, .active, until: 30), .init(b, 11, nil)]),

    Scenario("20, and the renewal, which inherits the token", [
        .buys("1", .monthly, 0, to: 30, token: a), .notifies("1", .purchase, 0), .submits(b, 10),
        .renews("2", .monthly, 30, to: 60, token: a), .submits(b, 31),
      ],
      owners: ["1": (a, .appAccountToken), "2": (a, .activelyAutoRenewing)],
      bindings: [(a, 0)],
      holds: [.init(a, 31, .active, until: 60), .init(b, 31, nil)]),

    Scenario("21: A lapsed, B buys again with B's token, A's session submits it", [
        .buys("1", .monthly, 0, to: 30, token: a), .submits(a, 0),
        .switches(on: false),    .polls(10),
        .buys("2", .monthly, 40, to: 70, token: b), .switches(on: true), .submits(a, 41),
      ],
      owners: ["1": (a, .appAccountToken), "2": (b, .appAccountToken)],
      bindings: [(a, 0), (b, 40)],
      holds: [.init(a, 41, .expired), .init(b, 41, .active, until: 70)]),

    Scenario("22: as 21, but Apple's record repeats A's token", [
        .buys("1", .monthly, 0, to: 30, token: a), .submits(a, 0),
        .switches(on: false),    .polls(10),
        .buys("2", .monthly, 40, to: 70, token: a), .switches(on: true),
        .notifies("2", .purchase, 40), .submits(b, 41),
      ],
      owners: ["1": (a, .appAccountToken), "2": (b, .submitter)],
      bindings: [(a, 0), (b, 40)],
      holds: [.init(a, 41, .expired), .init(b, 41, .active, until: 70)]),

    Scenario("22, before anybody submits", [
        .buys("1", .monthly, 0, to: 30, token: a), .submits(a, 0),
        .switches(on: false),    .polls(10),
        .buys("2", .monthly, 40, to: 70, token: a), .switches(on: true),
        .notifies("2", .purchase, 40),
      ],
      owners: ["1": (a, .appAccountToken), "2": (a, .appAccountToken)],
      bindings: [(a, 0)],
      holds: [.init(a, 41, .active, until: 70)]),
  ]

  @Test("In the story's order", arguments: scenarios)
  func reported(_ scenario: Scenario) {
    check(scenario, scenario.ledger(receiving: scenario.deliveries().map(\.items)))
  }

  @Test("In other orders of arrival", arguments: scenarios)
  func repeatedEvidence(_ scenario: Scenario) {
    let deliveries = scenario.deliveries()
    let expected = Outcome(scenario.ledger(receiving: deliveries.map(\.items)))
    var generator = SeededGenerator(seed: 7)
    for _ in 0..<15 {
      let items = rearranged(deliveries.flatMap(\.items), using: &generator)
      let ledger = scenario.ledger(receiving: batches(items, using: &generator))
      #expect(Outcome(ledger) == expected)
      check(scenario, ledger)
    }
  }

  @Test("Repeated evidence appends nothing", arguments: scenarios)
  func repeated(_ scenario: Scenario) {
    let deliveries = scenario.deliveries()
    var ledger = scenario.ledger(receiving: deliveries.map(\.items))
    for delivery in deliveries { #expect(ledger.record(delivery.items) == []) }
  }

  @Test func theCorrectionOfScenario18IsRecordedAsOne() {
    let deliveries = Self.scenarios.first { $0.name.hasPrefix("18") }?.deliveries() ?? []
    var ledger = Ledger()
    for delivery in deliveries.dropLast() { ledger.record(delivery.items) }
    #expect(ledger.owner("2") == b)
    #expect(ledger.lastAction("2") == .claimed)
    ledger.record(deliveries.last?.items ?? [])
    #expect(ledger.owner("2") == a)
    #expect(ledger.lastAction("2") == .corrected)
  }

  private func check(_ scenario: Scenario, _ ledger: Ledger) {
    for (id, (owner, rule)) in scenario.owners {
      #expect(ledger.owner(id) == owner, "the owner of \(id)")
      #expect(ledger.decision(id)?.rule == rule, "the rule for \(id)")
    }
    #expect(ledger.bindings.map(\.account) == scenario.bindings.map(\.0))
    #expect(ledger.bindings.map(\.boundAt) == scenario.bindings.map { day($0.1) })
    for holds in scenario.holds {
      let premium = ledger.premium(holds.account, at: day(holds.day))
      #expect(premium?.state == holds.state, "what is held on day \(holds.day)")
      if let until = holds.until {
        #expect(premium?.expiresAt == day(until), "until when, on day \(holds.day)")
      }
    }
  }
}
