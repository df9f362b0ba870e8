import Foundation
import Postgres
import Subscriptions
import Testing

@testable import LedgerStorage

/// Random lives in which administrators transfer, grant, take back, merge and erase.
@Suite("The ledger under administrators")
struct SupportLifeTests {
  @Test(arguments: 0..<6)
  func `whatever they do, the audit is clean and accounts have what was decided`(life: Int)
    async throws
  {
    let seed = UInt64.random(in: .min ... .max)
    print("the ledger under administrators: seed \(seed)")
    var random = SplitMix(seed)
    var steps: [SupportStep] = []
    var date = 0.0
    for _ in 0..<40 {
      date += Double.random(in: 0...6, using: &random)
      steps.append(SupportStep(on: date, &random))
    }
    try await withLedger { [steps, date] ledger in
      var grants: [UUID] = []
      for step in steps {
        try await step.happen(in: ledger, grants: &grants)
        #expect(
          try await ledger.auditor.audit().differences == [], "seed \(seed), day \(step.date)")
      }
      let end = date + 1
      let (comparison, _) = try await ledger.auditor.compare(
        with: .presentRule(.standard), in: .all, at: day(end)
      ) {
        Issue.record("seed \(seed): \($0.rows)")
      }
      #expect(comparison.originalTransactions > 0)
      try await ledger.work(until: end)
      let usable = try FeedReplay(await ledger.publishedEvents()).usable
      let names = try await ledger.database.query("SELECT account_id FROM tenure.account")
        .decode(String.self)
      for name in names {
        // The rows equal the replayed entries.
        let replayed = try await ledger.holdings.allHoldings(of: name, knownAt: day(end))
        let decided = Dictionary(
          uniqueKeysWithValues: AccessTerms.shop.entitlements(
            of: name, holding: replayed.holdings, granted: replayed.grants, at: day(end)
          ).filter(\.isActive).map { ($0.name, $0.accessEndsAt) })
        #expect(try await ledger.usable(by: name, on: end) == decided, "\(name), seed \(seed)")
        // Nothing is published for an erased account.
        guard !name.hasPrefix("erased-") else { continue }
        #expect(usable[name] ?? [:] == decided, "\(name), seed \(seed)")
      }
    }
  }
}

/// Something that happens in a random life.
private struct SupportStep: Sendable {
  private static let accounts = ["anna", "ben", "carl"]

  let date: Double
  private let account: String
  private let other: String?
  private let line: OriginalTransactionKey
  private let number: Int
  private let way: Int
  private let effectiveFrom: Double?
  private let end: Double?
  private let choice: Int

  init(on date: Double, _ random: inout SplitMix) {
    self.date = date
    account = Self.accounts[Int.random(in: 0..<3, using: &random)]
    other = Int.random(in: 0..<4, using: &random) == 0 ? nil : account
    line = OriginalTransactionKey(
      .production, OriginalTransactionID("\(Int.random(in: 1...3, using: &random))000"))
    number = Int.random(in: max(0, Int(date / 12) - 3)...Int(date / 12), using: &random)
    way = Int.random(in: 0..<13, using: &random)
    effectiveFrom =
      Bool.random(using: &random) ? nil : date + Double.random(in: -30...5, using: &random)
    end = Bool.random(using: &random) ? nil : date + Double.random(in: 1...30, using: &random)
    choice = Int.random(in: 0..<100, using: &random)
  }

  private var transaction: TransactionKey {
    key(TransactionID("\(line.originalTransactionID.rawValue)\(number)"), line: line)
  }

  /// A charge of twelve days, which may be known, and perhaps a word on what follows.
  private var evidence: [Evidence] {
    [
      charge(
        transaction.transactionID, on: Double(number * 12), days: 12, line: line, asOf: date,
        revokedOn: choice < 15 ? Double(number * 12) + 1 : nil)
    ] + (choice.isMultiple(of: 3) ? [status(choice.isMultiple(of: 2), on: date, line: line)] : [])
  }

  func happen(in ledger: Ledger, grants: inout [UUID]) async throws {
    switch way {
    case 0, 1: try await ledger.receive(evidence, on: date)
    case 2, 3, 4, 5:
      try await ledger.submit(
        evidence, claiming: [transaction], by: account, on: date, terms: .shop)
    case 6, 7, 8:
      guard try await isOpen(account, in: ledger) else { return }
      let charges = try await ledger.ownership.original(of: line)?.rule.charges ?? []
      guard !charges.isEmpty else { return }
      try await ledger.ownership.transfer(
        charges[choice % charges.count].id, to: other, effectiveFrom: effectiveFrom.map(day),
        by: support, terms: .shop, at: day(date))
    case 9:
      guard try await isOpen(account, in: ledger) else { return }
      grants.append(
        try await ledger.grants.grant(
          "gold", to: account, until: end.map(day), by: support, terms: .shop, at: day(date)
        ).grant.grant.id)
    case 10:
      guard !grants.isEmpty else { return }
      do {
        _ = try await ledger.grants.revokeGrant(
          grants[choice % grants.count], by: support, terms: .shop, at: day(date))
      } catch LedgerError.erasedAccount {
        // It was granted to an erased account.
      }
    case 11:
      let into = Self.accounts[choice % 3]
      guard into != account, try await isOpen(account, in: ledger),
        try await isOpen(into, in: ledger)
      else { return }
      // All at once, or by two lines at a time.
      let merger = try await ledger.accounts.merge(
        account, into: into, by: support, terms: .shop, at: day(date),
        atOnce: choice.isMultiple(of: 2) ? 100 : 1)
      guard merger.completedAt == nil else { return }
      while try await !ledger.accounts.continueMerge(
        of: merger.merged.key, terms: .shop, at: day(date))
      {}
    default:
      guard try await ledger.accounts.account(account) != nil else { return }
      _ = try await ledger.accounts.erase(account, by: support, at: day(date))
    }
  }

  /// Whether anything can be given to an account: it was not merged into another.
  private func isOpen(_ account: String, in ledger: Ledger) async throws -> Bool {
    try await ledger.accounts.findOrCreateAccount(account, at: day(date)).mergedInto == nil
  }
}
