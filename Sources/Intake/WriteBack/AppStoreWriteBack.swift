import AppStore
package import LedgerStorage
import Logging
package import Subscriptions

/// Writes the owner of an original transaction, and the use of a purchase for which a refund is
/// requested, back to Apple.
///
/// Both are off by default. The data is read when it is sent, not when the job is enqueued, and
/// every outcome is recorded.
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
      "tenure_apple_tellings_total", by: "kind", "outcome",
      of: WriteBack.Kind.allCases.flatMap { kind in outcomes.map { [kind.rawValue, $0.name] } })
  }

  /// The client, if this kind is turned on.
  func serverAPI(for kind: WriteBack.Kind) -> AppStoreServerAPI? {
    ledger.writeBackKinds.contains(kind) ? serverAPI : nil
  }

  /// Sends a write-back, records its outcome and completes the job.
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

  /// Records why nothing is sent, and completes the job.
  func skip(
    _ writeBack: WriteBack, because reason: WriteBack.Reason, ending job: Job
  ) async throws -> Outcome {
    var writeBack = writeBack
    writeBack.outcome = .skipped(reason)
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
