import AppStore
package import Foundation
import JSONText
package import LedgerStorage
import Logging
package import Subscriptions

/// Processes submissions from their arrival to the answer, in the server and the worker.
///
/// A receipt is stored with a job before Apple is asked; signed data with the decision in one
/// transaction, or with a job if that fails. Each is answered after its consequences are committed,
/// so that a crash loses nothing that was accepted.
package struct SubmissionIntake: IntakePart {
  /// The time for storing a decision; generous, for a slow database.
  private static let storingTime: Duration = .seconds(30)

  let services: IntakeServices
  private let entitlements: EntitlementReader
  private let provisionalAccess: ProvisionalAccess?
  private let metrics = SubmissionMetrics()

  /// Without `provisionalAccess` nothing is granted while Apple can't be asked.
  package init(_ services: IntakeServices, provisionalAccess: ProvisionalAccess?) {
    self.services = services
    self.provisionalAccess = provisionalAccess
    entitlements = EntitlementReader(
      ledger: services.ledger, catalogue: services.catalogue, sandboxAccess: services.sandboxAccess)
  }

  /// The time after which a worker may take over.
  package func longestDecision(on payload: SubmissionPayload) -> Duration {
    switch payload {
    case .receipt: services.receipts.longestVerification + Self.storingTime
    // Verified in milliseconds.
    case .signedData: Self.storingTime
    }
  }

  package func submit(_ request: SubmissionRequest) async throws -> SubmissionAnswer {
    let receivedAt = now()
    let new = try await ledger.submissions.new(
      id: UUID.version7(at: receivedAt), accountID: request.accountID, receivedAt: receivedAt,
      payload: request.payload, chains: services.signedData.verifiedHeaders,
      transactionID: request.transactionID, orderID: request.orderID, isRestore: request.isRestore,
      bundleID: request.bundleID, retryAt: receivedAt + longestDecision(on: request.payload))
    guard case .signedData(let transactions, let renewalInfo) = new.payload else {
      return try await decide(ledger.submissions.store(new), new.payload, worker: nil)
    }
    let verdict = await services.signedData.verify(
      transactions, renewalInfo, bundleID: request.bundleID)
    if case .success(let evidence) = verdict {
      do {
        let answer = try await record(
          evidence, of: new.submission, exchanges: [], worker: nil, storing: new)
        metrics.count(.verified, of: new.payload)
        return answer
      } catch {
        logger.warning(
          "Recording a submission failed; it is stored and tried again",
          metadata: ["submission.id": "\(new.submission.id.text)", "error": "\(error)"])
      }
    }
    return try await apply(verdict, on: ledger.submissions.store(new), new.payload, worker: nil)
  }

  /// Verifies a stored submission again, for the worker with its job; nil if decided or pruned.
  package func resume(_ id: UUID, worker: String? = nil) async throws -> SubmissionAnswer? {
    guard let submission = try await ledger.submissions.submission(id), submission.isOpen,
      let payload = try await ledger.submissions.payload(of: id)
    else { return nil }
    return try await decide(submission, payload, worker: worker)
  }

  package func status(of id: UUID) async throws -> SubmissionAnswer? {
    guard let submission = try await ledger.submissions.submission(id) else { return nil }
    return try await answer(about: submission)
  }

  // MARK: Deciding

  private func decide(
    _ submission: Submission, _ payload: SubmissionPayload, worker: String?
  ) async throws -> SubmissionAnswer {
    let data: String
    switch payload {
    case .receipt(let receipt): data = receipt
    case .signedData(let transactions, let renewalInfo):
      let verdict = await services.signedData.verify(
        transactions, renewalInfo, bundleID: submission.bundleID)
      return try await apply(verdict, on: submission, payload, worker: worker)
    }
    if let problem = SubmissionProblem(notReceipt: data) {
      return try await apply(.failure(problem), on: submission, payload, worker: worker)
    }
    let verification = await services.receipts.verify(data, bundleID: submission.bundleID)
    let exchanges = verification.exchanges.map(SubmissionExchange.init)
    let verdict: SubmissionVerdict
    switch verification.verdict {
    case .verified(let receipt): verdict = .success(VerifiedEvidence(receipt))
    case .rejected(let rejection): verdict = .failure(SubmissionProblem(rejection))
    case .retry(let retry):
      if let limit = retry.limit,
        limit.isReached(
          after: try await ledger.submissions.shortAnswers(to: submission.id), now: now())
      {
        verdict = .failure(SubmissionProblem(limit.rejection))
        break
      }
      metrics.count(.postponed, of: payload)
      let problem = SubmissionProblem(
        code: "apple_unavailable", detail: retry.reason, appleStatus: retry.appleStatus)
      return try await postpone(
        submission, payload, problem, exchanges, notBefore: retry.notBefore, worker: worker)
    case .misconfigured(let reason, let status):
      metrics.count(.misconfigured, of: payload)
      // Our fault, and the customer may well have paid, so nothing is rejected.
      logger.critical(
        "Apple rejects the configuration; submissions wait until it is fixed",
        metadata: [
          "submission.id": "\(submission.id.text)", "problem": "\(reason)",
          "appstore.status": "\(status.map(String.init) ?? "none")",
        ])
      let problem = SubmissionProblem(code: "misconfigured", detail: reason, appleStatus: status)
      return try await postpone(
        submission, payload, problem, exchanges, notBefore: nil, worker: worker)
    }
    return try await apply(verdict, on: submission, payload, exchanges, worker: worker)
  }

  private func apply(
    _ verdict: SubmissionVerdict, on submission: Submission, _ payload: SubmissionPayload,
    _ exchanges: [SubmissionExchange] = [], worker: String?
  ) async throws -> SubmissionAnswer {
    switch verdict {
    case .success(let evidence):
      metrics.count(.verified, of: payload)
      return try await record(evidence, of: submission, exchanges: exchanges, worker: worker)
    case .failure(let problem):
      metrics.count(.rejected, of: payload)
      return try await reject(submission, problem, exchanges)
    }
  }

  private func record(
    _ verified: VerifiedEvidence, of submission: Submission, exchanges: [SubmissionExchange],
    worker: String?, storing new: SubmissionStore.NewSubmission? = nil
  ) async throws -> SubmissionAnswer {
    let catalogue = services.catalogue.catalogue
    let now = now()
    let named = try await verified.transaction(namedBy: submission, in: ledger)
    let lacksNamed = submission.transactionID != nil && named == nil
    let isRecent = now < submission.receivedAt + RetrySchedule.lookingForTransaction
    let looksOn = verified.canGrow && isRecent
    // A transaction not listed for a day may have been named by mistake; the rest counts.
    let awaitsNamed = lacksNamed && (looksOn || !verified.canGrow)
    let selected =
      awaitsNamed
      ? [] : verified.selected(by: submission, named: named, catalogue: catalogue)
    let leavesOutLater =
      !awaitsNamed && verified.leavesOutLaterPurchases(of: submission, named: named)
    // Apple's next answer, or a newer version of Tenure, may be readable.
    let isUnclear = verified.hidesPurchase || selected.isEmpty && !verified.unreadable.isEmpty
    var warnings: Set<SubmissionWarning> = []
    if verified.records.isEmpty, verified.unreadable.isEmpty { warnings.insert(.noTransactions) }
    if lacksNamed { warnings.insert(.transactionNotInReceipt) }
    if isUnclear { warnings.insert(.unreadableTransaction) }
    if leavesOutLater { warnings.insert(.purchasedLater) }
    let recorded = try await ledger.submissions.record(
      SubmissionStore.VerifiedSubmission(
        submission: submission, source: verified.source, environment: verified.environment,
        evidence: verified.evidence, bundleID: verified.bundleID, selected: selected,
        warnings: warnings, exchanges: exchanges,
        lookAgainAt: (lacksNamed || isUnclear) && looksOn || leavesOutLater && isRecent
          ? RetrySchedule.apple.next(afterAttempts: submission.attempts + 5, at: now) : nil,
        worker: worker), storing: new, at: now, terms: terms)
    guard let recorded else {
      // Another process was faster.
      return try await existingStatus(submission.id)
    }
    log(verified, of: submission, outcome: recorded.outcome)
    return answer(
      to: submission, in: verified.environment, outcome: recorded.outcome,
      originals: recorded.recording.originals, order: recorded.order, holding: recorded.holdings)
  }

  private func reject(
    _ submission: Submission, _ problem: SubmissionProblem, _ exchanges: [SubmissionExchange]
  ) async throws -> SubmissionAnswer {
    logger.info(
      "Submission rejected",
      metadata: [
        "submission.id": "\(submission.id.text)", "problem": "\(problem.code)",
        "reason": "\(problem.detail)",
      ])
    try await ledger.submissions.reject(
      submission, because: problem, exchanges: exchanges, terms: terms, at: now())
    return try await existingStatus(submission.id)
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
      "Submission pending, will be retried",
      metadata: [
        "submission.id": "\(submission.id.text)", "problem": "\(problem.detail)",
        "retry_at": "\(retryAt)",
      ])
    try await ledger.submissions.postpone(
      submission, until: retryAt, because: problem, exchanges: exchanges, provisional: provisional,
      worker: worker, terms: terms, at: now)
    return try await existingStatus(submission.id)
  }

  /// The provisional grants until Apple can be asked, by the receipt's own signature.
  ///
  /// Computed at every attempt, since the ledger changes, and also while our settings are wrong.
  private func provisionalGrants(
    for submission: Submission, _ payload: SubmissionPayload, at now: Timestamp
  ) async throws -> [ProvisionalGrant] {
    guard let provisionalAccess, submission.status == .pending, case .receipt(let data) = payload
    else { return [] }
    let catalogue = services.catalogue.catalogue
    let proof: ProvisionalAccess.Proof?
    do {
      proof = try provisionalAccess.proof(in: data, for: submission, catalogue: catalogue, at: now)
    } catch {
      logger.info(
        "Pending receipt gives no provisional access",
        metadata: ["submission.id": "\(submission.id.text)", "reason": "\(error)"])
      return []
    }
    guard let proof,
      services.sandboxAccess.grants(proof.evidence.environment, to: submission.accountID)
    else { return [] }
    let recording = try await ledger.submissions.rehearse(
      SubmissionStore.VerifiedSubmission(
        submission: submission, source: proof.evidence.source,
        environment: proof.evidence.environment, evidence: proof.evidence.evidence,
        selected: proof.selected, exchanges: []), at: now)
    return proof.grants(from: recording, to: submission.account, catalogue: catalogue, at: now)
  }

  /// Asks Apple for the transactions of an order of production, by the ID in Apple's email to the
  /// customer.
  ///
  /// - Returns: Nil without a key for the App Store Server API; empty for another app's order.
  package func transactions(ofAppleOrder id: String) async throws -> [TransactionKey]? {
    guard let serverAPI else { return nil }
    var transactions: [TransactionKey] = []
    for app in services.apps.all {
      let answer = try await serverAPI.orderLookup(id, in: app.bundleID)
      transactions += answer.content.transactions.compactMap { $0.value?.record.key }
    }
    return transactions
  }

  // MARK: Answering

  private func existingStatus(_ id: UUID) async throws -> SubmissionAnswer {
    guard let answer = try await status(of: id) else {
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
          ?? SubmissionProblem(code: "receipt_rejected", detail: "The submission was rejected."))
    case .verified:
      guard let stored = submission.outcome, let environment = submission.environment else {
        preconditionFailure("A verified submission has an outcome and an environment.")
      }
      let outcome = try JSONDecoder().decode(SubmissionOutcome.self, from: Data(stored.utf8))
      var originals: [OriginalTransactionKey: RecordedOriginalTransaction] = [:]
      for line in Set(outcome.selected.map(\.line)) where originals[line] == nil {
        originals[line] = try await ledger.ownership.original(of: line)
      }
      let order: StoredOrder? =
        if let id = outcome.orderID {
          try await ledger.orders.order(id, of: submission.account)
        } else { nil }
      return answer(
        to: submission, in: environment, outcome: outcome, originals: originals, order: order,
        holding: try await ledger.holdings.holdings(of: submission.accountID))
    }
  }

  private func answer(
    to submission: Submission, in environment: Environment, outcome: SubmissionOutcome,
    originals: [OriginalTransactionKey: RecordedOriginalTransaction], order: StoredOrder?,
    holding held: AccountHoldings
  ) -> SubmissionAnswer {
    let newlyOwned = Set(outcome.newlyOwned)
    return .verified(
      SubmissionAnswer.Verified(
        id: submission.id, environment: environment,
        transactions: outcome.selected.compactMap { key in
          originals[key.line].flatMap { original in
            // Its owner may have been corrected, or its delivery acknowledged, since.
            let owner = original.charge(of: key)?.recorded.decision.owner
            return ChargeReport(
              of: key, in: original, catalogue: services.catalogue.catalogue,
              isNewlyOwned: newlyOwned.contains(key) && owner == submission.account
                && !original.isDelivered(key))
          }
        }, order: order?.answered(at: now()), warnings: outcome.warnings,
        entitlements: entitlements.entitlements(of: submission.accountID, holding: held, at: now()))
    )
  }

  private func log(
    _ verified: VerifiedEvidence, of submission: Submission, outcome: SubmissionOutcome
  ) {
    logger.info(
      "Submission verified",
      metadata: [
        "submission.id": "\(submission.id.text)", "source": "\(verified.source.rawValue)",
        "environment": "\(verified.environment.rawValue)",
        "transactions": "\(verified.records.count)", "selected": "\(outcome.selected.count)",
        "newly_owned": "\(outcome.newlyOwned.count)",
        "warnings": "\(outcome.warnings.map(\.rawValue).joined(separator: " "))",
      ])
    for record in verified.unreadable {
      logger.log(
        level: outcome.selected.isEmpty ? .error : .warning,
        "Unreadable record in Apple's answer; see the exchange",
        metadata: ["submission.id": "\(submission.id.text)", "record": "\(record)"])
    }
  }
}

extension RecordedOriginalTransaction {
  fileprivate func isDelivered(_ transaction: TransactionKey) -> Bool {
    charge(of: transaction).map { deliveries[$0.charge.id] != nil } ?? false
  }
}

extension SubmissionProblem {
  /// The problem of a pending submission whose retries have stopped.
  fileprivate static func givenUp(_ submission: Submission) -> SubmissionProblem {
    let last = submission.problem.map { " Last problem: \($0.detail)" } ?? ""
    let days = RetrySchedule.patienceWithApple / .days(1)
    return SubmissionProblem(
      code: submission.problem?.code ?? "given_up",
      detail: "Given up after \(Int(days)) days. The submission is stored, and an operator can "
        + "retry it: tenure jobs retry \(submission.id.text).\(last)",
      appleStatus: submission.problem?.appleStatus)
  }
}
