import Subscriptions
import Testing

/// Each policy's owners of the same stories, worked out by hand.
struct OwnershipPolicyTests {
  struct Story: CustomTestStringConvertible {
    var name: String
    var steps: [Scenario.Step]
    /// The owners of each charge in order, by the policy's name: `A` or `AB`; a hyphen: none.
    var owners: [String: String]

    var testDescription: String { name }

    init(_ name: String, _ steps: [Scenario.Step], _ owners: [String: String]) {
      (self.name, self.steps, self.owners) = (name, steps, owners)
    }

    var ledger: Ledger {
      let scenario = Scenario(name, steps, owners: [:], bindings: [], holds: [])
      return scenario.ledger(receiving: scenario.deliveries().map(\.items))
    }
  }

  // swift-format-ignore
  static let stories: [Story] = [
    Story("A's renewal, submitted by B's session", [
        .buys("1", .monthly, 0, to: 30), .submits(a, 0),
        .renews("2", .monthly, 30, to: 60), .submits(b, 29.5), .submits(b, 30.2),
      ], [
        "present-rule": "A A", "until-it-lapses": "A A", "first-owner-keeps": "A A",
        "latest-submitter-takes": "B B", "token-decides": "- -", "shared": "AB AB",
      ]),
    Story("A off and lapsed, then B buys", [
        .buys("1", .monthly, 0, to: 30), .submits(a, 0), .switches(on: false), .polls(10),
        .buys("2", .quarterly, 35, to: 125), .switches(on: true), .submits(b, 35),
      ], [
        "present-rule": "A B", "until-it-lapses": "A B", "first-owner-keeps": "A A",
        "latest-submitter-takes": "B B", "token-decides": "- -", "shared": "AB AB",
      ]),
    Story("A off, B ordered, Apple charges when A's month ends", [
        .buys("1", .monthly, 0, to: 30), .submits(a, 0), .switches(on: false), .polls(10),
        .orders(b, .quarterly, 12), .switches(on: true), .submits(b, 12),
        .renews("2", .quarterly, 30, to: 120), .submits(b, 30.1),
      ], [
        "present-rule": "A B", "until-it-lapses": "A A", "first-owner-keeps": "A A",
        "latest-submitter-takes": "B B", "token-decides": "- -", "shared": "AB AB",
      ]),
    Story("A renewal arrives by poll, and no account submits it", [
        .buys("1", .monthly, 0, to: 30), .submits(a, 0),
        .renews("2", .monthly, 30, to: 60), .polls(31),
      ], [
        "present-rule": "A A", "until-it-lapses": "A A", "first-owner-keeps": "A A",
        "latest-submitter-takes": "A A", "token-decides": "- -", "shared": "A A",
      ]),
    Story("Nothing was submitted yet", [
        .buys("1", .monthly, 0, to: 30), .notifies("1", .purchase, 0),
      ], [
        "present-rule": "-", "until-it-lapses": "-", "first-owner-keeps": "-",
        "latest-submitter-takes": "-", "token-decides": "-", "shared": "-",
      ]),
    Story("A bought with A's token, B's session submits", [
        .buys("1", .monthly, 0, to: 30, token: a), .notifies("1", .purchase, 0), .submits(b, 10),
        .renews("2", .monthly, 30, to: 60, token: a), .notifies("2", .renewal, 30),
      ], [
        "present-rule": "A A", "until-it-lapses": "A A", "first-owner-keeps": "B B",
        "latest-submitter-takes": "B B", "token-decides": "A A", "shared": "B B",
      ]),
    Story("A submits again after B: the latest is A, who bought the third charge", [
        .buys("1", .monthly, 0, to: 30), .submits(a, 0), .switches(on: false), .polls(10),
        .buys("2", .monthly, 35, to: 65, token: b), .submits(b, 35), .polls(40),
        .buys("3", .monthly, 70, to: 100), .submits(a, 70),
      ], [
        "present-rule": "A B A", "until-it-lapses": "A B A", "first-owner-keeps": "A A A",
        "latest-submitter-takes": "A A A", "token-decides": "- B -", "shared": "AB AB AB",
      ]),
  ]

  @Test("The owners under each policy", arguments: stories)
  func owners(_ story: Story) {
    let ledger = story.ledger
    #expect(story.owners.count == OwnershipPolicy.all.count)
    for policy in OwnershipPolicy.all {
      #expect(owners(of: ledger, under: policy) == story.owners[policy.name], "\(policy.name)")
    }
  }

  @Test(
    "What an administrator or an import assigned stays assigned", arguments: OwnershipPolicy.all)
  func assigned(_ policy: OwnershipPolicy) {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30)))
    ledger.claim(key("1"), by: a)
    ledger.place(key("1"), with: c, from: day(1))
    #expect(owners(of: ledger, under: policy) == "C")
    var imported = Ledger()
    imported.import(for: c, boughtUntil: day(10))
    imported.receive(charge("1", from: day(0), to: day(30), token: issuedToken(a)))
    #expect(owners(of: imported, under: policy) == "C")
  }

  @Test("An import counts as a submission of the renewals after it")
  func imported() {
    var ledger = Ledger()
    ledger.import(for: c, boughtUntil: day(10))
    ledger.receive(charge("1", from: day(0), to: day(30)), charge("2", from: day(30), to: day(60)))
    for policy in OwnershipPolicy.all where policy != .tokenDecides {
      #expect(owners(of: ledger, under: policy) == "C C", "\(policy.name)")
    }
  }

  @Test("An erased account gets no later charge; a merged one is its successor")
  func erasedAndMerged() {
    var erased = Ledger(erasures: [a: day(20)])
    erased.receive(charge("1", from: day(0), to: day(30)), charge("2", from: day(40), to: day(70)))
    erased.claim(key("1"), by: a)
    erased.claim(key("2"), by: b)
    #expect(owners(of: erased, under: .firstOwnerKeeps) == "A B")
    #expect(owners(of: erased, under: .shared) == "AB B")
    let merges = [a: AccountMerge(into: c, at: day(80))]
    var merged = Ledger(merges: merges)
    merged.receive(charge("1", from: day(0), to: day(30), token: issuedToken(a)))
    merged.claim(key("1"), by: a)
    for policy in OwnershipPolicy.all {
      #expect(owners(of: merged, under: policy) == "C", "\(policy.name)")
    }
  }

  // MARK: Constants

  typealias Adjustment = (
    constants: RuleConstants, name: String, steps: [Scenario.Step], owner: String, other: String
  )

  // swift-format-ignore
  static let adjustments: [Adjustment] = [
    (RuleConstants(billingRetryDays: 90), "recovered on day 65 after the end", [
      .buys("1", .monthly, 0, to: 30), .submits(a, 0), .fails(.billingRetry), .polls(31),
      .buys("2", .monthly, 95, to: 125), .submits(b, 95.1),
    ], "A B", "A A"),
    (RuleConstants(billingRetryDays: 10), "recovered on day 20 after the end", [
      .buys("1", .monthly, 0, to: 30), .submits(a, 0), .fails(.billingRetry), .polls(31),
      .buys("2", .monthly, 50, to: 80), .submits(b, 50.1),
    ], "A A", "A B"),
    (RuleConstants(earlyChargeHours: 1), "off 20 hours before the end", [
      .buys("1", .monthly, 0, to: 30), .submits(a, 0), .polls(28), .switches(on: false),
      .polls(29.17), .renews("2", .monthly, 30, to: 60), .submits(b, 30.2),
    ], "A A", "A B"),
    (RuleConstants(earlyChargeHours: 72), "off two days before the end", [
      .buys("1", .monthly, 0, to: 30), .submits(a, 0), .switches(on: false), .polls(28),
      .renews("2", .monthly, 30, to: 60), .submits(b, 30.2),
    ], "A B", "A A"),
    (RuleConstants(periodEndSeconds: 3600), "begins half an hour after the end", [
      .buys("1", .monthly, 0, to: 30), .submits(a, 0), .polls(29),
      .buys("2", .monthly, 30.02, to: 60), .submits(b, 30.2),
    ], "A B", "A A"),
    (RuleConstants(periodEndSeconds: 1), "begins 43 seconds after the end", [
      .buys("1", .monthly, 0, to: 30), .submits(a, 0), .polls(29),
      .buys("2", .monthly, 30.0005, to: 60), .submits(b, 30.2),
    ], "A A", "A B"),
  ]

  @Test("Other constants decide otherwise", arguments: adjustments.indices)
  func constants(_ index: Int) {
    let (constants, name, steps, owner, other) = Self.adjustments[index]
    let ledger = Story(name, steps, [:]).ledger
    #expect(owners(of: ledger, under: .presentRule(.standard)) == owner, "\(name)")
    #expect(owners(of: ledger, under: .presentRule(constants)) == other, "\(name)")
  }

  @Test func onlyThePresentRuleHasConstants() {
    let constants = RuleConstants(billingRetryDays: 1)
    #expect(OwnershipPolicy(named: "shared", constants: constants) == nil)
    #expect(OwnershipPolicy(named: "shared") == .shared)
    #expect(OwnershipPolicy(named: "Shared") == nil)
    #expect(
      OwnershipPolicy(named: "present-rule", constants: constants) == .presentRule(constants))
  }

  // MARK: Differences

  @Test("The recorded owners are those of the present rule, for random histories")
  func random() {
    forAll("The present rule makes no difference", iterations: 200) { generator in
      let history = RandomHistory(isHostile: generator.once(in: 2), using: &generator)
      var ledger = history.ledger
      let items = rearranged(history.items, using: &generator)
      ledger.record(batches(items, using: &generator), using: &generator)
      let differences = differences(of: ledger, under: .presentRule(.standard))
      if let difference = differences.first { return "\(difference)" }
      for policy in OwnershipPolicy.all {
        let verdicts = policy.verdicts(
          on: ledger.line, recorded: OwnershipRule(recordedOn: ledger.line))
        if policy != .shared, verdicts.contains(where: { $0.owners.count > 1 }) {
          return "\(policy.name) gives a charge to several accounts"
        }
      }
      return nil
    }
  }

  @Test("A difference names winners and losers, access, price and both reasons")
  func difference() throws {
    var ledger = Ledger()
    ledger.receive(
      TransactionRecord(
        key: key("1"), asOf: day(1), purchaseDate: day(0), expiresDate: day(30),
        priceMilliunits: 9_990, currency: "EUR"),
      TransactionRecord(
        key: key("2"), asOf: day(1), purchaseDate: day(40), expiresDate: day(70),
        revocation: .revoked(at: day(45), reason: nil), priceMilliunits: 9_990, currency: "EUR"))
    ledger.claim(key("1"), by: a)
    ledger.claim(key("2"), by: b)
    let differences = differences(of: ledger, under: .firstOwnerKeeps)
    let found = try #require(differences.first)
    #expect(differences.count == 1)
    #expect(found.charge.id == key("2"))
    #expect((found.gains, found.loses) == ([a], b))
    #expect((found.accessEndsAt, found.access) == (day(45), .days(5)))
    #expect(found.price?.amountMilliunits == 9_990)
    func name(_ account: AccountKey) -> String { account == a ? "klara" : "leo" }
    #expect(
      Explanation(found.decision, name: name).sentence
        == "“leo” submitted it first; the period of transaction 1 had ended, and Apple had not "
        + "reported a billing retry.")
    #expect(
      found.verdict.sentence(name: name)
        == "“klara” was the first to submit this original transaction.")

    var comparison = OwnershipComparison()
    comparison.add(differences, among: 2)
    comparison.add([], among: 3)
    #expect((comparison.originalTransactions, comparison.charges) == (2, 5))
    #expect(
      (comparison.total.charges, comparison.total.accounts, comparison.total.days) == (1, 2, 5))
    #expect(comparison.total.amounts.map(\.currency) == ["EUR"])
    #expect(comparison.total.amounts.map(\.milliunits) == [9_990])
    #expect(comparison.months.map(\.month) == ["2026-02"])
    #expect(comparison.months.map(\.figures) == [comparison.total])
  }

  @Test("Access without end counts until now; consumables give none")
  func access() {
    var ledger = Ledger()
    ledger.receive(charge("1", .lifetime, from: day(0)))
    ledger.claim(key("1", .lifetime), by: a)
    let lifetime = differences(of: ledger, under: .tokenDecides)
    #expect(lifetime.map(\.access) == [.days(100)])
    #expect(lifetime.map(\.accessEndsAt) == [nil])
    #expect((lifetime.first?.gains, lifetime.first?.loses) == ([], a))
    var gems = Ledger()
    gems.receive(charge("1", .gems, from: day(0)))
    gems.claim(key("1", .gems), by: a)
    #expect(differences(of: gems, under: .tokenDecides).map(\.access) == [.zero])
  }

  // MARK: Parts

  private func differences(of ledger: Ledger, under policy: OwnershipPolicy)
    -> [OwnershipDifference]
  {
    OwnershipDifference.differences(
      of: ledger.line, recorded: OwnershipRule(recordedOn: ledger.line), under: policy,
      in: catalogue, at: day(100))
  }

  private func owners(of ledger: Ledger, under policy: OwnershipPolicy) -> String {
    let letters: [AccountKey: String] = [a: "A", b: "B", c: "C", t: "T"]
    return policy.verdicts(on: ledger.line, recorded: OwnershipRule(recordedOn: ledger.line)).map {
      $0.owners.isEmpty ? "-" : $0.owners.map { letters[$0] ?? "?" }.joined()
    }.joined(separator: " ")
  }
}
