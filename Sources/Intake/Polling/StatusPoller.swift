package import AppStore
import Foundation
package import LedgerStorage
package import Logging
package import Subscriptions

/// Asks Apple how a line stands, without anybody having sent anything, and records the answer.
///
/// A poll claims nothing: what it brings is decided by the rows of the rule that need no claim, as
/// what notifications bring. Everything verified in an answer is recorded, of whichever line of the
/// customer it is, in one database transaction; what is refused is logged and left out.
package struct LinePoll: Sendable {
  let ledger: Ledger
  let serverAPI: AppStoreServerAPI?
  let apps: AppStoreApps
  let logger: Logger
  let now: @Sendable () -> Timestamp
  private let receipts: ReceiptVerifier
  private let catalogue: CatalogueCache
  private let sandboxAccess: SandboxAccess

  /// Puts the way of a poll together.
  ///
  /// - Parameters:
  ///   - ledger: Where everything is kept.
  ///   - serverAPI: What asks about original transactions; nil without a key for it.
  ///   - receipts: What asks about stored receipts.
  ///   - apps: The apps that are served.
  ///   - catalogue: Which product grants what.
  ///   - sandboxAccess: Whose sandbox purchases grant anything.
  ///   - logger: For what operators should know; never with a content in it.
  ///   - now: The clock by which answers are recorded.
  package init(
    ledger: Ledger, serverAPI: AppStoreServerAPI?, receipts: ReceiptVerifier,
    apps: AppStoreApps, catalogue: CatalogueCache, sandboxAccess: SandboxAccess, logger: Logger,
    now: @escaping @Sendable () -> Timestamp
  ) {
    self.ledger = ledger
    self.serverAPI = serverAPI
    self.receipts = receipts
    self.apps = apps
    self.catalogue = catalogue
    self.sandboxAccess = sandboxAccess
    self.logger = logger
    self.now = now
  }

  /// Whether lines can be asked about by their ids: there is a key for the App Store Server API.
  package var canAskByID: Bool { serverAPI != nil }

  // MARK: By original transaction id

  /// What Apple answered about a line, recorded.
  package struct Polled: Sendable {
    /// What it changed.
    package let recorded: Ledger.UnclaimedRecording
    /// Kept with the line: the next poll asks for what has changed since; nil where there is none.
    ///
    /// It never leads past a transaction that was refused: that one comes again.
    package let revision: String?
    /// Why parts of the answer were left out.
    package let refusals: [SignedDataRefusal]
  }

  /// From where on Apple's transaction history is read.
  package enum Start: Hashable, Sendable {
    /// Where the last poll of the line ended; without one, the beginning.
    case lastRevision
    case beginning
    case revision(String)
  }

  /// Asks the App Store Server API about a line: its customer's transactions since an earlier
  /// time, and then where the subscriptions stand.
  ///
  /// A stored revision that Apple does not know any more is no obstacle: all of it is read again.
  ///
  /// - Parameters:
  ///   - line: Any line of the customer.
  ///   - bundleID: The app that it belongs to.
  ///   - transaction: One of the line's, if Apple is to be asked with that.
  ///   - start: From where on.
  ///   - job: What asks; it ends with what is recorded. Nil: somebody does by hand.
  /// - Returns: What was recorded; nil without a key for the API.
  /// - Throws: `AppStoreServerAPIError` where Apple does not answer all of it, or what the database
  ///   says; nothing is recorded then.
  package func poll(
    _ line: LineID, of bundleID: String, naming transaction: TransactionID? = nil,
    from start: Start = .lastRevision, doing job: Job? = nil
  ) async throws -> Polled? {
    guard let serverAPI else { return nil }
    let id = transaction?.rawValue ?? line.originalTransactionID.rawValue
    func history(after revision: String?) async throws -> PolledAnswer {
      try await self.history(of: id, on: line.environment, in: bundleID, after: revision, serverAPI)
    }
    var answer: PolledAnswer
    switch start {
    case .beginning: answer = try await history(after: nil)
    case .revision(let revision):
      answer = try await history(after: revision)
    case .lastRevision:
      let last = try await ledger.historyRevision(of: line)
      do {
        answer = try await history(after: last)
      } catch let error as AppStoreServerAPIError
        where error.code == .invalidRequestRevision && last != nil
      {
        answer = try await history(after: nil)
      }
    }
    // Later than the history, so that the last word on renewal is the latest one.
    answer.add(
      try await serverAPI.subscriptionStatuses(
        of: id, in: bundleID, environment: line.environment
      ).content)
    return try await record(
      answer, of: .transactions, about: Ledger.AskedLine(line, of: bundleID, job: job))
  }

  /// Asks the App Store Server API what a customer has been refunded since an earlier time: all
  /// that can still happen to a purchase that does not renew.
  ///
  /// - Parameters:
  ///   - line: Any line of the customer.
  ///   - bundleID: The app that it belongs to.
  ///   - job: What asks; it ends with what is recorded. Nil: somebody does by hand.
  /// - Returns: What was recorded; nil without a key for the API.
  /// - Throws: `AppStoreServerAPIError` where Apple does not answer all of it, or what the database
  ///   says; nothing is recorded then.
  package func pollRefunds(
    of line: LineID, in bundleID: String, doing job: Job? = nil
  ) async throws -> Polled? {
    guard let serverAPI else { return nil }
    func refunds(after revision: String?) async throws -> PolledAnswer {
      var answer = PolledAnswer(revision: revision)
      for try await page in serverAPI.refundHistoryPages(
        of: line.originalTransactionID.rawValue, in: bundleID, environment: line.environment,
        after: revision)
      {
        answer.add(page.content)
      }
      return answer
    }
    let last = try await ledger.historyRevision(of: line, in: .refunds)
    let answer: PolledAnswer
    do {
      answer = try await refunds(after: last)
    } catch let error as AppStoreServerAPIError
      where error.code == .invalidRequestRevision && last != nil
    {
      answer = try await refunds(after: nil)
    }
    return try await record(
      answer, of: .refunds, about: Ledger.AskedLine(line, of: bundleID, job: job))
  }

  private func record(
    _ answer: PolledAnswer, of history: HistoryRevision.History, about asked: Ledger.AskedLine
  ) async throws -> Polled {
    let poll = UUID.version7(at: now())
    for refusal in answer.refusals {
      logger.error(
        "A part of Apple's answer to a poll is refused",
        metadata: ["poll.id": "\(poll)", "reason": "\(refusal.reason.rawValue)"])
    }
    let revision = answer.revision.map {
      HistoryRevision(history, line: asked.line, revision: $0)
    }
    return Polled(
      recorded: try await record(answer.evidence, as: poll, about: asked, upTo: revision),
      revision: answer.revision, refusals: answer.refusals)
  }

  private func history(
    of id: String, on environment: Environment, in bundleID: String, after revision: String?,
    _ serverAPI: AppStoreServerAPI
  ) async throws -> PolledAnswer {
    var answer = PolledAnswer(revision: revision)
    for try await page in serverAPI.transactionHistoryPages(
      of: id, in: bundleID, environment: environment, after: revision)
    {
      answer.add(page.content)
    }
    return answer
  }

  // MARK: By receipt

  /// What Apple answered about a stored receipt, and what that changed.
  package struct PolledReceipt: Sendable {
    package let verification: ReceiptVerification
    /// Nil where Apple does not vouch for the receipt, or could not be asked.
    package let recorded: Ledger.UnclaimedRecording?
  }

  /// Asks verifyReceipt about a receipt that somebody sent once.
  ///
  /// Where Apple does not vouch for it nothing is recorded: the verdict tells what to do.
  ///
  /// - Parameters:
  ///   - receipt: In base64.
  ///   - bundleID: The app that it belongs to, where that is known.
  ///   - line: The line for whose sake Apple is asked; nil: none in particular.
  ///   - job: What asks; it ends with what is recorded. Nil: somebody does by hand.
  /// - Returns: The verdict with its exchanges, and what was recorded.
  /// - Throws: What the database says.
  package func poll(
    receipt: String, of bundleID: String? = nil, about line: LineID? = nil, doing job: Job? = nil
  ) async throws -> PolledReceipt {
    let verification = await receipts.verify(receipt, bundleID: bundleID)
    guard case .verified(let verified) = verification.verdict else {
      return PolledReceipt(verification: verification, recorded: nil)
    }
    let poll = UUID.version7(at: now())
    for record in verified.unreadable {
      logger.error(
        "A record of Apple's answer to a poll can't be read",
        metadata: ["poll.id": "\(poll)", "record": "\(record)"])
    }
    return PolledReceipt(
      verification: verification,
      recorded: try await record(
        verified.evidence, as: poll,
        about: line.map { Ledger.AskedLine($0, of: verified.bundleID, job: job) }))
  }

  private func record(
    _ evidence: [Evidence], as poll: UUID, about asked: Ledger.AskedLine?,
    upTo revision: HistoryRevision? = nil
  ) async throws -> Ledger.UnclaimedRecording {
    let recorded = try await ledger.record(
      evidence, polledAs: poll.uuidString.lowercased(), about: asked, upTo: revision, at: now(),
      terms: catalogue.terms(sandboxAccess))
    logger.info(
      "Apple's answer to a poll is recorded",
      metadata: [
        "poll.id": "\(poll)", "lines": "\(Set(evidence.map(\.line)).count)",
        "changes": "\(recorded.changedFamilies)",
      ])
    return recorded
  }
}

/// What the answers to one poll come to.
private struct PolledAnswer {
  /// That of the last page in front of which nothing was refused.
  var revision: String?
  private(set) var refusals: [SignedDataRefusal] = []
  private var found: [Evidence] = []
  private var seen: Set<Evidence> = []

  init(revision: String?) { self.revision = revision }

  /// What was verified, each once.
  var evidence: [Evidence] { found }

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

  private mutating func add(_ evidence: [Evidence]) {
    found += evidence.filter { seen.insert($0).inserted }
  }
}
