package import Foundation
import Postgres
package import Subscriptions

extension Submission.Status: PostgresEncodable, PostgresDecodable {}

extension Ledger {
  /// Stores a submission durably, with the job that will see to it should this process die.
  ///
  /// What is submitted for an account that was merged into another is the other one's.
  ///
  /// - Parameters:
  ///   - new: What was submitted. The account is created if it is new.
  ///   - retryAt: When a worker takes over, unless the submission is decided before.
  /// - Returns: The submission, pending.
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

  /// Finds a submission; nil if there is none of this id.
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

  /// The account whose the submissions of an account are: itself, or the one it was merged into.
  private func successor(of account: AccountKey) async throws -> (key: AccountKey, id: String)? {
    var key = account
    while let known = try await knownAccounts([key])[key] {
      guard let into = known.mergedInto else { return (key, known.id) }
      key = into
    }
    return nil
  }

  /// The exchanges with Apple about a submission, in order.
  package func exchanges(of submission: UUID) async throws -> [SubmissionExchange] {
    try await database.query(
      """
      SELECT \(SubmissionExchange.columns)
      FROM tenure.submission_exchange WHERE submission_id = \(submission)
      ORDER BY number
      """
    ).decodeExchanges()
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
    /// As what the evidence came.
    package var source: EntrySource.Kind
    package var environment: Environment
    package var evidence: [Evidence]
    /// The app that it is about; nil where that is not known.
    package var bundleID: String?
    /// The transactions that the submission claims, by purchase date.
    package var selected: [TransactionKey]
    package var exchanges: [SubmissionExchange]
    /// When to look again for what Apple did not list, or nobody could read; nil: not at all.
    package var lookAgainAt: Timestamp?
    /// Who has claimed the submission's job; nil: nobody.
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

  /// What recording a submission came to.
  package struct RecordedSubmission: Sendable {
    package var recording: Recording
    /// The result of naming an order; nil if the submission named none.
    package var namedOrder: NamedOrder?
    /// The order that the submission's charge fulfilled, named or not.
    package var fulfilledOrder: UUID?

    /// The result of naming an order.
    package enum NamedOrder: Hashable, Sendable {
      case unknown
      case matched(PurchaseOrder.NamedOrder)
    }
  }

  /// How the answer to a submission is kept.
  package struct StoredOutcome<Value: Sendable>: Sendable {
    package var text: String
    /// The order that the answer shows.
    package var order: UUID?
    package var value: Value

    package init(text: String, order: UUID?, value: Value) {
      self.text = text
      self.order = order
      self.value = value
    }
  }

  /// A submission that was recorded, with what its answer shows beside the decisions: as of the
  /// commit.
  package struct AnsweredSubmission<Value: Sendable>: Sendable {
    package let value: Value
    package let holdings: AccountHoldings
    package let order: StoredOrder?
  }

  /// Records a verified submission: evidence, claims, decisions, holdings, orders and the outcome,
  /// all in one database transaction.
  ///
  /// A server and a worker may have verified one submission at the same time. What Apple said is
  /// evidence either way; but the submission claims once, and keeps the answer that it was verified
  /// with. A rejection, though, gives way: Apple has vouched for the receipt.
  ///
  /// - Parameters:
  ///   - verified: What Apple said, and what of it is claimed.
  ///   - now: The recording date.
  ///   - terms: By what it is judged what accounts may use.
  ///   - outcome: Makes the stored form of the answer.
  /// - Returns: What came of it; nil if the submission was verified before, by another process.
  /// - Throws: What the database says.
  package func record<Outcome: Sendable>(
    _ verified: VerifiedSubmission, at now: Timestamp,
    terms: AccessTerms,
    outcome: @Sendable (RecordedSubmission) throws -> StoredOutcome<Outcome>
  ) async throws -> AnsweredSubmission<Outcome>? {
    do {
      return try await recordOnce(verified, at: now, terms: terms, outcome: outcome)
    } catch is MergedMeanwhile {
      // As it is read now, it is the other account's; and nothing is merged in a circle.
      guard let submission = try await self.submission(verified.submission.id) else { return nil }
      var verified = verified
      verified.submission = submission
      return try await record(verified, at: now, terms: terms, outcome: outcome)
    }
  }

  /// The account of a submission was merged into another since the submission was read.
  private struct MergedMeanwhile: Error {}

  private func recordOnce<Outcome: Sendable>(
    _ verified: VerifiedSubmission, at now: Timestamp,
    terms: AccessTerms,
    outcome: @Sendable (RecordedSubmission) throws -> StoredOutcome<Outcome>
  ) async throws -> AnsweredSubmission<Outcome>? {
    let submission = verified.submission
    let account = submission.account
    // Two round trips: everything that is read, then everything that is written and answered.
    let (answer, channels, recording) = try await database.withTransaction {
      transaction -> (AnsweredSubmission<Outcome>?, Set<Bell.Channel>, Recording?) in
      let (locked, before, after) = try await lock(
        linesOf: verified.evidence, before: Standing.lock(submission.id),
        after: [OrdersAtHand.lock(for: verified)] + Self.lockClaimant(of: submission)
          // Behind the account's lock: whoever erases the person has ended then.
          + [KnownAccount.select([account])],
        in: transaction)
      guard let standing = try Standing(from: before) else {
        await transaction.rollBack()
        return (nil, [], nil)
      }
      let accounts = try KnownAccount.accounts(from: after[after.count - 1])
      guard accounts[account]?.mergedInto == nil else { throw MergedMeanwhile() }
      // What Apple said of an erased person's purchases is evidence, and nobody's claim; nothing of
      // it is kept beside that, or told.
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
        // It may have been stored at the very moment when its account was erased.
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

  /// Records that Apple, or the check of what Apple said, refuses a submission.
  ///
  /// - Parameters:
  ///   - submission: The submission.
  ///   - problem: What is wrong with it.
  ///   - exchanges: What Apple said.
  ///   - terms: By what it is judged what accounts may use.
  ///   - now: The moment of the decision.
  /// - Throws: What the database says.
  package func reject(
    _ submission: Submission, because problem: SubmissionProblem,
    exchanges: [SubmissionExchange], terms: AccessTerms, at now: Timestamp
  ) async throws {
    try await update(submission, exchanges: exchanges, terms: terms, at: now) { standing, _ in
      guard standing.status == .pending else {
        // It was verified, and only a transaction that was named was looked for: it stays verified.
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

  /// Records that Apple could not be asked, and when it will be asked again.
  ///
  /// - Parameters:
  ///   - submission: The submission.
  ///   - retryAt: When Apple will be asked again.
  ///   - problem: What happened.
  ///   - exchanges: What was tried.
  ///   - provisional: What the submitter is granted until then; it takes the place of what was
  ///     granted before.
  ///   - worker: Who has claimed the submission's job; nil: nobody.
  ///   - terms: By what it is judged what accounts may use.
  ///   - now: The moment of the failure.
  /// - Throws: What the database says.
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

  /// What changes of a submission about which Apple is still to be asked.
  private struct Change {
    var statements: [SQL]
    /// What takes the place of what the submission granted provisionally.
    var grants: [ProvisionalGrant]

    init(_ statements: [SQL], grants: [ProvisionalGrant] = []) {
      self.statements = statements
      self.grants = grants
    }
  }

  /// Changes a submission about which Apple is still to be asked, and tells its account what that
  /// changes of its provisional access.
  ///
  /// One that was decided meanwhile stays as it is; what Apple said is kept all the same. One that
  /// was stored at the very moment when its account was erased is erased with it.
  private func update(
    _ submission: Submission, exchanges: [SubmissionExchange], terms: AccessTerms,
    at now: Timestamp, reading reads: [SQL] = [],
    with change: @Sendable (Standing, [Rows]) throws -> Change
  ) async throws {
    let channels = try await database.withTransaction { transaction -> Set<Bell.Channel> in
      let lock = Standing.lock(submission.id)
      var results = try await transaction.batch(
        lock + reads + Self.lockClaimant(of: submission)
          // Behind the account's lock: whoever erases the person has ended then.
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

  /// The statements that lock and read the submission's account, without what the submission
  /// granted provisionally; ``claimant(of:from:after:)`` reads the last ones' results.
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
    // Before the first attempt nothing was granted.
    claimant.hasChangedGrants = attempts > 0
    return claimant
  }

  /// What may have changed since a submission was read, by whoever else deals with it.
  private struct Standing: Sendable {
    var status: Submission.Status
    var retryAt: Timestamp?
    /// How often Apple was asked; before the first time nothing was granted provisionally.
    var attempts: Int
    /// The number of its last exchange; 0 for none.
    var lastExchange: Int

    var isOpen: Bool { Submission.isOpen(status, retryAt: retryAt) }

    /// The statements that lock a submission, so that only one process decides it, and then read
    /// it; ``init(from:)`` reads their results.
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

    /// Nil if there is no such submission.
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

  /// Ends the submission's job, or gives it back until Apple is to be asked again.
  private static func job(of verified: VerifiedSubmission, at now: Timestamp) -> [SQL] {
    let key = Job.Key.verifySubmission(verified.submission.id)
    guard let lookAgainAt = verified.lookAgainAt else { return [Job.delete(key)] }
    // A rejection has taken the job out of the queue.
    return [
      Job.insert(key, runAt: lookAgainAt, at: now),
      Job.reschedule(
        key, of: verified.worker, at: lookAgainAt,
        because: "What was submitted is not in Apple's answer, or can't be read."),
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
  /// Notes what Apple can be asked about the lines with later.
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
