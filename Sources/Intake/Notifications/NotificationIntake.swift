package import AppStore
package import CoreMetrics
import Crypto
import Foundation
import JSONText
package import LedgerStorage
package import Logging
package import Subscriptions

/// What a notification does from arrival to recorded evidence; the server and the worker both go
/// through it.
///
/// A notification is stored durably before it is answered, together with a job. One of version 2 is
/// verified before it is stored, by its signatures, and recorded in the same request: its job does
/// something only after a crash or a failure of the database. Of version 1 only the secret is
/// checked; a worker shows its receipt to Apple, and records what Apple answers.
package struct NotificationIntake: Sendable {
  /// The longest body that is read, in bytes.
  ///
  /// Apple's have a few kilobytes, and those of version 1 a receipt and a hundred transactions.
  package static let longestBody = 1024 * 1024
  /// What recording may take, on a slow day of the database; then a worker takes over.
  private static let recordingTime: Duration = .seconds(30)

  let ledger: Ledger
  /// What lists the notifications that Apple sent; nil without a key for it.
  let serverAPI: AppStoreServerAPI?
  private let receipts: ReceiptVerifier
  private let signedData: SignedDataVerifier
  private let apps: AppStoreApps
  private let catalogue: CatalogueCache
  private let sandboxAccess: SandboxAccess
  private let queue = VerificationQueue()
  private let trace: RefusalTrace
  private let metrics: NotificationMetrics
  let logger: Logger
  let now: @Sendable () -> Timestamp

  /// Puts the way of a notification together.
  ///
  /// - Parameters:
  ///   - ledger: Where everything is kept.
  ///   - receipts: What asks Apple about receipts.
  ///   - signedData: What verifies signatures.
  ///   - serverAPI: What lists the notifications that Apple sent; nil without a key for it.
  ///   - apps: The apps that are served, with their shared secrets.
  ///   - catalogue: Which product grants what.
  ///   - sandboxAccess: Whose sandbox purchases grant anything.
  ///   - logger: For what operators should know; never with a content in it.
  ///   - metrics: Where notifications are counted.
  ///   - now: The clock by which notifications are received.
  package init(
    ledger: Ledger, receipts: ReceiptVerifier, signedData: SignedDataVerifier,
    serverAPI: AppStoreServerAPI? = nil, apps: AppStoreApps, catalogue: CatalogueCache,
    sandboxAccess: SandboxAccess, logger: Logger,
    metrics: any MetricsFactory = MetricsSystem.factory, now: @escaping @Sendable () -> Timestamp
  ) {
    self.ledger = ledger
    self.serverAPI = serverAPI
    self.receipts = receipts
    self.signedData = signedData
    self.apps = apps
    self.catalogue = catalogue
    self.sandboxAccess = sandboxAccess
    trace = RefusalTrace(ledger: ledger, logger: logger)
    self.metrics = NotificationMetrics(metrics)
    self.logger = logger
    self.now = now
  }

  // MARK: Arrival

  /// Takes what was posted from its arrival to its answer.
  ///
  /// - Throws: ``NotificationQueueFull``, or a database error. The notification is not stored then,
  ///   and Apple sends it again.
  package func receive(_ body: [UInt8]) async throws -> NotificationAnswer {
    guard body.count <= Self.longestBody else { return await refuseTooLong(bytes: body.count) }
    let receivedAt = now()
    switch try await queue.run({ await examine(body, at: receivedAt) }) {
    case .signed(let notification, let payload):
      let (id, isNew) = try await take(
        notification, payload: payload, at: receivedAt, arrival: .delivered)
      return .stored(id: id, isNew: isNew)
    case .unsigned(let notification, let bundleID):
      return try await store(notification, of: bundleID, at: receivedAt)
    case .refused(let refusal, let digest):
      metrics.refused(refusal)
      await trace.add(refusal, bytes: body.count, digest: digest, at: receivedAt)
      return .refused(refusal)
    }
  }

  /// A posted body, parsed and verified.
  private enum Examined: Sendable {
    case signed(SignedNotification, payload: String)
    case unsigned(NotificationV1, bundleID: String?)
    case refused(NotificationRefusal, digest: [UInt8])
  }

  private func examine(_ body: [UInt8], at receivedAt: Timestamp) async -> Examined {
    func refused(_ refusal: NotificationRefusal) -> Examined {
      .refused(refusal, digest: Array(SHA256.hash(data: body)))
    }
    switch NotificationBody(parsing: body) {
    case .signed(let payload):
      switch await signedData.notification(payload, receivedAt: receivedAt) {
      case .success(let notification): return .signed(notification, payload: payload)
      case .failure(let refusal): return refused(NotificationRefusal(refusal))
      }
    case .unsigned(let notification):
      switch apps.sender(of: notification) {
      case .app(let bundleID): return .unsigned(notification, bundleID: bundleID)
      case .wrongSecret(let detail):
        return refused(NotificationRefusal(version: .one, code: .wrongSecret, detail: detail))
      case .wrongBundleID(let detail):
        return refused(NotificationRefusal(version: .one, code: .wrongBundleID, detail: detail))
      }
    case nil:
      return refused(
        NotificationRefusal(
          version: nil, code: .invalidRequest, reason: "unreadable",
          detail: "The body is not a notification: it must be a JSON object with a "
            + "`signedPayload` or a `notification_type`, and of at most "
            + "\(NotificationBody.mostValues) values."))
    }
  }

  /// Refuses what was too long to be read.
  ///
  /// - Parameter bytes: Its length as far as it is known.
  /// - Returns: The refusal.
  package func refuseTooLong(bytes: Int) async -> NotificationAnswer {
    let refusal = NotificationRefusal(
      version: nil, code: .invalidRequest, reason: "too_long",
      detail: "The body is longer than \(Self.longestBody) bytes.")
    metrics.refused(refusal)
    await trace.add(refusal, bytes: bytes, digest: nil, at: now())
    return .refused(refusal)
  }

  /// Stores and records a notification whose signatures are verified, whichever way it came.
  ///
  /// - Parameters:
  ///   - notification: Verified.
  ///   - payload: What Apple signed.
  ///   - receivedAt: When it came.
  ///   - arrival: How it came.
  /// - Returns: Under which name it is stored; `isNew` is false for a repetition, which does
  ///   nothing.
  /// - Throws: What the database says; it is not stored then.
  func take(
    _ notification: SignedNotification, payload: String, at receivedAt: Timestamp,
    arrival: NotificationArrival
  ) async throws -> (id: String, isNew: Bool) {
    let new = NewNotification(
      notification, payload: payload, receivedAt: receivedAt, arrival: arrival)
    let evidence = notification.evidence
    let isNew = try await ledger.store(
      new, processAt: evidence.isEmpty ? nil : receivedAt + Self.recordingTime)
    log(new, isNew: isNew)
    if isNew, !evidence.isEmpty {
      await recordNow(
        Ledger.VerifiedNotification(
          id: new.id, evidence: evidence, source: LineSource(bundleID: notification.bundleID),
          asksAbout: notification.lineAskedAbout))
    }
    return (new.id, isNew)
  }

  /// Records what a notification says within its request; should that fail, its job is there.
  private func recordNow(_ verified: Ledger.VerifiedNotification) async {
    do {
      try await record(verified)
    } catch {
      logger.warning(
        "A notification is stored, and a worker will process it",
        metadata: ["notification.id": "\(verified.id)", "error": "\(error)"])
    }
  }

  private func store(
    _ notification: NotificationV1, of bundleID: String?, at receivedAt: Timestamp
  ) async throws -> NotificationAnswer {
    let new = NewNotification(notification, of: bundleID, receivedAt: receivedAt)
    let isNew = try await ledger.store(
      new, processAt: notification.receiptData == nil ? nil : receivedAt)
    log(new, isNew: isNew)
    return .stored(id: new.id, isNew: isNew)
  }

  // MARK: Processing

  /// Processes a stored notification.
  ///
  /// - Parameters:
  ///   - id: The notification.
  ///   - worker: Who has claimed its job; nil: nobody.
  /// - Returns: Why it is still to be processed; nil: there is nothing left to do.
  /// - Throws: What the database says, or ``SignedDataRefusal`` for what was verified when it
  ///   arrived, and is not any more.
  package func process(_ id: String, worker: String? = nil) async throws -> String? {
    guard let stored = try await ledger.notification(id), stored.outcome == nil else { return nil }
    switch stored.version {
    case .two:
      let notification = try await signedData.notification(
        stored.body, receivedAt: stored.receivedAt
      ).get()
      try await record(
        Ledger.VerifiedNotification(
          id: id, evidence: notification.evidence,
          source: LineSource(bundleID: notification.bundleID),
          asksAbout: notification.lineAskedAbout))
      return nil
    case .one:
      guard case .unsigned(let notification) = NotificationBody(parsing: stored.body.utf8),
        let receiptData = notification.receiptData
      else {
        // It was read before it was stored; only another version of ours could say so.
        try await reject(stored, because: "The body can't be read, or holds no receipt.", [])
        return nil
      }
      return try await process(notification, showing: receiptData, as: stored, worker: worker)
    }
  }

  /// Shows the receipt in a notification to Apple.
  private func process(
    _ notification: NotificationV1, showing receiptData: String, as stored: StoredNotification,
    worker: String?
  ) async throws -> String? {
    let verification = await receipts.verify(receiptData, bundleID: stored.bundleID)
    let exchanges = verification.exchanges.map(SubmissionExchange.init)
    switch verification.verdict {
    case .verified(let receipt):
      try await record(
        Ledger.VerifiedNotification(
          id: stored.id, evidence: receipt.evidence,
          source: LineSource(bundleID: receipt.bundleID, receipt: .notification(stored.id)),
          switchOff: notification.switchOff(confirmedBy: receipt), exchanges: exchanges,
          problem: receipt.unreadable.isEmpty
            ? nil : "Not all of Apple's answer could be read: it stands in the exchange."))
      return nil
    case .rejected(let rejection):
      try await reject(stored, because: rejection.reason, exchanges)
      return nil
    case .retry(let retry):
      if let limit = retry.limit,
        limit.isReached(
          after: try await ledger.shortAnswers(toNotification: stored.id), now: now())
      {
        try await reject(stored, because: limit.rejection.reason, exchanges)
        return nil
      }
      return try await postpone(
        stored, because: retry.reason, exchanges, notBefore: retry.notBefore, worker: worker)
    case .misconfigured(let fault):
      logger.critical(
        "Apple refuses our configuration; notifications wait until it is mended",
        metadata: [
          "notification.id": "\(stored.id)", "problem": "\(fault.reason)",
          "appstore.status": "\(fault.appleStatus.map(String.init) ?? "none")",
        ])
      return try await postpone(
        stored, because: fault.reason, exchanges, notBefore: nil, worker: worker)
    }
  }

  private func record(_ verified: Ledger.VerifiedNotification) async throws {
    let processed = try await ledger.process(
      verified, at: now(),
      terms: catalogue.terms(sandboxAccess))
    // Otherwise another process was faster.
    guard let processed else { return }
    metrics.processed(processed.outcome)
    logger.info(
      "A notification is processed",
      metadata: [
        "notification.id": "\(verified.id)", "outcome": "\(processed.outcome.rawValue)",
        "problem": "\(verified.problem ?? "none")",
      ])
  }

  private func reject(
    _ stored: StoredNotification, because reason: String, _ exchanges: [SubmissionExchange]
  ) async throws {
    logger.notice(
      "The receipt in a notification is rejected",
      metadata: ["notification.id": "\(stored.id)", "problem": "\(reason)"])
    metrics.processed(.rejected)
    try await ledger.rejectNotification(
      stored.id, because: reason, exchanges: exchanges, at: now())
  }

  private func postpone(
    _ stored: StoredNotification, because reason: String, _ exchanges: [SubmissionExchange],
    notBefore: Timestamp?, worker: String?
  ) async throws -> String {
    metrics.wasPostponed()
    let retryAt = RetrySchedule.apple.next(
      afterAttempts: stored.attempts + 1, at: now(), notBefore: notBefore)
    logger.notice(
      "A notification waits for Apple",
      metadata: [
        "notification.id": "\(stored.id)", "problem": "\(reason)", "retry_at": "\(retryAt)",
      ])
    try await ledger.postponeNotification(
      stored.id, until: retryAt, because: reason, exchanges: exchanges, worker: worker)
    return reason
  }

  private func log(_ new: NewNotification, isNew: Bool) {
    metrics.stored(new, isNew: isNew)
    logger.info(
      isNew ? "A notification is stored" : "A notification is repeated",
      metadata: [
        "notification.id": "\(new.id)", "notification.version": "\(new.version.rawValue)",
        "notification.type": "\(new.notificationType ?? "none")",
        "notification.subtype": "\(new.subtype ?? "none")",
        "notification.arrival": "\(new.arrival.rawValue)",
        "environment": "\(new.environment?.rawValue ?? "none")",
      ])
  }
}

extension NewNotification {
  /// A notification of version 2 whose signatures were verified.
  init(
    _ notification: SignedNotification, payload: String, receivedAt: Timestamp,
    arrival: NotificationArrival
  ) {
    let key = notification.transaction?.record.key
    let line = key?.line ?? notification.renewalInfo?.line
    self.init(
      id: notification.storedID, version: .two, receivedAt: receivedAt, arrival: arrival,
      body: payload, notificationType: notification.notificationType.rawValue,
      subtype: notification.payload.subtype?.rawValue.fittingName,
      environment: notification.environment, bundleID: notification.bundleID,
      originalTransactionID: line?.originalTransactionID, transactionID: key?.transactionID,
      signedAt: notification.signedAt)
  }

  /// A notification of version 1 whose secret is that of an app, or of several.
  init(_ notification: NotificationV1, of bundleID: String?, receivedAt: Timestamp) {
    self.init(
      id: notification.id, version: .one, receivedAt: receivedAt,
      body: String(decoding: notification.body.bytes, as: UTF8.self),
      notificationType: notification.notificationType, environment: notification.environment,
      bundleID: bundleID, originalTransactionID: notification.originalTransactionID)
  }
}

extension SignedNotification {
  /// The name under which it is stored, whether Apple delivered it or lists it.
  var storedID: String { notificationUUID.lowercased() }

  /// The line of the purchase of which Apple wants to know what became of it; nil: it asks nothing.
  var lineAskedAbout: LineID? {
    notificationType == .consumptionRequest ? transaction?.record.key.line : nil
  }
}

extension String {
  /// This as the column for a name takes it; nil if it is none of Apple's.
  fileprivate var fittingName: String? {
    (1...255).contains(utf8.count) && utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7f } ? self : nil
  }
}

extension NotificationV1 {
  /// The date at which auto-renew is said to have been switched off, as far as Apple's answer says
  /// the same: that it is off, and what the next renewal would be.
  func switchOff(confirmedBy receipt: VerifiedReceipt) -> ReportedSwitchOff? {
    guard autoRenews == false, let changedAt = autoRenewStatusChangedAt,
      changedAt <= receipt.requestDate
    else { return nil }
    let only = receipt.statuses.count == 1 ? receipt.statuses.keys.first : nil
    let line = originalTransactionID.map { LineID(receipt.environment, $0) } ?? only
    guard let line, let status = receipt.statuses[line], status.autoRenews == false,
      autoRenewProductID == nil || status.autoRenewProductID == nil
        || autoRenewProductID == status.autoRenewProductID
    else { return nil }
    return ReportedSwitchOff(line: line, at: changedAt)
  }
}

extension NotificationRefusal {
  /// Why a notification of version 2 is not believed.
  init(_ refusal: SignedDataRefusal) {
    let code: Code =
      switch refusal.reason {
      case .wrongBundleID, .wrongAppAppleID: .wrongBundleID
      default: .invalidSignature
      }
    self.init(
      version: .two, code: code, reason: refusal.reason.rawValue, detail: refusal.description)
  }
}

/// What becomes of something that was posted as a notification.
package enum NotificationAnswer: Sendable {
  /// It is stored durably; `isNew` is false for a repetition, which does nothing.
  case stored(id: String, isNew: Bool)
  case refused(NotificationRefusal)
}

/// Why something that was posted is no notification for us.
package struct NotificationRefusal: Hashable, Sendable {
  /// The problem codes of the interface.
  package enum Code: String, Sendable {
    /// No notification of either version, or too long for one.
    case invalidRequest = "invalid_request"
    case invalidSignature = "invalid_signature"
    case wrongBundleID = "wrong_bundle_id"
    case wrongSecret = "wrong_secret"
  }

  /// Nil where the shape does not tell.
  package let version: NotificationVersion?
  package let code: Code
  /// A stable word for what is wrong, finer than the code; one of a fixed set.
  package let reason: String
  /// One sentence, without anything that was posted.
  package let detail: String

  init(
    version: NotificationVersion?, code: Code, reason: String? = nil, detail: String
  ) {
    self.version = version
    self.code = code
    self.reason = reason ?? code.rawValue
    self.detail = detail
  }
}
