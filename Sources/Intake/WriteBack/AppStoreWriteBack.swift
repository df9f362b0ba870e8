import AppStore
package import LedgerStorage
import Logging
package import Subscriptions
import struct Foundation.UUID

/// Writes owners, and the use of purchases for which refunds are requested, back to Apple.
///
/// Off by default. The data is read when it is sent, and every outcome is recorded.
package struct AppStoreWriteBack: IntakePart {
  package enum Outcome: Hashable, Sendable {
    /// Recorded, and the job is completed.
    case finished(WriteBack.Outcome)
    /// Apple has the same already.
    case nothingToSend
    /// Apple was not available, and may have named the time of the next try.
    case postponed(because: String, notBefore: Timestamp?)
  }

  private static let waitAfterMisconfiguration: Duration = .hours(1)

  let services: IntakeServices
  private let counters: CounterTable

  package init(_ services: IntakeServices) {
    self.services = services
    let outcomes: [WriteBack.Outcome] = [
      .accepted, .refused(httpStatus: nil, code: nil), .skipped(.unowned),
    ]
    counters = CounterTable(
      "tenure_write_backs_total", by: "kind", "outcome",
      of: WriteBack.Kind.allCases.flatMap { kind in outcomes.map { [kind.rawValue, $0.name] } })
  }

  func serverAPI(for kind: WriteBack.Kind) -> AppStoreServerAPI? {
    ledger.writeBackKinds.contains(kind) ? serverAPI : nil
  }

  func send(
    _ writeBack: WriteBack, doing job: Job, _ send: () async throws -> Void
  ) async throws -> Outcome {
    var writeBack = writeBack
    do {
      try await send()
      writeBack.outcome = .accepted
    } catch let error as AppStoreServerAPIError {
      if error.isRetryable {
        return .postponed(because: error.description, notBefore: error.notBefore)
      }
      switch error.kind {
      case .unauthorized, .misconfigured:
        logger.error(
          "Write-back to Apple failed: configuration error",
          metadata: ["kind": "\(writeBack.kind.rawValue)", "reason": "\(error)"])
        return .postponed(
          because: error.description, notBefore: now() + Self.waitAfterMisconfiguration)
      case .invalidRequest, .notFound, .forbidden, .unexpectedAnswer, .rateLimited, .unavailable,
        .unreachable:
        writeBack.outcome = .refused(httpStatus: error.httpStatus, code: error.code?.rawValue)
        writeBack.deliveryStatus = nil
        logger.warning(
          "Apple refused a write-back",
          metadata: [
            "kind": "\(writeBack.kind.rawValue)", "line": "\(writeBack.line)", "reason": "\(error)",
          ])
      }
    }
    writeBack.sentAt = now()
    return try await settle(writeBack, ending: job)
  }

  private func settle(_ writeBack: WriteBack, ending job: Job) async throws -> Outcome {
    try await ledger.writeBacks.record(writeBack, ending: job)
    counters.increment(writeBack.kind.rawValue, writeBack.outcome.name)
    logger.info(
      "Write-back to Apple finished",
      metadata: [
        "kind": "\(writeBack.kind.rawValue)", "line": "\(writeBack.line)",
        "outcome": "\(writeBack.outcome.name)",
      ])
    return .finished(writeBack.outcome)
  }
}

extension AppStoreWriteBack {
  /// Replaces Apple's token by that of the bound account, for renewals and StoreKit to carry.
  ///
  /// Nothing is sent if Apple has the token already or accepts none.
  package func sendOwnership(of line: OriginalTransactionKey, doing job: Job) async throws
    -> Outcome
  {
    var writeBack = WriteBack(.ownership, of: line, at: now(), outcome: .skipped(.unowned))
    do {
      guard let serverAPI = serverAPI(for: .ownership) else { throw WriteBack.Reason.turnedOff }
      guard let original = try await ledger.ownership.original(of: line),
        let charge = original.rule.charges.latestCharge,
        let owner = original.charge(of: charge.id)?.recorded.decision.owner
      else { throw WriteBack.Reason.unowned }
      // Of linked original transactions, the one that renews.
      writeBack.line = charge.id.line
      writeBack.account = owner
      guard let known = try await ledger.writeBacks.pendingOwnership(of: writeBack.line, to: owner)
      else { throw WriteBack.Reason.unowned }
      writeBack.bundleID = app(known.bundleID)
      if known.isErased { throw WriteBack.Reason.accountErased }
      if known.isMerged { throw WriteBack.Reason.accountMerged }
      if original.isFamilyShared(charge) { throw WriteBack.Reason.familyShared }
      if charge.type(in: services.catalogue.catalogue) == .consumable {
        throw WriteBack.Reason.consumable
      }
      guard let bundleID = writeBack.bundleID else { throw WriteBack.Reason.unknownApp }
      if known.isSent(owner, after: original.token(of: charge)) { return .nothingToSend }
      return try await send(writeBack, doing: job) {
        _ = try await serverAPI.setAppAccountToken(
          known.token, on: writeBack.line.originalTransactionID, of: bundleID,
          in: writeBack.line.environment)
      }
    } catch let reason as WriteBack.Reason {
      writeBack.outcome = .skipped(reason)
      return try await settle(writeBack, ending: job)
    }
  }
}

extension RecordedOriginalTransaction {
  /// The latest token in Apple's evidence for a charge.
  fileprivate func token(of charge: Charge) -> Dated<UUID>? {
    charge.transactions.compactMap { line.history[$0]?.appAccountToken }
      .max { $0.asOf < $1.asOf }
  }
}

extension WriteBackStore.PendingOwnership {
  /// Whether Apple has the account's token already, by its evidence or by a later write-back.
  fileprivate func isSent(_ owner: AccountKey, after reported: Dated<UUID>?) -> Bool {
    if let lastSent, lastSent.at >= reported?.asOf ?? lastSent.at {
      return lastSent.account == owner
    }
    return reported?.value == token
  }
}

extension AppStoreWriteBack {
  /// The time that Apple waits for an answer after signing the notification.
  ///
  /// https://developer.apple.com/documentation/appstoreserverapi/send-consumption-information
  package static let patienceOfApple: Duration = .hours(12)

  /// Answers a notification that asks about a purchase, if the customer has consented.
  package func sendConsumption(
    askedBy notificationID: String, doing job: Job
  ) async throws -> Outcome {
    guard let question = try await ledger.writeBacks.consumptionQuestion(notificationID) else {
      return .nothingToSend
    }
    var writeBack = WriteBack(
      .consumption, of: question.line, at: now(), bundleID: app(question.bundleID),
      request: question.request, outcome: .skipped(.unowned))
    let original = try await ledger.ownership.original(of: question.line)
    let charge = original?.charge(on: question.line, question.request.transactionID)
    if let original, let charge {
      writeBack.account = original.charge(of: charge.id)?.recorded.decision.owner
    }
    do {
      guard let serverAPI = serverAPI(for: .consumption) else { throw WriteBack.Reason.turnedOff }
      guard now() < question.askedAt + Self.patienceOfApple else { throw WriteBack.Reason.tooLate }
      guard let original, let charge, let owner = writeBack.account,
        let name = original.names[owner]
      else { throw WriteBack.Reason.unowned }
      if original.line.history.erasures[owner] != nil { throw WriteBack.Reason.accountErased }
      if original.isFamilyShared(charge) { throw WriteBack.Reason.familyShared }
      guard let bundleID = writeBack.bundleID else { throw WriteBack.Reason.unknownApp }
      guard try await ledger.writeBacks.hasConsumptionConsent(owner) else {
        throw WriteBack.Reason.noConsent
      }
      var request = ConsumptionRequest()
      request.customerConsented = true
      // The other fields are unknown here.
      request.sampleContentProvided = false
      let status = DeliveryStatus(
        of: charge, deliveredAt: original.deliveries[charge.id], to: name, by: terms)
      request.deliveryStatus = status
      writeBack.deliveryStatus = status.rawValue
      let body = request
      return try await send(writeBack, doing: job) {
        _ = try await serverAPI.sendConsumptionInformation(
          body, on: question.request.transactionID, of: bundleID, in: question.line.environment)
      }
    } catch let reason as WriteBack.Reason {
      writeBack.outcome = .skipped(reason)
      return try await settle(writeBack, ending: job)
    }
  }
}

extension RecordedOriginalTransaction {
  fileprivate func charge(on line: OriginalTransactionKey, _ id: TransactionID) -> Charge? {
    rule.charges.last { charge in
      charge.transactions.contains { $0.line == line && $0.transactionID == id }
    }
  }
}

extension DeliveryStatus {
  /// Delivered if the app's server acknowledged it, or if the charge grants entitlements.
  init(of charge: Charge, deliveredAt: Timestamp?, to accountID: String, by terms: AccessTerms) {
    let isAccess =
      charge.type(in: terms.catalogue) != .consumable
      && terms.catalogue[charge.productID]?.entitlements.isEmpty == false
      && terms.sandboxAccess.grants(charge.id.line.environment, to: accountID)
    self = deliveredAt != nil || isAccess ? .delivered : .undeliveredOther
  }
}
