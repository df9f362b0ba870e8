package import Foundation
import Postgres
package import Subscriptions

extension Submission.Status: PostgresEncodable, PostgresDecodable {}

extension Ledger {
  /// Stores a submission durably, with the job that decides it if this process dies.
  ///
  /// ```swift
  /// let submission = try await ledger.store(new, retryAt: now + .minutes(1))
  /// // Verify submission's payload with Apple, then record what Apple returned:
  /// let answer = try await ledger.record(verified, at: now, terms: terms) { result in
  ///   Ledger.StoredOutcome(text: json(of: result), order: result.fulfilledOrder, value: result)
  /// }
  /// ```
  ///
  /// Creates the account if necessary. For a merged account, the submission belongs to the account
  /// it was merged into.
  ///
  /// - Parameter retryAt: When a worker takes over, unless the submission is decided before.
  /// - Throws: ``LedgerError/erasedAccount(_:)``.
  package func store(_ new: NewSubmission, retryAt: Timestamp) async throws -> Submission {
    let account = try await successor(
      of: findOrCreateAccount(new.accountID, at: new.receivedAt))
    guard !account.isErased else { throw LedgerError.erasedAccount(new.accountID) }
    _ = try await database.batch([
      """
      INSERT INTO tenure.submission (submission_id, account_key, received_at, transaction_id,
        order_id, restore, bundle_id, status, retry_at)
      VALUES (\(new.id), \(account.key), \(new.receivedAt), \(new.transactionID), \(new.orderID),
        \(new.isRestore), \(new.bundleID), 'pending', \(retryAt))
      """,
      new.payload.insert(for: new.id),
      Job.insert(.verifySubmission(new.id), runAt: retryAt, at: new.receivedAt),
    ])
    bell.ring(forJobAt: retryAt, now: new.receivedAt)
    return Submission(
      id: new.id, account: account.key, accountID: account.id, receivedAt: new.receivedAt,
      transactionID: new.transactionID, orderID: new.orderID, isRestore: new.isRestore,
      bundleID: new.bundleID, status: .pending, environment: nil, retryAt: retryAt, attempts: 0,
      problem: nil, outcome: nil)
  }

  package func submission(_ id: UUID) async throws -> Submission? {
    let rows = try await database.query(
      """
      SELECT account_key, received_at, transaction_id, order_id, restore, bundle_id, status,
        environment, retry_at, attempts, problem, problem_detail, apple_status, outcome
      FROM tenure.submission WHERE submission_id = \(id)
      """)
    guard
      let (
        account, receivedAt, transactionID, orderID, isRestore, bundleID, status, environment,
        retryAt, attempts, problem, detail, appleStatus, outcome
      ) = try rows.decodeFirst(
        AccountKey.self, Timestamp.self, TransactionID?.self, UUID?.self, Bool.self, String?.self,
        Submission.Status.self, Environment?.self, Timestamp?.self, Int.self, String?.self,
        String?.self, Int?.self, String?.self),
      let sender = try await successor(of: account)
    else { return nil }
    return Submission(
      id: id, account: sender.key, accountID: sender.id, receivedAt: receivedAt,
      transactionID: transactionID, orderID: orderID, isRestore: isRestore, bundleID: bundleID,
      status: status, environment: environment, retryAt: retryAt, attempts: attempts,
      problem: problem.map {
        SubmissionProblem(code: $0, detail: detail ?? "", appleStatus: appleStatus)
      }, outcome: outcome)
  }

  /// The account that a submission belongs to now: follows merges.
  private func successor(of account: AccountKey) async throws -> (key: AccountKey, id: String)? {
    var key = account
    while let known = try await knownAccounts([key])[key] {
      guard let into = known.mergedInto else { return (key, known.id) }
      key = into
    }
    return nil
  }

  package func exchanges(of submission: UUID) async throws -> [SubmissionExchange] {
    try await database.query(
      """
      SELECT \(SubmissionExchange.columns)
      FROM tenure.submission_exchange WHERE submission_id = \(submission)
      ORDER BY number
      """
    ).decodeExchanges()
  }

  /// Apple's short responses about a submission, which may be a status only.
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

  package struct VerifiedSubmission: Sendable {
    package var submission: Submission
    /// How the evidence arrived.
    package var source: EntrySource.Kind
    package var environment: Environment
    package var evidence: [Evidence]
    package var bundleID: String?
    /// The claimed transactions, by purchase date.
    package var selected: [TransactionKey]
    package var exchanges: [SubmissionExchange]
    /// When to verify again for a transaction that Apple did not list or that could not be parsed.
    package var lookAgainAt: Timestamp?
    /// The worker that claimed the submission's job, if any.
    package var worker: String?

    package init(
      submission: Submission, source: EntrySource.Kind, environment: Environment,
      evidence: [Evidence], bundleID: String? = nil, selected: [TransactionKey],
      exchanges: [SubmissionExchange],
      lookAgainAt: Timestamp? = nil, worker: String? = nil
    ) {
      self.submission = submission
      self.source = source
      self.environment = environment
      self.evidence = evidence
      self.bundleID = bundleID
      self.selected = selected
      self.exchanges = exchanges
      self.lookAgainAt = lookAgainAt
      self.worker = worker
    }
  }

  package struct RecordedSubmission: Sendable {
    package var recording: Recording
    /// Nil if the submission named no order.
    package var namedOrder: NamedOrder?
    /// The order that the submission's charge fulfilled, named or not.
    package var fulfilledOrder: UUID?

    package enum NamedOrder: Hashable, Sendable {
      case unknown
      case matched(PurchaseOrder.NamedOrder)
    }
  }

  /// The stored answer to a submission, and the value it was made from.
  package struct StoredOutcome<Value: Sendable>: Sendable {
    package var text: String
    package var order: UUID?
    package var value: Value

    package init(text: String, order: UUID?, value: Value) {
      self.text = text
      self.order = order
      self.value = value
    }
  }

  /// A recorded submission with the rest of its answer, as of the commit.
  package struct AnsweredSubmission<Value: Sendable>: Sendable {
    package let value: Value
    package let holdings: AccountHoldings
    package let order: StoredOrder?
  }

  /// Records a verified submission: evidence, claims, decisions, holdings, orders and the outcome,
  /// in one database transaction.
  ///
  /// If a server and a worker verify a submission concurrently, both record Apple's evidence, but
  /// the submission claims once and keeps its first answer. A rejection is overridden by a
  /// verification.
  ///
  /// - Parameter outcome: Makes the stored answer.
  /// - Returns: Nil if another process has verified the submission.
  package func record<Outcome: Sendable>(
    _ verified: VerifiedSubmission, at now: Timestamp,
    terms: AccessTerms,
    outcome: @Sendable (RecordedSubmission) throws -> StoredOutcome<Outcome>
  ) async throws -> AnsweredSubmission<Outcome>? {
    do {
      return try await recordOnce(verified, at: now, terms: terms, outcome: outcome)
    } catch is MergedMeanwhile {
      // Read again, it belongs to the other account. Merges never form a cycle.
      guard let submission = try await self.submission(verified.submission.id) else { return nil }
      var verified = verified
      verified.submission = submission
      return try await record(verified, at: now, terms: terms, outcome: outcome)
    }
  }

  /// The submission's account was merged since the submission was read.
  private struct MergedMeanwhile: Error {}

  private func recordOnce<Outcome: Sendable>(
    _ verified: VerifiedSubmission, at now: Timestamp,
    terms: AccessTerms,
    outcome: @Sendable (RecordedSubmission) throws -> StoredOutcome<Outcome>
  ) async throws -> AnsweredSubmission<Outcome>? {
    let submission = verified.submission
    let account = submission.account
    // Two round trips: all reads, then all writes and the reads for the answer.
    let (answer, channels, recording) = try await database.withTransaction {
      transaction -> (AnsweredSubmission<Outcome>?, Set<Bell.Channel>, Recording?) in
      let (locked, before, after) = try await lock(
        linesOf: verified.evidence, before: Standing.lock(submission.id),
        after: [OrdersAtHand.lock(for: verified)] + Self.lockClaimant(of: submission)
          // After the account's lock, so that a concurrent erasure has ended.
          + [KnownAccount.select([account])],
        in: transaction)
      guard let standing = try Standing(from: before) else {
        await transaction.rollBack()
        return (nil, [], nil)
      }
      let accounts = try KnownAccount.accounts(from: after[after.count - 1])
      guard accounts[account]?.mergedInto == nil else { throw MergedMeanwhile() }
      // Purchases of an erased account are recorded as evidence without a claim; nothing else is
      // kept or published.
      let isErased = accounts[account].map { $0.erasedAt != nil } ?? false
      let claims = (standing.isOpen || standing.status == .rejected) && !isErased

      let arrival = Arrival(
        evidence: verified.evidence,
        claim: claims
          ? Arrival.AccountClaim(
            account: submission.account, transactions: verified.selected,
            receivedAt: submission.receivedAt) : nil,
        source: EntrySource(verified.source, id: submission.id.uuidString.lowercased()))
      let (recording, writes) = try await record(
        arrival, on: locked, knowing: accounts, catalogue: terms.catalogue, at: now,
        in: transaction)
      var claimant = try Self.claimant(
        of: submission, from: after.dropLast(), after: standing.attempts)
      claimant.apply(recording)
      var result = RecordedSubmission(recording: recording)
      var orders = OrderMatching(recording: recording, terms: terms, now: now)
      try await orders.match(
        named: claims ? submission.orderID : nil, by: submission.account,
        among: claims ? verified.selected : [],
        atHand: OrdersAtHand(for: verified, from: after[0]), in: self, transaction, result: &result)
      let consequences = try await consequences(
        of: recording, orders: orders.changes, terms: terms, at: now,
        knowing: isErased ? [] : [claimant], in: transaction)
      let exchanges = isErased ? [] : verified.exchanges
      let statements =
        writes + orders.statements + consequences.statements
        + verified.lineSources(in: recording)
        + Self.insert(exchanges, of: submission, after: standing.lastExchange)
        + ProvisionalGrant.replace([], of: submission, after: standing.attempts, at: now)
      guard claims else {
        // It may have been stored while its account was being erased.
        let erasure = isErased ? Self.eraseSubmissions(of: account, at: now) : []
        try await transaction.commit(
          with: statements + [Self.countAttempt(of: submission)] + erasure)
        return (nil, consequences.channels, recording)
      }
      let outcome = try outcome(result)
      let reads = outcome.order.map { StoredOrder.select($0, of: account) } ?? []
      let results = try await transaction.commit(
        with: statements + [
          """
          UPDATE tenure.submission SET status = 'verified', environment = \(verified.environment),
            decided_at = \(now), retry_at = \(verified.lookAgainAt), attempts = attempts + 1,
            problem = NULL, problem_detail = NULL, apple_status = NULL, outcome = \(outcome.text)
          WHERE submission_id = \(submission.id)
          """
        ] + Self.job(of: verified, at: now) + reads
      ).suffix(reads.count)
      let answer = AnsweredSubmission(
        value: outcome.value, holdings: claimant.held,
        order: try outcome.order.flatMap {
          try StoredOrder($0, of: account, lifetime: orderLifetime, from: Array(results))
        })
      return (answer, consequences.channels, recording)
    }
    bell.ring(channels)
    if let recording { metrics.count(recording) }
    return answer
  }

  /// Records that Apple, or the check of Apple's response, rejected a submission.
  package func reject(
    _ submission: Submission, because problem: SubmissionProblem,
    exchanges: [SubmissionExchange], terms: AccessTerms, at now: Timestamp
  ) async throws {
    try await update(submission, exchanges: exchanges, terms: terms, at: now) { standing, _ in
      guard standing.status == .pending else {
        // Already verified; only a named transaction was looked for.
        return Change([
          """
          UPDATE tenure.submission SET retry_at = NULL, attempts = attempts + 1
          WHERE submission_id = \(submission.id)
          """,
          Job.delete(.verifySubmission(submission.id)),
        ])
      }
      return Change([
        """
        UPDATE tenure.submission SET status = 'rejected', decided_at = \(now), retry_at = NULL,
          attempts = attempts + 1, problem = \(problem.code), problem_detail = \(problem.detail),
          apple_status = \(problem.appleStatus)
        WHERE submission_id = \(submission.id)
        """,
        Job.delete(.verifySubmission(submission.id)),
      ])
    }
  }

  /// Records that a submission could not be verified yet, and schedules the next attempt.
  ///
  /// - Parameters:
  ///   - provisional: Replaces the submission's provisional grants.
  ///   - worker: The worker that claimed the submission's job, if any.
  package func postpone(
    _ submission: Submission, until retryAt: Timestamp, because problem: SubmissionProblem,
    exchanges: [SubmissionExchange], provisional: [ProvisionalGrant] = [], worker: String?,
    terms: AccessTerms, at now: Timestamp
  ) async throws {
    let reads = ProvisionalGrant.lockRivals(of: submission, for: provisional, at: now)
    try await update(
      submission, exchanges: exchanges, terms: terms, at: now, reading: reads
    ) { standing, results in
      let rivals = try ProvisionalGrant.rivals(from: results)
      let grants =
        standing.status == .pending
        ? provisional.filter { !rivals.contains($0.line) } : []
      let statements: [SQL] = [
        """
        UPDATE tenure.submission SET retry_at = \(retryAt), attempts = attempts + 1,
          problem = \(problem.code), problem_detail = \(problem.detail),
          apple_status = \(problem.appleStatus)
        WHERE submission_id = \(submission.id)
        """,
        Job.reschedule(
          .verifySubmission(submission.id), of: worker, at: retryAt, because: problem.detail),
      ]
      return Change(statements, grants: grants)
    }
    bell.ring(forJobAt: retryAt, now: now)
  }

  private struct Change {
    var statements: [SQL]
    /// Replaces the submission's provisional grants.
    var grants: [ProvisionalGrant]

    init(_ statements: [SQL], grants: [ProvisionalGrant] = []) {
      self.statements = statements
      self.grants = grants
    }
  }

  /// Updates an open submission and publishes changes of its provisional access.
  ///
  /// A submission decided concurrently is left unchanged, but Apple's responses are stored. One
  /// that was stored while its account was being erased is erased too.
  private func update(
    _ submission: Submission, exchanges: [SubmissionExchange], terms: AccessTerms,
    at now: Timestamp, reading reads: [SQL] = [],
    with change: @Sendable (Standing, [Rows]) throws -> Change
  ) async throws {
    let channels = try await database.withTransaction { transaction -> Set<Bell.Channel> in
      let lock = Standing.lock(submission.id)
      var results = try await transaction.batch(
        lock + reads + Self.lockClaimant(of: submission)
          // After the account's lock, so that a concurrent erasure has ended.
          + [KnownAccount.select([submission.account])])
      let isErased =
        try KnownAccount.accounts(from: results.removeLast())[submission.account]?.erasedAt != nil
      guard let standing = try Standing(from: results) else { return [] }
      let statements = Self.insert(
        isErased ? [] : exchanges, of: submission, after: standing.lastExchange)
      guard standing.isOpen, !isErased else {
        try await transaction.commit(
          with: statements + [Self.countAttempt(of: submission)]
            + (isErased ? Self.eraseSubmissions(of: submission.account, at: now) : []))
        return []
      }
      let change = try change(
        standing, Array(results.dropFirst(lock.count).prefix(reads.count)))
      var claimant = try Self.claimant(of: submission, from: results, after: standing.attempts)
      claimant.held.grants += change.grants.map { $0.grant(of: submission) }
      changes.note([submission.accountID], in: transaction)
      let news = AccountNews(claimant, terms: terms, at: now)
      let consequences = Consequences(
        [news], rescheduling: news.changesWhatIsTold || !change.grants.isEmpty ? [news] : [],
        at: now)
      try await transaction.commit(
        with: statements + change.statements
          + ProvisionalGrant.replace(
            change.grants, of: submission, after: standing.attempts, at: now)
          + consequences.statements)
      return consequences.channels
    }
    bell.ring(channels)
  }

  // MARK: Statements

  /// Locks and reads the submission's account without the submission's provisional grants, for
  /// ``claimant(of:from:after:)``.
  private static func lockClaimant(of submission: Submission) -> [SQL] {
    ToldAccount.lock([submission.accountID])
      + ToldAccount.select([submission.accountID], withoutGrantsOf: submission.id)
  }

  private static func claimant(
    of submission: Submission, from results: some Collection<Rows>, after attempts: Int
  ) throws -> ToldAccount {
    let accounts = try ToldAccount.accounts(
      [submission.account: submission.accountID],
      from: results.suffix(ToldAccount.statementCount))
    var claimant = accounts[0]
    // No provisional grants exist before the first attempt.
    claimant.hasChangedGrants = attempts > 0
    return claimant
  }

  private struct Standing: Sendable {
    var status: Submission.Status
    var retryAt: Timestamp?
    /// Attempts to verify it; no provisional grants exist before the first.
    var attempts: Int
    /// The number of its last exchange, or 0.
    var lastExchange: Int

    var isOpen: Bool { Submission.isOpen(status, retryAt: retryAt) }

    /// Locks and reads a submission, for ``init(from:)``.
    static func lock(_ id: UUID) -> [SQL] {
      [
        """
        SELECT status, retry_at, attempts FROM tenure.submission
        WHERE submission_id = \(id)
        FOR UPDATE
        """,
        """
        SELECT coalesce(max(number), 0) FROM tenure.submission_exchange
        WHERE submission_id = \(id)
        """,
      ]
    }

    /// Nil if the submission does not exist.
    init?(from results: [Rows]) throws {
      guard
        let (status, retryAt, attempts) = try results[0].decodeFirst(
          Submission.Status.self, Timestamp?.self, Int.self)
      else { return nil }
      self.status = status
      self.retryAt = retryAt
      self.attempts = attempts
      lastExchange = try results[1].decodeOnly(Int.self)
    }
  }

  private static func countAttempt(of submission: Submission) -> SQL {
    """
    UPDATE tenure.submission SET attempts = attempts + 1
    WHERE submission_id = \(submission.id)
    """
  }

  /// Deletes the submission's job, or reschedules it to verify again.
  private static func job(of verified: VerifiedSubmission, at now: Timestamp) -> [SQL] {
    let task = Job.Task.verifySubmission(verified.submission.id)
    guard let lookAgainAt = verified.lookAgainAt else { return [Job.delete(task)] }
    // A rejection has deleted the job.
    return [
      Job.insert(task, runAt: lookAgainAt, at: now),
      Job.reschedule(
        task, of: verified.worker, at: lookAgainAt,
        because: "The submitted transaction is not in Apple's response or can't be parsed."),
    ]
  }

  private static func insert(
    _ exchanges: [SubmissionExchange], of submission: Submission, after lastNumber: Int
  ) -> [SQL] {
    exchanges.enumerated().map { index, exchange in
      """
      INSERT INTO tenure.submission_exchange (submission_id, number, endpoint, asked_at,
        duration_ms, http_status, answer, fault)
      VALUES (\(submission.id), \(lastNumber + index + 1), \(exchange.endpoint),
        \(exchange.askedAt), \(exchange.duration.inMilliseconds), \(exchange.httpStatus),
        \(exchange.answer), \(exchange.fault))
      """
    }
  }
}

extension Ledger.VerifiedSubmission {
  /// Stores the app and receipt, to poll the original transactions with.
  fileprivate func lineSources(in recording: Recording) -> [SQL] {
    let others = recording.families.filter { _, family in
      let latest = family.rule.charges.latestCharge.flatMap { family.line.decisions[$0.id] }
      return latest?.decision.owner != submission.account
    }
    return LineSource(
      bundleID: bundleID, receipt: source == .receipt ? .submission(submission.id) : nil
    ).upsert(for: evidence, ofOthers: Set(others.keys))
  }
}
