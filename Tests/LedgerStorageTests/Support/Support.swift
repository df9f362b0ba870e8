import Foundation
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import LedgerStorage

/// The moment at which the tests' stories begin.
let start = Timestamp(CalendarDate(year: 2026, month: 1, day: 1))

func day(_ day: Double) -> Timestamp { start + .milliseconds(Int64(day * 86_400_000)) }

let originalKey = OriginalTransactionKey(.production, "1000")

/// A month's charge that begins on a day.
func charge(
  _ id: TransactionID, on begin: Double, days: Double = 30,
  line: OriginalTransactionKey = originalKey,
  product: ProductID = "monthly", asOf: Double? = nil, lineItem: WebOrderLineItemID? = nil,
  revokedOn: Double? = nil, token: UUID? = nil
) -> Evidence {
  .transaction(
    TransactionRecord(
      key: TransactionKey(line: line, transactionID: id, productID: product),
      asOf: day(asOf ?? begin), purchaseDate: day(begin), expiresDate: day(begin + days),
      webOrderLineItemID: lineItem, appAccountToken: token,
      revocation: revokedOn.map { .revoked(at: day($0), reason: "0") } ?? .notRevoked))
}

func status(_ isOn: Bool, on date: Double, line: OriginalTransactionKey = originalKey) -> Evidence {
  .renewalStatus(
    RenewalStatus(asOf: day(date), autoRenews: isOn, phase: .undisturbed), line: line)
}

func key(
  _ id: TransactionID, line: OriginalTransactionKey = originalKey, product: ProductID = "monthly"
)
  -> TransactionKey
{
  TransactionKey(line: line, transactionID: id, productID: product)
}

/// A support agent.
let support = Administrator(name: "ops", reason: "They asked for it.")

/// An exchange with Apple, distinguished by its answer.
func exchange(_ answer: String) -> SubmissionExchange {
  SubmissionExchange(
    endpoint: "https://buy.itunes.apple.com/verifyReceipt", askedAt: start,
    duration: .milliseconds(1), httpStatus: 200, answer: Array(answer.utf8),
    fault: nil)
}

/// Runs a test on a separate ledger.
func withLedger(_ body: @Sendable (Ledger) async throws -> Void) async throws {
  try await withScratchDatabase { database in
    try await body(Ledger(database: database))
  }
}

extension Ledger {
  /// Waits until a connection waits for a lock, or a condition holds: a concurrent task has
  /// then got as far as it can.
  ///
  /// - Parameters:
  ///   - waiters: How many have to wait.
  ///   - condition: Ends the wait as well.
  /// - Throws: Database errors.
  func waitForALock(of waiters: Int = 1, or condition: SQL = "false") async throws {
    for _ in 0..<10_000 {
      let isMet = try await database.query("SELECT \(condition)").decodeOnly(Bool.self)
      let waiting = try await database.query(
        """
        SELECT count(*) FROM \(unescaped: ScratchPlace.environment.activity)
        WHERE datname = current_database() AND wait_event_type = 'Lock'
        """
      ).decodeOnly(Int.self)
      if isMet || waiting >= waiters { return }
      try await Task.sleep(for: .milliseconds(5))
    }
    Issue.record("no connection has come")
  }

  /// Stores and records one submission, as Intake does once Apple has answered.
  @discardableResult
  func submit(
    _ evidence: [Evidence], claiming selected: [TransactionKey], by account: String,
    on date: Double, order: UUID? = nil, terms: AccessTerms = .everything
  ) async throws -> SubmissionStore.RecordedSubmission? {
    try await verify(
      store(by: account, on: date, order: order), evidence, claiming: selected, on: date,
      terms: terms)
  }

  /// Stores a submission, for Apple to be asked about it.
  func store(
    _ receipt: String = "receipt", by account: String, on date: Double, order: UUID? = nil
  ) async throws -> Submission {
    try await submissions.store(
      submissions.new(
        id: UUID(), accountID: account, receivedAt: day(date), payload: .receipt(receipt),
        transactionID: nil, orderID: order, isRestore: false, bundleID: nil,
        retryAt: day(date) + .minutes(1)))
  }

  /// Records Apple's response to a submission.
  @discardableResult
  func verify(
    _ submission: Submission, _ evidence: [Evidence], claiming selected: [TransactionKey],
    on date: Double, exchanges: [SubmissionExchange] = [], terms: AccessTerms = .everything
  ) async throws -> SubmissionStore.RecordedSubmission? {
    try await submissions.record(
      SubmissionStore.VerifiedSubmission(
        submission: submission, source: .receipt, environment: .production, evidence: evidence,
        selected: selected, exchanges: exchanges),
      at: day(date), terms: terms)
  }

  func acknowledgeDelivery(of key: TransactionKey, by account: String, on date: Double)
    async throws -> (deliveredAt: Timestamp, isFirst: Bool)?
  {
    let account = try await accounts.findOrCreateAccount(account, at: start)
    return try await orders.acknowledgeDelivery(of: key, by: account.key, at: day(date))
  }

  func owner(of id: TransactionID, line: OriginalTransactionKey = originalKey) async throws
    -> String?
  {
    guard let original = try await ownership.original(of: line),
      let recorded = original.charge(of: key(id, line: line))?.recorded
    else { return nil }
    return recorded.decision.owner.flatMap { original.names[$0] }
  }

  func rule(of id: TransactionID, line: OriginalTransactionKey = originalKey) async throws
    -> Decision
    .Rule?
  {
    try await ownership.original(of: line)?.charge(of: key(id, line: line))?.recorded.decision.rule
  }

  func entryCount() async throws -> Int {
    try await database.query("SELECT count(*) FROM tenure.ledger_entry").decodeOnly(Int.self)
  }
}

extension AccessTerms {
  /// An empty catalogue, and a sandbox that counts for everybody.
  static let everything = AccessTerms(catalogue: Catalogue([]))

  /// Plans that entitle to "premium", and coins.
  static let shop = AccessTerms(
    catalogue: Catalogue(
      ["monthly", "quarterly"].map {
        Product(id: $0, validFrom: start, type: .autoRenewable, entitlements: ["premium"])
      } + [Product(id: "coins", validFrom: start, type: .consumable, entitlements: [])]))
}

extension Ledger {
  /// Claims jobs for submissions and notifications as a worker does.
  func claimJobs(limit: Int, worker: String, at now: Timestamp, lease: Duration) async throws
    -> [Job]
  {
    try await jobs.claimJobs(
      limits: [.submissions: limit, .notifications: limit], worker: worker, at: now, lease: lease)
  }
}
