package import AppStore
package import Foundation
package import LedgerStorage
package import Logging
package import Subscriptions

/// What a submission does from arrival to answer; the server and the worker both go through it.
///
/// The receipt is stored durably before Apple is asked, and the answer is given only after
/// everything that follows from Apple's is committed. So a crash at any moment loses nothing: what
/// was stored and not decided is a job, and a worker finishes it.
package struct SubmissionIntake: Sendable {
  /// What a decision may take besides asking Apple: storing it, on a slow day of the database.
  private static let storingTime: Duration = .seconds(30)

  private let ledger: Ledger
  private let verifier: ReceiptVerifier
  private let catalogue: CatalogueCache
  private let entitlements: EntitlementReader
  private let sandboxAccess: SandboxAccess
  private let logger: Logger
  private let now: @Sendable () -> Timestamp

  /// Puts the way of a receipt together.
  ///
  /// - Parameters:
  ///   - ledger: Where everything is kept.
  ///   - verifier: What asks Apple.
  ///   - catalogue: What tells products' types.
  ///   - sandboxAccess: Whose sandbox purchases grant anything.
  ///   - logger: For what operators should know; never with a receipt in it.
  ///   - now: The clock by which submissions are received.
  package init(
    ledger: Ledger, verifier: ReceiptVerifier, catalogue: CatalogueCache,
    sandboxAccess: SandboxAccess, logger: Logger, now: @escaping @Sendable () -> Timestamp
  ) {
    self.ledger = ledger
    self.verifier = verifier
    self.catalogue = catalogue
    self.sandboxAccess = sandboxAccess
    entitlements = EntitlementReader(
      ledger: ledger, catalogue: catalogue, sandboxAccess: sandboxAccess)
    self.logger = logger
    self.now = now
  }

  /// Longer than a decision takes: after this time others may take over.
  package var longestDecision: Duration { verifier.longestVerification + Self.storingTime }

  /// Takes a submission from its arrival to its answer.
  package func submit(_ request: SubmissionRequest) async throws -> SubmissionAnswer {
    let receivedAt = now()
    let submission = try await ledger.store(
      NewSubmission(
        id: UUID.version7(at: receivedAt), accountID: request.accountID, receivedAt: receivedAt,
        receiptData: request.receiptData, transactionID: request.transactionID,
        orderID: request.orderID, isRestore: request.isRestore, bundleID: request.bundleID),
      retryAt: receivedAt + longestDecision)
    return try await decide(submission, receiptData: request.receiptData, worker: nil)
  }

  /// Asks Apple again about a stored submission.
  ///
  /// - Parameters:
  ///   - id: The submission.
  ///   - worker: Who has claimed its job; nil: nobody.
  /// - Returns: Nil if there is nothing left to do: it is decided, or its receipt was aged out.
  /// - Throws: What the database says.
  package func resume(_ id: UUID, worker: String? = nil) async throws -> SubmissionAnswer? {
    guard let submission = try await ledger.submission(id), submission.awaitsApple,
      let receiptData = try await ledger.receiptData(of: id)
    else { return nil }
    return try await decide(submission, receiptData: receiptData, worker: worker)
  }

  /// Tells where a submission stands; nil if there is none of this id.
  package func standing(of id: UUID) async throws -> SubmissionAnswer? {
    guard let submission = try await ledger.submission(id) else { return nil }
    return try await answer(about: submission)
  }

  // MARK: Deciding

  private func decide(
    _ submission: Submission, receiptData: String, worker: String?
  ) async throws -> SubmissionAnswer {
    let verification = await verifier.verify(receiptData, bundleID: submission.bundleID)
    let exchanges = verification.exchanges.map(SubmissionExchange.init)
    switch verification.verdict {
    case .verified(let receipt):
      return try await record(receipt, of: submission, exchanges: exchanges, worker: worker)
    case .rejected(let rejection):
      return try await reject(submission, SubmissionProblem(rejection), exchanges)
    case .retry(let retry):
      if let limit = retry.limit,
        limit.isReached(after: try await ledger.shortAnswers(to: submission.id), now: now())
      {
        return try await reject(submission, SubmissionProblem(limit.rejection), exchanges)
      }
      let problem = SubmissionProblem(
        code: "apple_unavailable", detail: retry.reason, appleStatus: retry.appleStatus)
      return try await postpone(
        submission, problem, exchanges, notBefore: retry.notBefore, worker: worker)
    case .misconfigured(let fault):
      // Ours to mend: the customer may well have paid, so nothing is refused meanwhile.
      logger.critical(
        "Apple refuses our configuration; submissions wait until it is mended",
        metadata: [
          "submission.id": "\(submission.id)", "problem": "\(fault.reason)",
          "appstore.status": "\(fault.appleStatus.map(String.init) ?? "none")",
        ])
      let problem = SubmissionProblem(
        code: "misconfigured", detail: fault.reason, appleStatus: fault.appleStatus)
      return try await postpone(submission, problem, exchanges, notBefore: nil, worker: worker)
    }
  }

  private func record(
    _ receipt: VerifiedReceipt, of submission: Submission, exchanges: [SubmissionExchange],
    worker: String?
  ) async throws -> SubmissionAnswer {
    let selection: ClaimSelection =
      if let id = submission.transactionID {
        .transaction(id)
      } else if submission.isRestore { .restore } else { .latest }
    let catalogue = catalogue.catalogue
    let selected = selection.select(
      from: receipt.records, receivedAt: submission.receivedAt, catalogue: catalogue
    ).map(\.key)
    let now = now()
    let lacksNamed =
      submission.transactionID.map { id in
        !receipt.records.contains { $0.key.transactionID == id }
      } ?? false
    // What was bought may be what can't be read: Apple's next answer or our next version can tell.
    let isUnclear = selected.isEmpty && !receipt.unreadable.isEmpty
    let looksOn = now < submission.receivedAt + RetrySchedule.lookingForTransaction
    let recorded = try await ledger.record(
      Ledger.VerifiedSubmission(
        submission: submission, environment: receipt.environment, evidence: receipt.evidence,
        selected: selected, exchanges: exchanges,
        lookAgainAt: (lacksNamed || isUnclear) && looksOn
          ? RetrySchedule.next(afterAttempts: submission.attempts + 5, at: now) : nil,
        worker: worker),
      at: now,
      grantsAccess: { [sandboxAccess] in sandboxAccess.grants($1, to: $0) },
      outcome: { [sandboxAccess] result in
        let outcome = SubmissionOutcome(
          result, of: submission, selected: selected,
          isEmpty: receipt.records.isEmpty && receipt.unreadable.isEmpty, lacksNamed: lacksNamed,
          catalogue: catalogue, sandboxAccess: sandboxAccess)
        return Ledger.StoredOutcome(
          text: String(decoding: try JSONEncoder().encode(outcome), as: UTF8.self),
          order: outcome.orderID, value: (outcome: outcome, recording: result.recording))
      })
    guard let recorded else {
      // Another process was faster: its decision is the answer.
      return try await standingOrGone(submission.id)
    }
    let (outcome, recording) = recorded.value
    log(receipt, of: submission, outcome: outcome)
    return verified(
      submission, environment: receipt.environment, outcome: outcome,
      families: recording.families, order: recorded.order, holding: recorded.holdings)
  }

  private func reject(
    _ submission: Submission, _ problem: SubmissionProblem, _ exchanges: [SubmissionExchange]
  ) async throws -> SubmissionAnswer {
    logger.info(
      "A submission is rejected",
      metadata: ["submission.id": "\(submission.id)", "problem": "\(problem.code)"])
    try await ledger.reject(submission, because: problem, exchanges: exchanges, at: now())
    return try await standingOrGone(submission.id)
  }

  private func postpone(
    _ submission: Submission, _ problem: SubmissionProblem, _ exchanges: [SubmissionExchange],
    notBefore: Timestamp?, worker: String?
  ) async throws -> SubmissionAnswer {
    let retryAt = RetrySchedule.next(
      afterAttempts: submission.attempts + 1, at: now(), notBefore: notBefore)
    logger.notice(
      "A submission waits for Apple",
      metadata: [
        "submission.id": "\(submission.id)", "problem": "\(problem.detail)",
        "retry_at": "\(retryAt)",
      ])
    try await ledger.postpone(
      submission, until: retryAt, because: problem, exchanges: exchanges, worker: worker)
    return try await standingOrGone(submission.id)
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
      guard let retryAt = submission.retryAt else {
        return .pending(id: submission.id, retryAt: nil, problem: .givenUp(submission))
      }
      return .pending(id: submission.id, retryAt: retryAt, problem: submission.problem)
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
      return verified(
        submission, environment: environment, outcome: outcome, families: families, order: order,
        holding: try await ledger.holdings(of: submission.accountID))
    }
  }

  private func verified(
    _ submission: Submission, environment: Environment, outcome: SubmissionOutcome,
    families: [LineID: RecordedFamily], order: StoredOrder?, holding held: AccountHoldings
  ) -> SubmissionAnswer {
    let newlyOwned = Set(outcome.newlyOwned)
    return .verified(
      SubmissionAnswer.Verified(
        id: submission.id, environment: environment,
        transactions: outcome.selected.compactMap { key in
          families[key.line].flatMap { family in
            // A correction may have given it to another account since.
            let owner = family.charge(of: key)?.recorded.decision.owner
            return ChargeReport(
              of: key, in: family, catalogue: catalogue.catalogue,
              isNewlyOwned: newlyOwned.contains(key) && owner == submission.account)
          }
        },
        order: order?.answered(at: now()), warnings: outcome.warnings,
        entitlements: entitlements.entitlements(
          of: submission.accountID, holding: held, at: now())))
  }

  private func log(
    _ receipt: VerifiedReceipt, of submission: Submission, outcome: SubmissionOutcome
  ) {
    logger.info(
      "A submission is verified",
      metadata: [
        "submission.id": "\(submission.id)", "environment": "\(receipt.environment.rawValue)",
        "transactions": "\(receipt.records.count)", "selected": "\(outcome.selected.count)",
        "newly_owned": "\(outcome.newlyOwned.count)",
        "warnings": "\(outcome.warnings.map(\.rawValue).joined(separator: " "))",
      ])
    for record in receipt.unreadable {
      logger.log(
        level: outcome.selected.isEmpty ? .error : .warning,
        "A record of Apple's answer can't be read; it stands in the exchange",
        metadata: ["submission.id": "\(submission.id)", "record": "\(record)"])
    }
  }
}

extension SubmissionProblem {
  /// What is told of a submission that is still pending and about which Apple is asked no more.
  fileprivate static func givenUp(_ submission: Submission) -> SubmissionProblem {
    let last = submission.problem.map { " What happened last: \($0.detail)" } ?? ""
    return SubmissionProblem(
      code: submission.problem?.code ?? "given_up",
      detail: "It was given up after \(RetrySchedule.patience.components.seconds / 86_400) days of "
        + "trying, and is stored. An operator can start it again: "
        + "\(Job.Task.verifySubmission(submission.id).restartStatement).\(last)",
      appleStatus: submission.problem?.appleStatus)
  }

  fileprivate init(_ rejection: ReceiptRejection) {
    self.init(
      code: rejection.code.rawValue, detail: rejection.reason,
      appleStatus: rejection.appleStatus)
  }
}

extension SubmissionExchange {
  fileprivate init(_ exchange: Exchange) {
    self.init(
      endpoint: exchange.url, askedAt: exchange.startedAt, duration: exchange.duration,
      httpStatus: exchange.httpStatus, answer: exchange.response.map(\.body),
      fault: exchange.fault)
  }
}
