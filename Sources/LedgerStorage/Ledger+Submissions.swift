package import Foundation
import Postgres
package import Subscriptions

extension Submission.Status: PostgresEncodable, PostgresDecodable {}

extension Ledger {
  /// Stores a submission durably, with the job that will see to it should this process die.
  ///
  /// - Parameters:
  ///   - new: What was submitted. The account is created if it is new.
  ///   - retryAt: When a worker takes over, unless the submission is decided before.
  /// - Returns: The submission, pending.
  /// - Throws: What the database says.
  package func store(_ new: NewSubmission, retryAt: Timestamp) async throws -> Submission {
    let account = try await findOrCreateAccount(new.accountID, at: new.receivedAt)
    _ = try await database.batch([
      """
      INSERT INTO tenure.submission (submission_id, account_key, received_at, transaction_id,
        order_id, restore, bundle_id, status, retry_at)
      VALUES (\(new.id), \(account.key), \(new.receivedAt), \(new.transactionID), \(new.orderID),
        \(new.isRestore), \(new.bundleID), 'pending', \(retryAt))
      """,
      """
      INSERT INTO tenure.submission_payload (submission_id, receipt_data)
      VALUES (\(new.id), \(new.receiptData))
      """,
      Job.insert(.verifySubmission(new.id), runAt: retryAt, at: new.receivedAt),
    ])
    return Submission(
      id: new.id, account: account.key, accountID: account.id, receivedAt: new.receivedAt,
      transactionID: new.transactionID, orderID: new.orderID, isRestore: new.isRestore,
      bundleID: new.bundleID, status: .pending, environment: nil, retryAt: retryAt, attempts: 0,
      problem: nil, outcome: nil)
  }

  /// Finds a submission; nil if there is none of this id.
  package func submission(_ id: UUID) async throws -> Submission? {
    try Self.submission(from: await database.query(Self.select(submission: id, locking: false)))
  }

  /// The receipt of a submission; nil if it was aged out.
  package func receiptData(of submission: UUID) async throws -> String? {
    try await database.query(
      "SELECT receipt_data FROM tenure.submission_payload WHERE submission_id = \(submission)"
    ).decodeFirst(String.self)
  }

  /// The exchanges with Apple about a submission, in order.
  package func exchanges(of submission: UUID) async throws -> [SubmissionExchange] {
    try await database.query(
      """
      SELECT endpoint, asked_at, duration_ms, http_status, answer, fault
      FROM tenure.submission_exchange WHERE submission_id = \(submission)
      ORDER BY number
      """
    ).decode(
      String.self, Timestamp.self, Int64.self, Int?.self, [UInt8]?.self, String?.self
    ).map {
      SubmissionExchange(
        endpoint: $0, askedAt: $1, duration: .milliseconds($2), httpStatus: $3, answer: $4,
        fault: $5)
    }
  }

  /// What Apple answered about a submission, where that is so short that it can be a status alone.
  package func shortAnswers(to submission: UUID) async throws
    -> [(askedAt: Timestamp, answer: [UInt8])]
  {
    try await database.query(
      """
      SELECT asked_at, answer FROM tenure.submission_exchange
      WHERE submission_id = \(submission) AND octet_length(answer) <= 10000
      """
    ).decode(Timestamp.self, [UInt8].self).map { (askedAt: $0, answer: $1) }
  }

  /// What a verified submission is recorded with.
  package struct VerifiedSubmission: Sendable {
    package var submission: Submission
    package var environment: Environment
    package var evidence: [Evidence]
    /// The transactions that the submission claims, by purchase date.
    package var selected: [TransactionKey]
    package var exchanges: [SubmissionExchange]
    /// When to look again for what Apple did not list, or nobody could read; nil: not at all.
    package var lookAgainAt: Timestamp?
    /// Who has claimed the submission's job; nil: nobody.
    package var worker: String?

    package init(
      submission: Submission, environment: Environment, evidence: [Evidence],
      selected: [TransactionKey], exchanges: [SubmissionExchange],
      lookAgainAt: Timestamp? = nil, worker: String? = nil
    ) {
      self.submission = submission
      self.environment = environment
      self.evidence = evidence
      self.selected = selected
      self.exchanges = exchanges
      self.lookAgainAt = lookAgainAt
      self.worker = worker
    }
  }

  /// What recording a submission came to.
  package struct RecordedSubmission: Sendable {
    package var recording: Recording
    /// What came of the order that the submission named; nil if it named none.
    package var namedOrder: NamedOrder?
    /// The order that the submission's charge fulfilled, named or not.
    package var fulfilledOrder: UUID?

    /// What came of naming an order.
    package enum NamedOrder: Sendable {
      case unknown
      case matched(PurchaseOrder.NamedOrder)
    }
  }

  /// Records a verified submission: evidence, claims, decisions, holdings, orders and the outcome,
  /// all in one database transaction.
  ///
  /// - Parameters:
  ///   - verified: What Apple said, and what of it is claimed.
  ///   - now: The recording date.
  ///   - grantsAccess: Whether a charge of the environment grants anything to the account of the
  ///   id:
  ///     else it fulfils no order.
  ///   - outcome: Makes the stored form of the answer.
  /// - Returns: Nil if the submission was decided before, by another process.
  /// - Throws: What the database says.
  package func record<Outcome: Sendable>(
    _ verified: VerifiedSubmission, at now: Timestamp,
    grantsAccess: @escaping @Sendable (String, Environment) -> Bool,
    outcome: @Sendable (RecordedSubmission) throws -> (stored: String, value: Outcome)
  ) async throws -> Outcome? {
    let submission = verified.submission
    return try await database.withTransaction { transaction in
      let status = try await transaction.query(
        Self.select(submission: submission.id, locking: true))
      guard let stored = try Self.submission(from: status), stored.awaitsApple else { return nil }

      let arrival = Arrival(
        evidence: verified.evidence,
        claim: Arrival.AccountClaim(
          account: submission.account, transactions: verified.selected,
          receivedAt: submission.receivedAt),
        source: EntrySource(.receipt, id: submission.id.uuidString.lowercased()))
      let (recording, writes) = try await record(arrival, at: now, in: transaction)
      var result = RecordedSubmission(recording: recording)
      var orders = OrderMatching(recording: recording, grantsAccess: grantsAccess, now: now)
      try await orders.match(
        named: submission.orderID, by: submission.account, among: verified.selected, in: self,
        transaction, result: &result)
      let (answer, value) = try outcome(result)
      _ = try await transaction.commit(
        with: writes + orders.statements
          + Self.insert(verified.exchanges, of: submission, from: submission.attempts)
          + [
            """
            UPDATE tenure.submission SET status = 'verified', environment = \(verified.environment),
              decided_at = \(now), retry_at = \(verified.lookAgainAt), attempts = attempts + 1,
              problem = NULL, problem_detail = NULL, apple_status = NULL, outcome = \(answer)
            WHERE submission_id = \(submission.id)
            """,
            verified.lookAgainAt.map {
              Job.reschedule(
                .verifySubmission(submission.id), of: verified.worker, at: $0,
                because: "What was submitted is not in Apple's answer, or can't be read.")
            } ?? Job.delete(.verifySubmission(submission.id)),
          ])
      return value
    }
  }

  /// Records that Apple, or the check of what Apple said, refuses a submission.
  package func reject(
    _ submission: Submission, because problem: SubmissionProblem,
    exchanges: [SubmissionExchange], at now: Timestamp
  ) async throws {
    try await update(submission, exchanges: exchanges) { stored in
      guard stored.status == .pending else {
        // It was verified, and only a transaction that was named was looked for: it stays verified.
        return [
          """
          UPDATE tenure.submission SET retry_at = NULL, attempts = attempts + 1
          WHERE submission_id = \(submission.id)
          """,
          Job.delete(.verifySubmission(submission.id)),
        ]
      }
      return [
        """
        UPDATE tenure.submission SET status = 'rejected', decided_at = \(now), retry_at = NULL,
          attempts = attempts + 1, problem = \(problem.code), problem_detail = \(problem.detail),
          apple_status = \(problem.appleStatus)
        WHERE submission_id = \(submission.id)
        """,
        Job.delete(.verifySubmission(submission.id)),
      ]
    }
  }

  /// Records that Apple could not be asked, and when it will be asked again.
  ///
  /// `worker` has claimed the submission's job; nil: nobody has.
  package func postpone(
    _ submission: Submission, until retryAt: Timestamp, because problem: SubmissionProblem,
    exchanges: [SubmissionExchange], worker: String?
  ) async throws {
    try await update(submission, exchanges: exchanges) { _ in
      [
        """
        UPDATE tenure.submission SET retry_at = \(retryAt), attempts = attempts + 1,
          problem = \(problem.code), problem_detail = \(problem.detail),
          apple_status = \(problem.appleStatus)
        WHERE submission_id = \(submission.id)
        """,
        Job.reschedule(
          .verifySubmission(submission.id), of: worker, at: retryAt, because: problem.detail),
      ]
    }
  }

  /// Changes a submission that is still pending; one that is decided stays as it is.
  private func update(
    _ submission: Submission, exchanges: [SubmissionExchange],
    with statements: @Sendable (Submission) -> [SQL]
  ) async throws {
    try await database.withTransaction { transaction in
      let rows = try await transaction.query(
        Self.select(submission: submission.id, locking: true))
      guard let stored = try Self.submission(from: rows), stored.awaitsApple else { return }
      _ = try await transaction.commit(
        with: Self.insert(exchanges, of: submission, from: submission.attempts) + statements(stored)
      )
    }
  }

  // MARK: Statements

  private static func select(submission id: UUID, locking: Bool) -> SQL {
    """
    SELECT s.submission_id, s.account_key, k.account_id, s.received_at, s.transaction_id,
      s.order_id, s.restore, s.bundle_id, s.status, s.environment, s.retry_at, s.attempts,
      s.problem, s.problem_detail, s.apple_status, s.outcome
    FROM tenure.submission AS s JOIN tenure.account_by_key AS k ON k.account_key = s.account_key
    WHERE s.submission_id = \(id)
    \(unescaped: locking ? "FOR UPDATE OF s" : "")
    """
  }

  private static func submission(from rows: Rows) throws -> Submission? {
    try rows.decodeFirst(
      UUID.self, AccountKey.self, String.self, Timestamp.self, TransactionID?.self, UUID?.self,
      Bool.self, String?.self, Submission.Status.self, Environment?.self, Timestamp?.self,
      Int.self, String?.self, String?.self, Int?.self, String?.self
    ).map { row in
      let (
        id, account, accountID, receivedAt, transactionID, orderID, isRestore, bundleID, status,
        environment, retryAt, attempts, problem, detail, appleStatus, outcome
      ) = row
      return Submission(
        id: id, account: account, accountID: accountID, receivedAt: receivedAt,
        transactionID: transactionID, orderID: orderID, isRestore: isRestore, bundleID: bundleID,
        status: status, environment: environment, retryAt: retryAt, attempts: attempts,
        problem: problem.map {
          SubmissionProblem(code: $0, detail: detail ?? "", appleStatus: appleStatus)
        }, outcome: outcome)
    }
  }

  /// Exchanges are numbered through the attempts: a thousand to each are more than Apple is ever
  /// asked in one.
  private static func insert(
    _ exchanges: [SubmissionExchange], of submission: Submission, from attempt: Int
  ) -> [SQL] {
    exchanges.enumerated().map { index, exchange in
      """
      INSERT INTO tenure.submission_exchange (submission_id, number, endpoint, asked_at,
        duration_ms, http_status, answer, fault)
      VALUES (\(submission.id), \(attempt * 1000 + index + 1), \(exchange.endpoint),
        \(exchange.askedAt), \(exchange.duration.inMilliseconds), \(exchange.httpStatus),
        \(exchange.answer), \(exchange.fault))
      ON CONFLICT (submission_id, number) DO NOTHING
      """
    }
  }
}
