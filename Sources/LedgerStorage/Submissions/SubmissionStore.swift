package import Foundation
import JSONText
import Postgres
package import Subscriptions

extension Submission.Status: PostgresEncodable, PostgresDecodable {}

/// Accounts' submissions.
package struct SubmissionStore: LedgerStore {
  package let core: LedgerCore

  package struct NewSubmission: Sendable {
    package let submission: Submission
    package let payload: SubmissionPayload
    fileprivate let body: NewBody
  }

  /// Looks up the account of a submission that has just arrived.
  ///
  /// Submissions for a merged account go to the account that it was merged into; an unknown account
  /// is created.
  ///
  /// - Parameters:
  ///   - chains: The headers of verified signatures, which the payload is stored without.
  ///   - retryAt: When a worker takes over, unless the submission is decided before.
  package func new(
    id: UUID, accountID: String, receivedAt: Timestamp, payload: SubmissionPayload,
    chains: [String] = [],
    transactionID: TransactionID?, orderID: UUID?, isRestore: Bool, bundleID: String?,
    retryAt: Timestamp
  ) async throws -> NewSubmission {
    let account = try await accounts.successor(
      of: accounts.findOrCreateAccount(accountID, at: receivedAt))
    guard !account.isErased else { throw LedgerError.erasedAccount(accountID) }
    return NewSubmission(
      submission: Submission(
        id: id, account: account.key, accountID: account.id, receivedAt: receivedAt,
        transactionID: transactionID, orderID: orderID, isRestore: isRestore, bundleID: bundleID,
        kind: payload.kind, status: .pending, environment: nil, decidedAt: nil, retryAt: retryAt,
        attempts: 0, problem: nil, outcome: nil),
      payload: payload,
      body: NewBody(
        Array(payload.body.utf8), at: receivedAt, leavingOut: chains.map(ChainHeader.init)))
  }

  /// Stores a submission durably, with the job that processes it should this process die.
  @discardableResult
  package func store(_ new: NewSubmission) async throws -> Submission {
    let submission = new.submission
    let retryAt = submission.retryAt ?? submission.receivedAt
    _ = try await database.batch(
      try Self.insert(new) + [
        Job.insert(.verifySubmission(submission.id), runAt: retryAt, at: submission.receivedAt)
      ])
    notifier.notify(forJobAt: retryAt, now: submission.receivedAt)
    return submission
  }

  private static func insert(
    _ new: NewSubmission,
    decided decision: (verified: VerifiedSubmission, outcome: SubmissionOutcome, at: Timestamp)? =
      nil
  ) throws -> [SQL] {
    let submission = new.submission
    let outcome = try decision.map { try $0.outcome.text }
    let retryAt = decision == nil ? submission.retryAt : decision?.verified.lookAgainAt
    return [
      new.body.store,
      """
      INSERT INTO tenure.submission (submission_id, account_key, received_at, transaction_id,
        order_id, restore, bundle_id, body_sha256, signed_transactions, status, retry_at,
        environment, decided_at, attempts, outcome)
      VALUES (\(submission.id), \(submission.account), \(submission.receivedAt),
        \(submission.transactionID), \(submission.orderID), \(submission.isRestore),
        \(submission.bundleID), \(new.body.digest), \(new.payload.signedTransactions),
        \(decision == nil ? Submission.Status.pending : .verified), \(retryAt),
        \(decision?.verified.environment), \(decision?.at), \(decision == nil ? 0 : 1),
        \(outcome))
      """,
    ]
  }

  package func exchanges(of submission: UUID) async throws -> [SubmissionExchange] {
    try await ExchangeLog.of(submission: submission).exchanges(in: database)
  }

  package func shortAnswers(to submission: UUID) async throws -> [ShortAnswer] {
    try await ExchangeLog.of(submission: submission).shortAnswers(in: database)
  }

  package struct VerifiedSubmission: Sendable {
    package var submission: Submission
    package var source: EntrySource.Kind
    package var environment: Environment
    package var evidence: [Evidence]
    /// The app; nil: unknown.
    package var bundleID: String?
    /// The claimed transactions, by purchase date.
    package var selected: [TransactionKey]
    /// Warnings for the sender that do not depend on the recording.
    package var warnings: Set<SubmissionWarning>
    package var exchanges: [SubmissionExchange]
    /// When to verify again, because Apple listed less than expected or something was unreadable.
    package var lookAgainAt: Timestamp?
    /// The worker that has claimed the job, if any.
    package var worker: String?

    package init(
      submission: Submission, source: EntrySource.Kind, environment: Environment,
      evidence: [Evidence], bundleID: String? = nil, selected: [TransactionKey],
      warnings: Set<SubmissionWarning> = [], exchanges: [SubmissionExchange],
      lookAgainAt: Timestamp? = nil, worker: String? = nil
    ) {
      (self.submission, self.source, self.environment) = (submission, source, environment)
      (self.evidence, self.bundleID, self.selected) = (evidence, bundleID, selected)
      (self.warnings, self.exchanges, self.lookAgainAt) = (warnings, exchanges, lookAgainAt)
      self.worker = worker
    }
  }

  /// A recorded submission with everything that its answer shows, as of the commit.
  package struct RecordedSubmission: Sendable {
    package let recording: Recording
    package let outcome: SubmissionOutcome
    package let holdings: AccountHoldings
    package let order: StoredOrder?
  }

  /// Records a verified submission: evidence, claims, decisions, holdings, orders and the outcome,
  /// in one database transaction.
  ///
  /// A server and a worker may have verified one submission at the same time. Apple's answers are
  /// evidence either way; but the submission claims once, and keeps the answer that it was verified
  /// with. A rejection, though, gives way: Apple has vouched for the receipt.
  ///
  /// - Parameter new: A submission that has just arrived, and is stored in the same transaction; nil
  ///   for a stored one.
  /// - Returns: Nil if the submission was verified before, by another process.
  /// - Throws: Any error about a new submission leaves it to be stored.
  package func record(
    _ verified: VerifiedSubmission, storing new: NewSubmission? = nil, at now: Timestamp,
    terms: AccessTerms
  ) async throws -> RecordedSubmission? {
    do {
      return try await recordOnce(verified, storing: new, at: now, terms: terms)
    } catch let error as MergedMeanwhile {
      guard new == nil else { throw error }
      // Read again, it belongs to the other account; merges never form a circle.
      guard let submission = try await self.submission(verified.submission.id) else { return nil }
      var verified = verified
      verified.submission = submission
      return try await record(verified, at: now, terms: terms)
    }
  }

  private struct MergedMeanwhile: Error {}

  private func recordOnce(
    _ verified: VerifiedSubmission, storing new: NewSubmission?, at now: Timestamp,
    terms: AccessTerms
  ) async throws -> RecordedSubmission? {
    let submission = verified.submission
    let exchanges = verified.exchanges.map(NewExchange.init)
    // Two round trips: everything that is read, then everything that is written and answered.
    return try await database.withTransaction { transaction in
      let (originals, evidence, stored, (orders, sender)) = try await recorder.lock(
        linesOf: verified.evidence,
        before: new == nil
          ? LockedSubmission.query(submission.id)
          : Query([]).map {
            LockedSubmission(
              account: submission.account, status: .pending, retryAt: nil, attempts: 0)
          },
        after: Query(SubmittedOrders.query(for: verified), LockedSender.query(submission)),
        in: transaction)
      guard let stored else {
        await transaction.rollBack()
        return nil
      }
      guard sender.known?.mergedInto == nil else { throw MergedMeanwhile() }
      if new != nil, sender.isErased { throw LedgerError.erasedAccount(submission.accountID) }
      // Apple's answer about an erased person's purchases is evidence without a claim; nothing else
      // of it is kept or published.
      let claims = (stored.isOpen || stored.status == .rejected) && !sender.isErased
      let recording = try await recorder.load(
        verified.arrival(evidence, claims: claims), on: originals, knowing: sender.accounts,
        in: transaction
      ).decide(at: now)
      let account = sender.account(after: stored.attempts, recording)
      let affected = try await recorder.loadAffected(
        by: recording, submitted: claims ? orders : nil, terms: terms, at: now,
        knowing: sender.isErased ? [] : [account], in: transaction)
      var plan = try recorder.plan(recording, affected, terms: terms, at: now, sealing: !claims)
      let exchanges = try await ExchangeLog.of(submission: submission.id).insert(
        sender.isErased ? [] : exchanges, after: stored.attempts, in: transaction)
      plan.writes +=
        verified.pollTargets(in: recording) + exchanges
        + ProvisionalGrant.replace([], of: submission, after: stored.attempts, at: now)
      announce(plan.channels, recording, after: transaction)
      guard claims else {
        plan.writes += Self.keepDecision(of: submission, by: sender, at: now)
        try await transaction.commit(with: plan.statements)
        return nil
      }
      let outcome = SubmissionOutcome(recording, affected.orders, of: verified, terms: terms)
      plan.writes +=
        (try new.map { try Self.insert($0, decided: (verified, outcome, now)) }
          ?? [Self.close(verified, outcome, at: now)])
        + (new == nil || verified.lookAgainAt != nil ? Self.job(of: verified, at: now) : [])
      plan.seals.append(
        AccountChain.seal(
          submission: submission.id, of: stored.account, recording: plan.heads))
      let order = try await transaction.commit(
        with: plan.statements,
        reading: outcome.orderID.map {
          StoredOrder.query($0, of: submission.account, lifetime: orderLifetime)
        } ?? Query([]).map { nil })
      return RecordedSubmission(
        recording: recording, outcome: outcome, holdings: account.held, order: order)
    }
  }

  /// Records that Apple, or the check of its answer, rejects a submission.
  package func reject(
    _ submission: Submission, because problem: SubmissionProblem,
    exchanges: [SubmissionExchange], terms: AccessTerms, at now: Timestamp
  ) async throws {
    try await update(
      submission, exchanges: exchanges, terms: terms, at: now, reading: Query([])
    ) { stored, _ in
      guard stored.status == .pending else {
        // Only a named transaction was looked for: the submission stays verified.
        let ending: SQL = """
          UPDATE tenure.submission SET retry_at = NULL, attempts = attempts + 1
          WHERE submission_id = \(submission.id)
          """
        return ([ending, Job.delete(.verifySubmission(submission.id))], [])
      }
      let rejection: SQL = """
        UPDATE tenure.submission SET status = 'rejected', decided_at = \(now), retry_at = NULL,
          attempts = attempts + 1, problem = \(problem.code), problem_detail = \(problem.detail),
          apple_status = \(problem.appleStatus)
        WHERE submission_id = \(submission.id)
        """
      return (
        [
          rejection,
          AccountChain.seal(submission: submission.id, of: stored.account).statement,
          Job.delete(.verifySubmission(submission.id)),
        ], []
      )
    }
  }

  /// Records that Apple could not be reached, and the next attempt.
  ///
  /// - Parameter provisional: The submitter's provisional access until then; it replaces earlier access.
  package func postpone(
    _ submission: Submission, until retryAt: Timestamp, because problem: SubmissionProblem,
    exchanges: [SubmissionExchange], provisional: [ProvisionalGrant] = [], worker: String?,
    terms: AccessTerms, at now: Timestamp
  ) async throws {
    try await update(
      submission, exchanges: exchanges, terms: terms, at: now,
      reading: ProvisionalGrant.rivals(of: submission, for: provisional, at: now)
    ) { stored, rivals in
      let postponement: SQL = """
        UPDATE tenure.submission SET retry_at = \(retryAt), attempts = attempts + 1,
          problem = \(problem.code), problem_detail = \(problem.detail),
          apple_status = \(problem.appleStatus)
        WHERE submission_id = \(submission.id)
        """
      let job = Job.reschedule(
        .verifySubmission(submission.id), of: worker, at: retryAt, because: problem.detail)
      let isPending = stored.status == .pending
      return (
        [postponement, job], isPending ? provisional.filter { !rivals.contains($0.line) } : []
      )
    }
    notifier.notify(forJobAt: retryAt, now: now)
  }

  /// Changes an open submission, and publishes the change of its account's provisional access.
  ///
  /// A submission that was decided in the meantime stays as it is, but the exchanges are kept. One
  /// that was stored while its account was being erased is erased.
  ///
  /// - Parameter change: Returns its statements and the new provisional access.
  private func update<Value: Sendable>(
    _ submission: Submission, exchanges: [SubmissionExchange], terms: AccessTerms,
    at now: Timestamp, reading query: Query<Value>,
    with change: @Sendable (LockedSubmission, Value) -> ([SQL], grants: [ProvisionalGrant])
  ) async throws {
    let exchanges = exchanges.map(NewExchange.init)
    try await database.withTransaction { transaction in
      let (stored, value, sender) = try await transaction.read(
        LockedSubmission.query(submission.id), query, LockedSender.query(submission))
      guard let stored else { return }
      let statements = try await ExchangeLog.of(submission: submission.id).insert(
        sender.isErased ? [] : exchanges, after: stored.attempts, in: transaction)
      guard stored.isOpen, !sender.isErased else {
        try await transaction.commit(
          with: statements + Self.keepDecision(of: submission, by: sender, at: now))
        return
      }
      let (changes, grants) = change(stored, value)
      var account = sender.account(after: stored.attempts)
      account.held.grants += grants.map { $0.grant(of: submission) }
      self.changes.note([submission.accountID], in: transaction)
      let newEvents = AccountEvents(account, terms: terms, at: now)
      let consequences = Outbox(
        [newEvents], rescheduling: newEvents.changesPublished || !grants.isEmpty ? [newEvents] : [],
        at: now)
      announce(consequences.channels, after: transaction)
      try await transaction.commit(
        with: statements + changes
          + ProvisionalGrant.replace(grants, of: submission, after: stored.attempts, at: now)
          + consequences.statements)
    }
  }

  // MARK: Statements

  private static func close(
    _ verified: VerifiedSubmission, _ outcome: SubmissionOutcome, at now: Timestamp
  ) throws -> SQL {
    """
    UPDATE tenure.submission SET status = 'verified', environment = \(verified.environment),
      decided_at = \(now), retry_at = \(verified.lookAgainAt), attempts = attempts + 1,
      problem = NULL, problem_detail = NULL, apple_status = NULL, outcome = \(try outcome.text)
    WHERE submission_id = \(verified.submission.id)
    """
  }

  /// Counts an attempt without a result; erases a submission that was stored while its account was
  /// being erased.
  private static func keepDecision(
    of submission: Submission, by sender: LockedSender, at now: Timestamp
  ) -> [SQL] {
    let count: SQL = """
      UPDATE tenure.submission SET attempts = attempts + 1
      WHERE submission_id = \(submission.id)
      """
    return [count]
      + (sender.isErased ? [AccountStore.eraseSubmissions(of: submission.account, at: now)] : [])
  }

  /// Ends the submission's job, or reschedules it.
  private static func job(of verified: VerifiedSubmission, at now: Timestamp) -> [SQL] {
    let key = Job.Key.verifySubmission(verified.submission.id)
    guard let lookAgainAt = verified.lookAgainAt else { return [Job.delete(key)] }
    // A rejection has removed the job.
    return [
      Job.insert(key, runAt: lookAgainAt, at: now),
      Job.reschedule(
        key, of: verified.worker, at: lookAgainAt,
        because: "The submitted transaction is not in Apple's response or can't be parsed."),
    ]
  }
}

/// A locked submission, which only one process decides.
private struct LockedSubmission: Sendable {
  /// The account that sent it.
  var account: AccountKey
  var status: Submission.Status
  var retryAt: Timestamp?
  /// How often Apple was asked; before the first time nothing was granted provisionally.
  var attempts: Int

  var isOpen: Bool { Submission.isOpen(status, retryAt: retryAt) }

  static func query(_ id: UUID) -> Query<LockedSubmission?> {
    Query(
      """
      SELECT account_key, status, retry_at, attempts FROM tenure.submission
      WHERE submission_id = \(id)
      FOR UPDATE
      """
    ) { try $0.decode(into: LockedSubmission.init).first }
  }
}

/// The locked account of a submission, without the submission's provisional grants.
private struct LockedSender: Sendable {
  /// Empty if the account is unknown.
  let accounts: [AccountKey: KnownAccount]
  private let account: PublishedEntitlements

  var known: KnownAccount? { accounts[account.key] }
  var isErased: Bool { known?.erasedAt != nil }

  /// The key is read after the lock, so that an erasure has ended.
  static func query(_ submission: Submission) -> Query<LockedSender> {
    Query(
      Query(PublishedEntitlements.lock([submission.accountID])),
      PublishedEntitlements.query(
        [submission.account: submission.accountID], withoutGrantsOf: submission.id),
      KnownAccount.query([submission.account])
    ).map { _, published, known in LockedSender(accounts: known, account: published[0]) }
  }

  func account(after attempts: Int, _ recording: Recording? = nil) -> PublishedEntitlements {
    var account = account
    account.hasChangedGrants = attempts > 0
    if let recording { account.apply(recording) }
    return account
  }
}

extension SubmissionStore.VerifiedSubmission {
  func arrival(_ evidence: [Evidence], claims: Bool = true) -> EvidenceBatch {
    EvidenceBatch(
      evidence: evidence,
      claim: claims
        ? (account: submission.account, transactions: selected, receivedAt: submission.receivedAt)
        : nil,
      source: EntrySource(source, id: submission.id.text))
  }

  /// The ways to poll Apple about the original transactions later.
  fileprivate func pollTargets(in recording: Recording) -> [SQL] {
    let others = recording.originals.filter { _, original in
      let latest = original.rule.charges.latestCharge.flatMap { original.line.decisions[$0.id] }
      return latest?.decision.owner != submission.account
    }
    return PollTarget(
      bundleID: bundleID, receipt: source == .receipt ? .submission(submission.id) : nil
    ).upsert(for: evidence, ofOthers: Set(others.keys))
  }
}
