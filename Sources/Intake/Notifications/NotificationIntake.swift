import AppStore
import Crypto
import Foundation
import JSONText
package import LedgerStorage
import Logging
import Subscriptions

/// Processes notifications from their arrival to recorded evidence, in the server and the worker.
///
/// Each is stored durably before it is answered. Version 2 is verified by its signatures and
/// recorded at once; only if that fails, a job records it later. For version 1 only the secret is
/// checked; a worker verifies its receipt with Apple and records the answer.
package struct NotificationIntake: IntakePart {
  /// In bytes; Apple's have a few kilobytes, in version 1 a receipt and a hundred transactions.
  package static let longestBody = 1024 * 1024
  /// The time after which a worker takes over; generous, for a slow database.
  private static let recordingTime: Duration = .seconds(30)

  let services: IntakeServices
  private let queue = VerificationQueue()
  private let trace: RefusalCounter
  private let metrics = NotificationMetrics()

  package init(_ services: IntakeServices) {
    self.services = services
    trace = RefusalCounter(ledger: services.ledger, logger: services.logger)
  }

  // MARK: Arrival

  /// Verifies, stores and records a posted body.
  ///
  /// On ``NotificationQueueFull`` or a database error nothing is stored, and Apple sends it again.
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
      switch await services.signedData.notification(payload, receivedAt: receivedAt) {
      case .success(let notification): return .signed(notification, payload: payload)
      case .failure(let refusal): return refused(NotificationRefusal(refusal))
      }
    case .unsigned(let notification):
      switch services.apps.sender(of: notification) {
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
          detail: "The body is not a notification: it must be a JSON object with `signedPayload` "
            + "or `notification_type`, and at most \(NotificationBody.mostValues) values."))
    }
  }

  /// Refuses a body of at least this length, which was not read to its end.
  package func refuseTooLong(bytes: Int) async -> NotificationAnswer {
    let refusal = NotificationRefusal(
      version: nil, code: .invalidRequest, reason: "too_long",
      detail: "The body must have at most \(Self.longestBody) bytes.")
    metrics.refused(refusal)
    await trace.add(refusal, bytes: bytes, digest: nil, at: now())
    return .refused(refusal)
  }

  /// Stores and records a verified notification, and returns its ID; not `isNew`: a duplicate.
  func take(
    _ notification: SignedNotification, payload: String, at receivedAt: Timestamp,
    arrival: ReceivedNotification
  ) async throws -> (id: String, isNew: Bool) {
    let new = NewNotification(
      notification, payload: payload, chains: services.signedData.verifiedHeaders,
      receivedAt: receivedAt, arrival: arrival)
    let verified = NotificationStore.VerifiedNotification(notification)
    if !verified.evidence.isEmpty {
      do {
        if try await record(verified, storing: new) {
          log(new, isNew: true)
          return (new.id, true)
        }
      } catch {
        logger.warning(
          "Recording a notification failed; a worker will retry",
          metadata: ["notification.id": "\(new.id)", "error": "\(error)"])
      }
    }
    let isNew = try await ledger.notifications.store(
      new, processAt: verified.evidence.isEmpty ? nil : receivedAt + Self.recordingTime)
    log(new, isNew: isNew)
    return (new.id, isNew)
  }

  private func store(
    _ notification: NotificationV1, of bundleID: String?, at receivedAt: Timestamp
  ) async throws -> NotificationAnswer {
    let new = NewNotification(notification, of: bundleID, receivedAt: receivedAt)
    let isNew = try await ledger.notifications.store(
      new, processAt: notification.receiptData == nil ? nil : receivedAt)
    log(new, isNew: isNew)
    return .stored(id: new.id, isNew: isNew)
  }

  // MARK: Processing

  /// Processes a stored notification, and returns the reason if it was postponed.
  ///
  /// `worker` is the one that has claimed its job. Throws a ``SignedDataError`` if a signature
  /// that was valid on arrival is not any more.
  package func process(_ id: String, worker: String? = nil) async throws -> String? {
    guard let stored = try await ledger.notifications.notification(id), stored.outcome == nil else {
      return nil
    }
    switch stored.version {
    case .two:
      let notification = try await services.signedData.notification(
        stored.body, receivedAt: stored.receivedAt
      ).get()
      try await record(NotificationStore.VerifiedNotification(notification))
      return nil
    case .one:
      guard case .unsigned(let notification) = NotificationBody(parsing: stored.body.utf8),
        let receiptData = notification.receiptData
      else {
        // The body was parsed before it was stored, so only another version of Tenure gets here.
        try await reject(stored, because: "The body is unreadable or has no receipt.", [])
        return nil
      }
      return try await process(notification, showing: receiptData, as: stored, worker: worker)
    }
  }

  private func process(
    _ notification: NotificationV1, showing receiptData: String, as stored: StoredNotification,
    worker: String?
  ) async throws -> String? {
    let verification = await services.receipts.verify(receiptData, bundleID: stored.bundleID)
    let exchanges = verification.exchanges.map(SubmissionExchange.init)
    switch verification.verdict {
    case .verified(let receipt):
      try await record(
        NotificationStore.VerifiedNotification(
          id: stored.id, evidence: receipt.evidence,
          source: PollTarget(bundleID: receipt.bundleID, receipt: .notification(stored.id)),
          switchOff: notification.switchOff(confirmedBy: receipt), exchanges: exchanges,
          problem: receipt.unreadable.isEmpty
            ? nil : "Part of Apple's response is unreadable; see the exchange."))
      return nil
    case .rejected(let rejection):
      try await reject(stored, because: rejection.reason, exchanges)
      return nil
    case .retry(let retry):
      if let limit = retry.limit,
        limit.isReached(
          after: try await ledger.notifications.shortAnswers(toNotification: stored.id), now: now())
      {
        try await reject(stored, because: limit.rejection.reason, exchanges)
        return nil
      }
      return try await postpone(
        stored, because: retry.reason, exchanges, notBefore: retry.notBefore, worker: worker)
    case .misconfigured(let reason, let status):
      logger.critical(
        "Apple rejects the configuration; notifications wait until it is fixed",
        metadata: [
          "notification.id": "\(stored.id)", "problem": "\(reason)",
          "appstore.status": "\(status.map(String.init) ?? "none")",
        ])
      return try await postpone(
        stored, because: reason, exchanges, notBefore: nil, worker: worker)
    }
  }

  /// False if another process was faster.
  @discardableResult
  private func record(
    _ verified: NotificationStore.VerifiedNotification, storing new: NewNotification? = nil
  ) async throws -> Bool {
    let processed = try await ledger.notifications.process(
      verified, storing: new, at: now(), terms: terms)
    guard let processed else { return false }
    metrics.processed(processed.outcome)
    logger.info(
      "Notification processed",
      metadata: [
        "notification.id": "\(verified.id)", "outcome": "\(processed.outcome.rawValue)",
        "problem": "\(verified.problem ?? "none")",
      ])
    return true
  }

  private func reject(
    _ stored: StoredNotification, because reason: String, _ exchanges: [SubmissionExchange]
  ) async throws {
    logger.notice(
      "Receipt of a notification rejected",
      metadata: ["notification.id": "\(stored.id)", "problem": "\(reason)"])
    metrics.processed(.rejected)
    try await ledger.notifications.rejectNotification(
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
      "Notification pending, will be retried",
      metadata: [
        "notification.id": "\(stored.id)", "problem": "\(reason)", "retry_at": "\(retryAt)",
      ])
    try await ledger.notifications.postponeNotification(
      stored.id, until: retryAt, because: reason, exchanges: exchanges, worker: worker)
    return reason
  }

  private func log(_ new: NewNotification, isNew: Bool) {
    metrics.stored(new, isNew: isNew)
    logger.info(
      isNew ? "Notification stored" : "Duplicate notification",
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
  init(
    _ notification: SignedNotification, payload: String, chains: [String], receivedAt: Timestamp,
    arrival: ReceivedNotification
  ) {
    let key = notification.transaction?.record.key
    let line = key?.line ?? notification.renewalInfo?.line
    self.init(
      id: notification.storedID, version: .two, receivedAt: receivedAt, arrival: arrival,
      body: payload, chains: chains, notificationType: notification.notificationType.rawValue,
      subtype: notification.payload.subtype?.rawValue.fittingName,
      environment: notification.environment, bundleID: notification.bundleID,
      originalTransactionID: line?.originalTransactionID, transactionID: key?.transactionID,
      signedAt: notification.signedAt)
  }

  init(_ notification: NotificationV1, of bundleID: String?, receivedAt: Timestamp) {
    self.init(
      id: notification.id, version: .one, receivedAt: receivedAt,
      body: String(decoding: notification.body.bytes, as: UTF8.self),
      notificationType: notification.notificationType, environment: notification.environment,
      bundleID: bundleID, originalTransactionID: notification.originalTransactionID)
  }
}

extension SignedNotification {
  /// The ID under which it is stored, whether Apple delivered or listed it.
  var storedID: String { notificationUUID.lowercased() }
}

extension NotificationStore.VerifiedNotification {
  fileprivate init(_ notification: SignedNotification) {
    self.init(
      id: notification.storedID, evidence: notification.evidence,
      source: PollTarget(bundleID: notification.bundleID),
      asksAbout: notification.notificationType == .consumptionRequest
        ? notification.transaction?.record.key.line : nil)
  }
}

extension String {
  /// This if it fits the column of a name, or nil.
  fileprivate var fittingName: String? {
    (1...255).contains(utf8.count) && utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7f } ? self : nil
  }
}

extension NotificationV1 {
  /// The date of switching auto-renew off, if Apple's response confirms it and the next product.
  func switchOff(confirmedBy receipt: VerifiedReceipt) -> AutoRenewOffDate? {
    guard autoRenews == false, let changedAt = autoRenewStatusChangedAt,
      changedAt <= receipt.requestDate
    else { return nil }
    let only = receipt.statuses.count == 1 ? receipt.statuses.keys.first : nil
    let line = originalTransactionID.map { OriginalTransactionKey(receipt.environment, $0) } ?? only
    guard let line, let status = receipt.statuses[line], status.autoRenews == false,
      autoRenewProductID == nil || status.autoRenewProductID == nil
        || autoRenewProductID == status.autoRenewProductID
    else { return nil }
    return AutoRenewOffDate(line: line, at: changedAt)
  }
}

extension NotificationRefusal {
  init(_ refusal: SignedDataError) {
    let code: Code =
      switch refusal.reason {
      case .wrongBundleID, .wrongAppAppleID: .wrongBundleID
      default: .invalidSignature
      }
    self.init(
      version: .two, code: code, reason: refusal.reason.rawValue, detail: refusal.description)
  }
}

package enum NotificationAnswer: Sendable {
  /// Stored durably; `isNew` is false for a duplicate, which does nothing.
  case stored(id: String, isNew: Bool)
  case refused(NotificationRefusal)
}

package struct NotificationRefusal: Hashable, Sendable {
  /// Problem codes of the API.
  package enum Code: String, Sendable {
    /// Not a notification, or too long.
    case invalidRequest = "invalid_request"
    case invalidSignature = "invalid_signature"
    case wrongBundleID = "wrong_bundle_id"
    case wrongSecret = "wrong_secret"
  }

  /// Nil if the body is of neither version.
  package let version: NotificationVersion?
  package let code: Code
  /// A stable name, more specific than the code; one of a fixed set.
  package let reason: String
  /// One sentence, without any posted content.
  package let detail: String

  init(version: NotificationVersion?, code: Code, reason: String? = nil, detail: String) {
    self.version = version
    self.code = code
    self.reason = reason ?? code.rawValue
    self.detail = detail
  }
}
