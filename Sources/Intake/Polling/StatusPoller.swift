package import AppStore
import Foundation
import JSONText
package import LedgerStorage
import Logging
package import Subscriptions

/// Asks Apple about an original transaction, and records all verified evidence in one transaction.
///
/// A poll claims nothing; refused parts are logged and left out.
package struct StatusPoller: IntakePart {
  let services: IntakeServices

  package init(_ services: IntakeServices) { self.services = services }

  // MARK: By original transaction ID

  package struct Polled: Sendable {
    package let recorded: Recording
    /// For the next poll; never beyond a refused transaction, so that Apple lists that one again.
    package let revision: String?
    package let refusals: [SignedDataError]
  }

  /// Asks the App Store Server API for the customer's transactions and statuses; nil without a key.
  ///
  /// `transaction` is asked with instead of `line`. The job ends with the recording. Throws
  /// `AppStoreServerAPIError` without a complete answer, and records nothing.
  package func poll(
    _ line: OriginalTransactionKey, of bundleID: String, naming transaction: TransactionID? = nil,
    doing job: Job? = nil
  ) async throws -> Polled? {
    guard let serverAPI else { return nil }
    let id = transaction?.rawValue ?? line.originalTransactionID.rawValue
    var answer = try await history(.transactions, of: line) {
      serverAPI.transactionHistoryPages(
        of: id, in: bundleID, environment: line.environment, after: $0)
    }
    // Asked after the history, so that the renewal status is the latest one.
    answer.add(
      try await serverAPI.subscriptionStatuses(
        of: id, in: bundleID, environment: line.environment
      ).content)
    return try await record(
      answer, of: .transactions,
      about: PollStore.PolledOriginalTransaction(line, of: bundleID, job: job))
  }

  /// Asks the App Store Server API for the customer's refunds, for purchases that do not renew.
  package func pollRefunds(
    of line: OriginalTransactionKey, in bundleID: String, doing job: Job? = nil
  ) async throws -> Polled? {
    guard let serverAPI else { return nil }
    let answer = try await history(.refunds, of: line) {
      serverAPI.refundHistoryPages(
        of: line.originalTransactionID.rawValue, in: bundleID, environment: line.environment,
        after: $0)
    }
    return try await record(
      answer, of: .refunds, about: PollStore.PolledOriginalTransaction(line, of: bundleID, job: job)
    )
  }

  private func record(
    _ answer: PolledAnswer, of history: HistoryRevision.History,
    about asked: PollStore.PolledOriginalTransaction
  ) async throws -> Polled {
    let poll = UUID.version7(at: now())
    for refusal in answer.refusals {
      logger.error(
        "Part of Apple's answer to a poll refused",
        metadata: ["poll.id": "\(poll)", "reason": "\(refusal.reason.rawValue)"])
    }
    let revision = answer.revision.map {
      HistoryRevision(history, line: asked.line, revision: $0)
    }
    return Polled(
      recorded: try await record(answer.evidence, as: poll, about: asked, upTo: revision),
      revision: answer.revision, refusals: answer.refusals)
  }

  /// Reads a history after the last poll's revision, or all of it if Apple forgot that revision.
  private func history(
    _ history: HistoryRevision.History, of line: OriginalTransactionKey,
    _ pages: (_ revision: String?) -> ServerAPIPages<TransactionPage>
  ) async throws -> PolledAnswer {
    func read(after revision: String?) async throws -> PolledAnswer {
      var answer = PolledAnswer(revision: revision)
      for try await page in pages(revision) { answer.add(page.content) }
      return answer
    }
    let last = try await ledger.polls.historyRevision(of: line, in: history)
    do {
      return try await read(after: last)
    } catch let error as AppStoreServerAPIError
      where error.code == .invalidRequestRevision && last != nil
    {
      return try await read(after: nil)
    }
  }

  // MARK: By receipt

  /// Asks verifyReceipt about a stored receipt, and records the answer if it verifies the receipt.
  package func poll(
    receipt: String, of bundleID: String? = nil, about line: OriginalTransactionKey? = nil,
    doing job: Job? = nil
  ) async throws -> (verification: ReceiptVerification, recorded: Recording?) {
    let verification = await services.receipts.verify(receipt, bundleID: bundleID)
    guard case .verified(let verified) = verification.verdict else {
      return (verification, nil)
    }
    let poll = UUID.version7(at: now())
    for record in verified.unreadable {
      logger.error(
        "Unreadable record in Apple's answer to a poll",
        metadata: ["poll.id": "\(poll)", "record": "\(record)"])
    }
    let recorded = try await record(
      verified.evidence, as: poll,
      about: line.map { PollStore.PolledOriginalTransaction($0, of: verified.bundleID, job: job) })
    return (verification, recorded)
  }

  private func record(
    _ evidence: [Evidence], as poll: UUID, about asked: PollStore.PolledOriginalTransaction?,
    upTo revision: HistoryRevision? = nil
  ) async throws -> Recording {
    let recorded = try await ledger.polls.record(
      evidence, polledAs: poll.text, about: asked, upTo: revision, at: now(), terms: terms)
    logger.info(
      "Apple's answer to a poll recorded",
      metadata: [
        "poll.id": "\(poll)", "lines": "\(Set(evidence.map(\.line)).count)",
        "changes": "\(recorded.changedOriginals)",
      ])
    return recorded
  }
}

/// The evidence in the answers to one poll.
private struct PolledAnswer {
  /// The revision of the last page up to which nothing was refused.
  var revision: String?
  private(set) var refusals: [SignedDataError] = []
  private(set) var evidence: [Evidence] = []
  private var seen: Set<Evidence> = []

  init(revision: String?) { self.revision = revision }

  mutating func add(_ page: TransactionPage) {
    refusals += page.transactions.compactMap(\.refusal)
    if refusals.isEmpty { revision = page.revision ?? revision }
    add(page.evidence)
  }

  mutating func add(_ statuses: SubscriptionStatuses) {
    for line in statuses.groups.flatMap(\.lines) {
      refusals += [line.transaction?.refusal, line.renewalInfo?.refusal].compactMap(\.self)
    }
    add(statuses.evidence)
  }

  private mutating func add(_ new: [Evidence]) {
    evidence += new.filter { seen.insert($0).inserted }
  }
}

extension StatusPoller {
  package enum Outcome: Hashable, Sendable {
    /// Apple answered.
    case polled(isChanged: Bool)
    /// Apple knows nothing of it or can't be asked; it is polled again some time.
    case passedOver(because: String)
    /// Apple was unavailable; retry, not before the time that Apple asked for.
    case postponed(because: String, notBefore: Timestamp?)
    /// Something must be fixed before Apple answers; it is polled again all the same.
    case failed(because: String, notBefore: Timestamp)
    /// The original transaction does not exist, or there is nothing more to learn of it.
    case over
  }

  /// The delay after a request that Apple calls invalid, which only another version can fix.
  private static let waitAfterFault: Duration = .hours(24)
  private static let waitAfterMisconfiguration: Duration = .hours(1)

  /// Performs a claimed poll job.
  ///
  /// After `polled` and `passedOver` the job has ended or has its next time; otherwise the caller
  /// has to give it back.
  package func poll(_ job: Job) async throws -> Outcome {
    let line = try job.originalTransaction
    let outcome = try await ask(about: line, doing: job)
    switch outcome {
    case .polled, .over: break
    case .passedOver(let reason): log(.info, "Poll skipped", line, reason)
    case .postponed(let reason, _): log(.notice, "Poll pending, will be retried", line, reason)
    case .failed(let reason, _): log(.error, "Poll failed, needs a fix", line, reason)
    }
    return outcome
  }

  package func pollNow(_ line: OriginalTransactionKey) async throws -> Outcome {
    try await ask(about: line, doing: nil)
  }

  private func ask(about line: OriginalTransactionKey, doing job: Job?) async throws -> Outcome {
    guard let known = try await ledger.polls.pollRequest(line) else { return .over }
    // Notifications report refunds. The ledger remembers the answer for planning the next poll.
    let hasNotifications = try await ledger.polls.hasNotifications(from: line.environment)
    if job != nil, !known.isSubscription, hasNotifications { return .over }
    let bundleID = known.source.bundleID ?? app(nil)
    if let bundleID, app(bundleID) == nil {
      return try await passOver(job, because: "The app \(bundleID) is not configured.")
    }
    if serverAPI != nil, let bundleID {
      return try await ask(about: known, of: bundleID, doing: job)
    }
    guard known.isSubscription else { return .over }
    guard let receipt = try await receipt(of: known.source) ?? known.imported?.receipt else {
      return try await passOver(
        job,
        because: serverAPI == nil
          ? "No App Store Server API key is configured, and no receipt is stored."
          : "The app of the original transaction is not known.")
    }
    return try await show(receipt, for: known, of: bundleID, doing: job)
  }

  // MARK: By ID

  private func ask(
    about known: PollStore.PollRequest, of bundleID: String, doing job: Job?
  ) async throws -> Outcome {
    do {
      let polled =
        known.isSubscription
        ? try await poll(
          known.line, of: bundleID, naming: known.isUnknown ? known.imported?.transactionID : nil,
          doing: job)
        : try await pollRefunds(of: known.line, in: bundleID, doing: job)
      return .polled(isChanged: (polled?.recorded.changedOriginals ?? 0) > 0)
    } catch let error as AppStoreServerAPIError {
      if error.isRetryable {
        return .postponed(because: error.description, notBefore: error.notBefore)
      }
      switch error.kind {
      case .notFound: return try await passOver(job, because: error.description)
      case .invalidRequest where error.code == .invalidTransactionID:
        return try await passOver(job, because: error.description)
      case .unauthorized, .misconfigured:
        return .failed(
          because: error.description, notBefore: now() + Self.waitAfterMisconfiguration)
      case .invalidRequest, .forbidden, .unexpectedAnswer, .rateLimited, .unavailable,
        .unreachable:
        return .failed(because: error.description, notBefore: now() + Self.waitAfterFault)
      }
    }
  }

  // MARK: By receipt

  private func receipt(of source: PollTarget) async throws -> String? {
    for receipt in source.receipts {
      switch receipt {
      case .submission(let id):
        if case .receipt(let data) = try await ledger.submissions.payload(of: id) { return data }
      case .notification(let id):
        if let stored = try await ledger.notifications.notification(id),
          case .unsigned(let notification) = NotificationBody(parsing: stored.body.utf8),
          let data = notification.receiptData
        {
          return data
        }
      }
    }
    return nil
  }

  private func show(
    _ receipt: String, for known: PollStore.PollRequest, of bundleID: String?, doing job: Job?
  ) async throws -> Outcome {
    let polled = try await poll(receipt: receipt, of: bundleID, about: known.line, doing: job)
    switch polled.verification.verdict {
    case .verified: return .polled(isChanged: (polled.recorded?.changedOriginals ?? 0) > 0)
    case .rejected(let rejection): return try await passOver(job, because: rejection.reason)
    case .retry(let retry):
      if let limit = retry.limit, let job, job.attempts >= ReceiptRetry.Limit.attempts {
        return try await passOver(job, because: limit.rejection.reason)
      }
      return .postponed(because: retry.reason, notBefore: retry.notBefore)
    case .misconfigured(let reason, _):
      return .failed(because: reason, notBefore: now() + Self.waitAfterMisconfiguration)
    }
  }

  private func passOver(_ job: Job?, because reason: String) async throws -> Outcome {
    if let job { try await ledger.polls.passOver(job, because: reason, at: now()) }
    return .passedOver(because: reason)
  }

  private func log(
    _ level: Logger.Level, _ message: Logger.Message, _ line: OriginalTransactionKey, _ why: String
  ) {
    logger.log(
      level: level, message,
      metadata: ["line": "\(line)", "reason": "\(why)"])
  }
}
