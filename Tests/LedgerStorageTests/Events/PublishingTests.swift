import Foundation
import Postgres
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("Events caused by time")
struct PublishingTests {
  @Test("the end of access is published with its date, once, however late")
  func expiry() async throws {
    try await withLedger { ledger in
      try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1, terms: .shop)
      try await ledger.work(until: 29.9)
      #expect(try await ledger.publishedEvents().last?.kind == .entitlementGranted)
      try await ledger.work(until: 33)
      let published = try await ledger.publishedEvents()
      #expect(published.last?.kind == .entitlementExpired)
      #expect(published.last?.at == day(30))
      try await ledger.work(until: 40)
      #expect(try await ledger.publishedEvents().count == published.count)
      #expect(try await ledger.database.query("SELECT 1 FROM tenure.published_entitlement").isEmpty)
    }
  }

  @Test("a renewal dated ahead, and a later one, move the date of an account's next event")
  func prolonged() async throws {
    try await withLedger { ledger in
      try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1, terms: .shop)
      try await ledger.receive([charge("2", on: 30)], on: 29.2)
      try await ledger.work(until: 45)
      #expect(try await ledger.publishedEvents().last?.kind == .entitlementExtended)
      try await ledger.work(until: 61)
      #expect(try await ledger.publishedEvents().last?.at == day(60))
    }
  }

  @Test("a worker that dies before the commit publishes nothing, and the next one publishes once")
  func dead() async throws {
    try await withLedger { ledger in
      try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1, terms: .shop)
      let claimed = try await ledger.claim(by: "dead", on: 30)
      try await ledger.work(until: 30.5)
      let count = try await ledger.publishedEvents().count
      #expect(try await ledger.publishedEvents().last?.kind == .entitlementExpired)
      // The slow worker publishes nothing and no longer holds the job.
      _ = try await ledger.accounts.publish([claimed], terms: .shop, at: day(30.6))
      #expect(try await ledger.publishedEvents().count == count)
    }
  }

  @Test("a published end is not published again by a process with an earlier clock")
  func earlierClock() async throws {
    try await withLedger { ledger in
      try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1, terms: .shop)
      try await ledger.work(until: 30)
      let failed = RenewalStatus(asOf: day(29.999), autoRenews: true, phase: .billingRetry)
      try await ledger.receive([.renewalStatus(failed, line: originalKey)], on: 29.999)
      try await ledger.work(until: 30.1)
      let kinds = try await ledger.publishedEvents().map(\.kind)
      #expect(kinds.contains(.inBillingRetry))
      #expect(kinds.count { $0 == .entitlementGranted } == 1)
      #expect(kinds.count { $0 == .entitlementExpired } == 1)
    }
  }

  @Test("several accounts are published together, except a locked one")
  func together() async throws {
    try await withLedger { ledger in
      for (number, account) in ["anna", "ben", "cleo"].enumerated() {
        let line = OriginalTransactionKey(
          .production, OriginalTransactionID(rawValue: "\(1000 + number)"))
        let id = TransactionID(rawValue: "\(number)")
        try await ledger.submit(
          [charge(id, on: 0, line: line)], claiming: [key(id, line: line)],
          by: account, on: 0.1, terms: .shop)
      }
      let jobs = try await ledger.jobs.claimJobs(
        limits: [.clock: 10], worker: "worker", at: day(30), lease: .seconds(60))
      #expect(jobs.count == 3)
      let left = try await ledger.database.withTransaction { other in
        _ = try await other.batch(PublishedEntitlements.lock(["ben"]))
        return try await ledger.accounts.publish(jobs, terms: .shop, at: day(30))
      }
      func expired() async throws -> Set<String?> {
        Set(
          try await ledger.publishedEvents().filter { $0.kind == .entitlementExpired }.map(
            \.account))
      }
      #expect(try await expired() == ["anna", "cleo"])
      #expect(left.count == 1)
      #expect(try await ledger.accounts.publish(left, terms: .shop, at: day(30)).isEmpty)
      #expect(try await expired() == ["anna", "ben", "cleo"])
      let rest = try await ledger.database.query(
        "SELECT count(*) FROM tenure.job WHERE kind = 'publish_entitlements'")
      #expect(try rest.decodeOnly(Int.self) == 0)
    }
  }

  @Test("what is recorded while a worker is at the account has it looked at again in time")
  func recordedMeanwhile() async throws {
    try await withLedger { ledger in
      try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1, terms: .shop)
      let job = try await ledger.claim(by: "a", on: 30)
      try await ledger.receive([charge("2", on: 30)], on: 30)
      _ = try await ledger.accounts.publish([job], terms: .shop, at: day(30))
      let (runAt, holder) = try await ledger.database.query(
        "SELECT run_at, locked_by FROM tenure.job WHERE kind = 'publish_entitlements'"
      ).decodeOnly(Timestamp.self, String?.self)
      #expect(runAt == day(60))
      #expect(holder == nil)
    }
  }

  @Test("provisional access is published when it begins, and when it ends by decision or time")
  func provisional() async throws {
    let waiting = SubmissionProblem(code: "apple_unavailable", detail: "No answer came.")
    try await withLedger { ledger in
      let grant = ProvisionalGrant(entitlement: "premium", endsAt: day(2), line: originalKey)
      for (number, account) in ["anna", "ben", "carl"].enumerated() {
        let line = OriginalTransactionKey(.production, OriginalTransactionID("\(number)"))
        let submission = try await ledger.store(by: account, on: 1)
        try await ledger.submissions.postpone(
          submission, until: day(1.5), because: waiting, exchanges: [],
          provisional: [
            ProvisionalGrant(entitlement: "premium", endsAt: grant.endsAt, line: line)
          ],
          worker: nil, terms: .shop, at: day(1))
        #expect(try await ledger.publishedKinds(account) == ["entitlement.granted"])
        switch account {
        case "anna":
          try await ledger.verify(
            submission, [charge("1", on: 0, line: line)], claiming: [key("1", line: line)],
            on: 1.2, terms: .shop)
        case "ben":
          try await ledger.submissions.reject(
            submission, because: SubmissionProblem(code: "receipt_rejected", detail: "21003"),
            exchanges: [], terms: .shop, at: day(1.2))
        default:
          try await ledger.work(until: 2)
        }
      }
      #expect(try await ledger.publishedEvents("anna").last?.kind == .entitlementExtended)
      #expect(
        try await ledger.publishedKinds("ben") == ["entitlement.granted", "entitlement.revoked"])
      #expect(
        try await ledger.publishedKinds("carl") == ["entitlement.granted", "entitlement.expired"])
    }
  }

  @Test("a product that is described later grants, and is published, by a reconciliation")
  func reconcile() async throws {
    try await withLedger { ledger in
      try await ledger.submit([charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1)
      try await ledger.work(until: 1)
      #expect(try await ledger.publishedEvents().allSatisfy { $0.data.entitlement == nil })
      _ = try await ledger.products.describe(
        Product(
          id: "monthly", validFrom: day(2), type: .autoRenewable, entitlements: ["premium"]))
      let terms = AccessTerms(catalogue: try await ledger.products.catalogue())
      try await ledger.work(until: 2, terms: terms)
      let published = try await ledger.publishedEvents()
      #expect(published.last?.kind == .entitlementGranted)
      // The second pass finds nothing, and the job ends.
      try await ledger.work(until: 3, terms: terms)
      #expect(try await ledger.publishedEvents().count == published.count)
      let jobs = try await ledger.database.query(
        "SELECT kind FROM tenure.job WHERE kind <> 'poll_status'"
      ).decode(String.self)
      #expect(jobs == ["publish_entitlements"])
      try await ledger.work(until: 30, terms: terms)
      #expect(try await ledger.publishedEvents().last?.kind == .entitlementExpired)
    }
  }

  @Test("a reconciliation goes on where a worker died, and starts again after a change")
  func reconciliationPlace() async throws {
    let text = ReconciliationPlace(.accounts, after: "an account").text(generation: 3)
    #expect(
      ReconciliationPlace(text, generation: 3)
        == ReconciliationPlace(.accounts, after: "an account"))
    #expect(ReconciliationPlace(text, generation: 4) == nil)
    #expect(ReconciliationPlace(nil, generation: 0) == nil)
    let line = OriginalTransactionKey(.sandbox, "a/b c")
    let place = ReconciliationPlace(.lines, after: Job.Key.pollStatus(line).subject)
    #expect(ReconciliationPlace(place.text(generation: 0), generation: 0)?.line == line)

    try await withLedger { ledger in
      for (account, id) in [("anna", "1" as TransactionID), ("ben", "2")] {
        let line = OriginalTransactionKey(.production, OriginalTransactionID(account))
        try await ledger.submit(
          [charge(id, on: 0, line: line)], claiming: [key(id, line: line)], by: account, on: 0.1)
      }
      _ = try await ledger.products.describe(
        Product(
          id: "monthly", validFrom: day(2), type: .autoRenewable, entitlements: ["premium"]))
      let terms = AccessTerms(catalogue: try await ledger.products.catalogue())
      // An earlier run got as far as anna.
      let anna = ReconciliationPlace(.accounts, after: "anna").text(generation: 0)
      _ = try await ledger.database.execute("UPDATE tenure.job SET place = \(anna)")
      let job = try await ledger.claim(by: "b", on: 2)
      try await ledger.maintenance.reconcile(job, terms: terms, at: day(2))
      #expect(try await ledger.publishedEvents("anna").last?.kind != .entitlementGranted)
      #expect(try await ledger.publishedEvents("ben").last?.kind == .entitlementGranted)
      _ = try await ledger.products.describe(
        Product(
          id: "quarterly", validFrom: day(2), type: .autoRenewable, entitlements: ["premium"]))
      try await ledger.work(until: 2, terms: terms)
      #expect(try await ledger.publishedEvents("anna").last?.kind == .entitlementGranted)
    }
  }

  @Test(
    "a reconciliation publishes what an earlier version left out, and schedules what is to come")
  func upgrade() async throws {
    try await withLedger { ledger in
      try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1, terms: .shop)
      _ = try await ledger.database.batch([
        "DELETE FROM tenure.event", "DELETE FROM tenure.published_entitlement",
        "DELETE FROM tenure.job", Job.schedule(.reconcile, runAt: day(1), at: day(1)),
      ])
      try await ledger.work(until: 2)
      #expect(try await ledger.publishedKinds("anna") == ["entitlement.granted"])
      try await ledger.work(until: 30)
      #expect(try await ledger.publishedEvents().last?.at == day(30))
    }
  }

  /// Plays random histories; a reader of the feed knows every account's entitlements at any time.
  @Test(arguments: 0..<6)
  func `the feed, replayed, says what everybody can use`(life: Int) async throws {
    let seed = UInt64.random(in: .min ... .max)
    var random = SplitMix(seed)
    var steps: [LifeStep] = []
    var dates: [Double] = [0]
    for _ in 0..<40 {
      dates.append(dates[dates.count - 1] + Double.random(in: 0...9, using: &random))
      steps.append(LifeStep(dates, &random))
    }
    try await withLedger { [steps] ledger in
      for step in steps {
        if step.isWatched { try await ledger.work(until: step.date) }
        try await step.happen(in: ledger)
      }
      let end = (steps.last?.date ?? 0) + 1
      try await ledger.work(until: end)
      let usable = try FeedReplay(await ledger.publishedEvents()).usable
      for account in LifeStep.accounts {
        let expected = try await ledger.usable(by: account, on: end)
        #expect(usable[account] ?? [:] == expected, "\(account), seed \(seed)")
      }
      #expect(try await ledger.auditor.audit().isClean, "seed \(seed)")
    }
  }
}

/// A step of a random history.
private struct LifeStep: Sendable {
  static let accounts = ["anna", "ben", "carl"]

  let date: Double
  let isWatched: Bool
  private let account: String
  private let line: OriginalTransactionKey
  private let evidence: [Evidence]
  private let claimed: [TransactionKey]
  private let way: Int

  /// A step at the last of the dates; the others are those of earlier steps.
  init(_ dates: [Double], _ random: inout SplitMix) {
    let date = dates[dates.count - 1]
    self.date = date
    isWatched = Bool.random(using: &random)
    account = Self.accounts[Int.random(in: 0..<Self.accounts.count, using: &random)]
    line = OriginalTransactionKey(
      .production, OriginalTransactionID("\(Int.random(in: 1...3, using: &random))000"))
    // A new charge, or an earlier one, which may be known.
    let number = Int.random(in: max(1, dates.count - 6)..<dates.count, using: &random)
    let transaction = TransactionID("\(line.originalTransactionID.rawValue)\(number)")
    let product: ProductID = number.isMultiple(of: 3) ? "quarterly" : "monthly"
    let begin = dates[number].rounded()
    let revokedOn = Int.random(in: 0..<4, using: &random) == 0 ? begin + 1 : nil
    var evidence = [
      charge(
        transaction, on: begin, days: 12, line: line, product: product, asOf: date,
        revokedOn: revokedOn)
    ]
    let phases: [RenewalStatus.Phase] = [
      .undisturbed, .billingRetry, .gracePeriod(until: day(date + 3)), .expired,
    ]
    if Bool.random(using: &random) {
      evidence.append(
        .renewalStatus(
          RenewalStatus(
            asOf: day(date), autoRenews: Bool.random(using: &random),
            phase: phases[Int.random(in: 0..<phases.count, using: &random)]), line: line))
    }
    self.evidence = evidence
    claimed = [TransactionKey(line: line, transactionID: transaction, productID: product)]
    way = Int.random(in: 0..<4, using: &random)
  }

  func happen(in ledger: Ledger) async throws {
    switch way {
    case 0: try await ledger.receive(evidence, on: date)
    case 1: try await ledger.learn(evidence, on: date)
    default:
      try await ledger.submit(evidence, claiming: claimed, by: account, on: date, terms: .shop)
    }
  }
}

/// A seeded generator.
struct SplitMix: RandomNumberGenerator {
  private var state: UInt64

  init(_ seed: UInt64) { state = seed }

  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var mixed = state
    mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
    return mixed ^ (mixed >> 31)
  }
}
