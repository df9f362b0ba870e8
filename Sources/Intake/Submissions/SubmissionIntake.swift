package import AppStore
package import CoreMetrics
package import Foundation
package import LedgerStorage
package import Logging
package import Subscriptions

/// What a submission does from arrival to answer; the server and the worker both go through it.
///
/// Whatever it is, it is stored durably before it is verified, and the answer is given only after
/// everything that follows is committed. So a crash at any moment loses nothing: what was stored
/// and not decided is a job, and a worker finishes it. A receipt may have to wait for Apple; signed
/// data is decided at once, and its job does something only after a crash.
package struct SubmissionIntake: Sendable {
  /// What a decision may take besides verifying: storing it, on a slow day of the database.
  private static let storingTime: Duration = .seconds(30)

  private let ledger: Ledger
  private let verifier: SubmissionVerifier
  private let catalogue: CatalogueCache
  private let entitlements: EntitlementReader
  private let sandboxAccess: SandboxAccess
  private let provisionalAccess: ProvisionalAccess?
  private let logger: Logger
  private let metrics: SubmissionMetrics
  private let now: @Sendable () -> Timestamp

  /// Puts the way of a receipt together.
  ///
  /// - Parameters:
  ///   - ledger: Where everything is kept.
  ///   - receipts: What asks Apple about receipts.
  ///   - signedData: What verifies signatures.
  ///   - catalogue: What tells products' types.
  ///   - sandboxAccess: Whose sandbox purchases grant anything.
  ///   - provisionalAccess: What is granted while Apple can't be asked; nil: nothing.
  ///   - logger: For what operators should know; never with a receipt in it.
  ///   - metrics: Where it is counted what came of them.
  ///   - now: The clock by which submissions are received.
  package init(
    ledger: Ledger, receipts: ReceiptVerifier, signedData: SignedDataVerifier,
    catalogue: CatalogueCache, sandboxAccess: SandboxAccess,
    provisionalAccess: ProvisionalAccess? = nil, logger: Logger,
    metrics: any MetricsFactory = MetricsSystem.factory,
    now: @escaping @Sendable () -> Timestamp
  ) {
    self.ledger = ledger
    verifier = SubmissionVerifier(receipts: receipts, signedData: signedData)
    self.catalogue = catalogue
    self.sandboxAccess = sandboxAccess
    self.provisionalAccess = provisionalAccess
    entitlements = EntitlementReader(
      ledger: ledger, catalogue: catalogue, sandboxAccess: sandboxAccess)
    self.logger = logger
    self.metrics = SubmissionMetrics(metrics)
    self.now = now
  }

  /// By what it is judged now what accounts may use.
  private var terms: AccessTerms { catalogue.terms(sandboxAccess) }

  /// Longer than a decision takes: after this time others may take over.
  package var longestDecision: Duration {
    verifier.receipts.longestVerification + Self.storingTime
  }

  /// Takes a submission from its arrival to its answer.
  package func submit(_ request: SubmissionRequest) async throws -> SubmissionAnswer {
    let receivedAt = now()
    let submission = try await ledger.store(
      NewSubmission(
        id: UUID.version7(at: receivedAt), accountID: request.accountID, receivedAt: receivedAt,
        payload: request.payload, transactionID: request.transactionID,
        orderID: request.orderID, isRestore: request.isRestore, bundleID: request.bundleID),
      retryAt: receivedAt + verifier.longestVerification(of: request.payload) + Self.storingTime)
    return try await decide(submission, payload: request.payload, worker: nil)
  }

  /// Takes up a stored submission that is still open.
  ///
  /// - Parameters:
  ///   - id: The submission.
  ///   - worker: Who has claimed its job; nil: nobody.
  /// - Returns: Nil if there is nothing left to do: it is decided, or what was sent was aged out.
  /// - Throws: What the database says.
  package func resume(_ id: UUID, worker: String? = nil) async throws -> SubmissionAnswer? {
    guard let submission = try await ledger.submission(id), submission.isOpen,
      let payload = try await ledger.payload(of: id)
    else { return nil }
    return try await decide(submission, payload: payload, worker: worker)
  }

  /// Tells where a submission stands; nil if there is none of this id.
  package func standing(of id: UUID) async throws -> SubmissionAnswer? {
    guard let submission = try await ledger.submission(id) else { return nil }
    return try await answer(about: submission)
  }

  // MARK: Deciding

  private func decide(
    _ submission: Submission, payload: SubmissionPayload, worker: String?
  ) async throws -> SubmissionAnswer {
    let verification = await verifier.verify(payload, of: submission)
    let exchanges = verification.exchanges
    switch verification.verdict {
    case .verified(let evidence):
      metrics.count(.verified, of: payload)
      return try await record(evidence, of: submission, exchanges: exchanges, worker: worker)
    case .rejected(let problem):
      metrics.count(.rejected, of: payload)
      return try await reject(submission, problem, exchanges)
    case .retry(let retry):
      if let limit = retry.limit,
        limit.isReached(after: try await ledger.shortAnswers(to: submission.id), now: now())
      {
        metrics.count(.rejected, of: payload)
        return try await reject(submission, SubmissionProblem(limit.rejection), exchanges)
      }
      metrics.count(.postponed, of: payload)
      let problem = SubmissionProblem(
        code: "apple_unavailable", detail: retry.reason, appleStatus: retry.appleStatus)
      return try await postpone(
        submission, payload, problem, exchanges, notBefore: retry.notBefore, worker: worker)
    case .misconfigured(let fault):
      metrics.count(.misconfigured, of: payload)
      // Ours to mend: the customer may well have paid, so nothing is refused meanwhile.
      logger.critical(
        "Apple refuses our configuration; submissions wait until it is mended",
        metadata: [
          "submission.id": "\(submission.id)", "problem": "\(fault.reason)",
          "appstore.status": "\(fault.appleStatus.map(String.init) ?? "none")",
        ])
      let problem = SubmissionProblem(
        code: "misconfigured", detail: fault.reason, appleStatus: fault.appleStatus)
      return try await postpone(
        submission, payload, problem, exchanges, notBefore: nil, worker: worker)
    }
  }

  private func record(
    _ verified: VerifiedEvidence, of submission: Submission, exchanges: [SubmissionExchange],
    worker: String?
  ) async throws -> SubmissionAnswer {
    let catalogue = catalogue.catalogue
    let now = now()
    let named = try await verified.transaction(namedBy: submission, in: ledger)
    let lacksNamed = submission.transactionID != nil && named == nil
    let isRecent = now < submission.receivedAt + RetrySchedule.lookingForTransaction
    let looksOn = verified.canGrow && isRecent
    // A transaction that Apple has not listed for a day may be named by mistake, and the rest of
    // the receipt was paid for all the same.
    let awaitsNamed = lacksNamed && (looksOn || !verified.canGrow)
    let selected =
      awaitsNamed
      ? [] : verified.selected(by: submission, named: named, catalogue: catalogue)
    let leavesOutLater =
      !awaitsNamed && verified.leavesOutLaterPurchases(of: submission, named: named)
    // Apple's next answer, or a newer version of this program, may be readable.
    let isUnclear =
      verified.hidesPurchase || selected.isEmpty && !verified.unreadable.isEmpty
    var warnings: Set<SubmissionWarning> = []
    if verified.records.isEmpty, verified.unreadable.isEmpty { warnings.insert(.noTransactions) }
    if lacksNamed { warnings.insert(.transactionNotInReceipt) }
    if isUnclear { warnings.insert(.unreadableTransaction) }
    if leavesOutLater { warnings.insert(.purchasedLater) }
    let recorded = try await ledger.record(
      Ledger.VerifiedSubmission(
        submission: submission, source: verified.source, environment: verified.environment,
        evidence: verified.evidence, bundleID: verified.bundleID, selected: selected,
        warnings: warnings, exchanges: exchanges,
        lookAgainAt: (lacksNamed || isUnclear) && looksOn || leavesOutLater && isRecent
          ? RetrySchedule.apple.next(afterAttempts: submission.attempts + 5, at: now) : nil,
        worker: worker),
      at: now, terms: terms)
    guard let recorded else {
      // Another process was faster: its decision is the answer.
      return try await standingOrGone(submission.id)
    }
    log(verified, of: submission, outcome: recorded.outcome)
    return answer(
      to: submission, in: verified.environment, outcome: recorded.outcome,
      families: recorded.recording.families, order: recorded.order, holding: recorded.holdings)
  }

  private func reject(
    _ submission: Submission, _ problem: SubmissionProblem, _ exchanges: [SubmissionExchange]
  ) async throws -> SubmissionAnswer {
    logger.info(
      "A submission is rejected",
      metadata: [
        "submission.id": "\(submission.id)", "problem": "\(problem.code)",
        "reason": "\(problem.detail)",
      ])
    try await ledger.reject(
      submission, because: problem, exchanges: exchanges, terms: terms, at: now())
    return try await standingOrGone(submission.id)
  }

  private func postpone(
    _ submission: Submission, _ payload: SubmissionPayload, _ problem: SubmissionProblem,
    _ exchanges: [SubmissionExchange], notBefore: Timestamp?, worker: String?
  ) async throws -> SubmissionAnswer {
    let now = now()
    let provisional = try await provisionalGrants(for: submission, payload, at: now)
    let retryAt = RetrySchedule.apple.next(
      afterAttempts: submission.attempts + 1, at: now, notBefore: notBefore)
    logger.notice(
      "A submission waits for Apple",
      metadata: [
        "submission.id": "\(submission.id)", "problem": "\(problem.detail)",
        "retry_at": "\(retryAt)",
      ])
    try await ledger.postpone(
      submission, until: retryAt, because: problem, exchanges: exchanges, provisional: provisional,
      worker: worker, terms: terms, at: now)
    return try await standingOrGone(submission.id)
  }

  /// What the submitter may use until Apple can be asked, by the receipt's own signature.
  ///
  /// Worked out anew at every attempt, for what the ledger knows may have changed. That Apple is
  /// down or that our configuration is wrong is the same to a customer who has paid.
  private func provisionalGrants(
    for submission: Submission, _ payload: SubmissionPayload, at now: Timestamp
  ) async throws -> [ProvisionalGrant] {
    guard let provisionalAccess, submission.status == .pending, case .receipt(let data) = payload
    else { return [] }
    let catalogue = catalogue.catalogue
    let proof: ProvisionalAccess.Proof?
    do {
      proof = try provisionalAccess.proof(
        in: data, for: submission, catalogue: catalogue, at: now)
    } catch {
      logger.info(
        "A receipt that waits for Apple gives no provisional access",
        metadata: ["submission.id": "\(submission.id)", "reason": "\(error)"])
      return []
    }
    guard let proof, sandboxAccess.grants(proof.evidence.environment, to: submission.accountID)
    else { return [] }
    let recording = try await ledger.rehearse(proof.arrival(of: submission), at: now)
    return proof.grants(
      from: recording, to: submission.account, catalogue: catalogue, at: now)
  }

  // MARK: Answering

  private func standingOrGone(_ id: UUID) async throws -> SubmissionAnswer {
    guard let answer = try await standing(of: id) else {
      throw LedgerError.unknownSubmission(id)
    }
    return answer
  }

  private func answer(about submission: Submission) async throws -> SubmissionAnswer {
    switch submission.status {
    case .pending:
      let usable: [Entitlement]? =
        provisionalAccess == nil
        ? nil : try await entitlements.entitlements(of: submission.accountID, now: now())
      return .pending(
        id: submission.id, retryAt: submission.retryAt,
        problem: submission.retryAt == nil ? .givenUp(submission) : submission.problem,
        entitlements: usable)
    case .rejected:
      return .rejected(
        id: submission.id,
        problem: submission.problem
          ?? SubmissionProblem(code: "receipt_rejected", detail: "It was rejected."))
    case .verified:
      guard let stored = submission.outcome, let environment = submission.environment else {
        preconditionFailure("A verified submission has an outcome and an environment.")
      }
      let outcome = try JSONDecoder().decode(SubmissionOutcome.self, from: Data(stored.utf8))
      var families: [LineID: RecordedFamily] = [:]
      for line in Set(outcome.selected.map(\.line)) where families[line] == nil {
        families[line] = try await ledger.family(of: line)
      }
      let order: StoredOrder? =
        if let id = outcome.orderID {
          try await ledger.order(id, of: submission.account)
        } else { nil }
      return answer(
        to: submission, in: environment, outcome: outcome, families: families, order: order,
        holding: try await ledger.holdings(of: submission.accountID))
    }
  }

  private func answer(
    to submission: Submission, in environment: Environment, outcome: SubmissionOutcome,
    families: [LineID: RecordedFamily], order: StoredOrder?, holding held: AccountHoldings
  ) -> SubmissionAnswer {
    let newlyOwned = Set(outcome.newlyOwned)
    return .verified(
      SubmissionAnswer.Verified(
        id: submission.id, environment: environment,
        transactions: outcome.selected.compactMap { key in
          families[key.line].flatMap { family in
            // A correction may have given it to another account, or its delivery may have been
            // acknowledged since.
            let owner = family.charge(of: key)?.recorded.decision.owner
            return ChargeReport(
              of: key, in: family, catalogue: catalogue.catalogue,
              isNewlyOwned: newlyOwned.contains(key) && owner == submission.account
                && !family.isDelivered(key))
          }
        },
        order: order?.answered(at: now()), warnings: outcome.warnings,
        entitlements: entitlements.entitlements(
          of: submission.accountID, holding: held, at: now())))
  }

  private func log(
    _ verified: VerifiedEvidence, of submission: Submission, outcome: SubmissionOutcome
  ) {
    logger.info(
      "A submission is verified",
      metadata: [
        "submission.id": "\(submission.id)", "source": "\(verified.source.rawValue)",
        "environment": "\(verified.environment.rawValue)",
        "transactions": "\(verified.records.count)", "selected": "\(outcome.selected.count)",
        "newly_owned": "\(outcome.newlyOwned.count)",
        "warnings": "\(outcome.warnings.map(\.rawValue).joined(separator: " "))",
      ])
    for record in verified.unreadable {
      logger.log(
        level: outcome.selected.isEmpty ? .error : .warning,
        "A record of Apple's answer can't be read; it stands in the exchange",
        metadata: ["submission.id": "\(submission.id)", "record": "\(record)"])
    }
  }
}

extension RecordedFamily {
  /// Whether the delivery of a transaction's charge was acknowledged.
  fileprivate func isDelivered(_ transaction: TransactionKey) -> Bool {
    charge(of: transaction).map { deliveries[$0.charge.id] != nil } ?? false
  }
}

extension SubmissionProblem {
  /// What is told of a submission that is still pending and about which Apple is asked no more.
  fileprivate static func givenUp(_ submission: Submission) -> SubmissionProblem {
    let last = submission.problem.map { " What happened last: \($0.detail)" } ?? ""
    let days = RetrySchedule.patienceWithApple / .days(1)
    return SubmissionProblem(
      code: submission.problem?.code ?? "given_up",
      detail: "It was given up after \(Int(days)) days of trying, and is stored. An operator can "
        + "start it again: tenure jobs retry \(submission.id.uuidString.lowercased()).\(last)",
      appleStatus: submission.problem?.appleStatus)
  }
}
