package import AppStore
package import CoreMetrics
package import LedgerStorage
package import Logging
package import Subscriptions

/// Tells Apple by itself what is known here: to whom a line belongs, and what became of a purchase
/// whose money a customer asks for.
///
/// Both are off unless a setting says otherwise. What is to be told is looked up when it is told,
/// so that a job that waited for Apple tells what is right then; and whatever comes of it leaves a
/// row behind.
package struct AppleTeller: Sendable {
  /// What doing a job came to.
  package enum Outcome: Hashable, Sendable {
    /// It is over, and recorded with the end of the job.
    case told(AppleTelling.Outcome)
    /// Apple says the same already.
    case nothingToTell
    /// Apple could not be told now; nor is there any use in it before the moment that it named.
    case postponed(because: String, notBefore: Timestamp?)
  }

  /// How long a telling waits that our configuration keeps from Apple.
  private static let waitAfterMisconfiguration: Duration = .hours(1)

  let ledger: Ledger
  let serverAPI: AppStoreServerAPI?
  let catalogue: CatalogueCache
  let sandboxAccess: SandboxAccess
  let logger: Logger
  let now: @Sendable () -> Timestamp
  private let apps: AppStoreApps
  private let metrics: AppleTellingMetrics

  /// - Parameters:
  ///   - ledger: Where everything is kept; it says what is to be told.
  ///   - serverAPI: What tells Apple; nil without a key for it.
  ///   - apps: The apps that are served.
  ///   - catalogue: Which product grants what.
  ///   - sandboxAccess: Whose sandbox purchases grant anything.
  ///   - logger: For what operators should know.
  ///   - metrics: Where it is counted.
  ///   - now: The clock.
  package init(
    ledger: Ledger, serverAPI: AppStoreServerAPI?, apps: AppStoreApps, catalogue: CatalogueCache,
    sandboxAccess: SandboxAccess, logger: Logger,
    metrics: any MetricsFactory = MetricsSystem.factory, now: @escaping @Sendable () -> Timestamp
  ) {
    self.ledger = ledger
    self.serverAPI = serverAPI
    self.apps = apps
    self.catalogue = catalogue
    self.sandboxAccess = sandboxAccess
    self.logger = logger
    self.metrics = AppleTellingMetrics(metrics)
    self.now = now
  }

  /// The way to Apple, where this kind of thing is to be told.
  func serverAPI(for kind: AppleTelling.Kind) -> AppStoreServerAPI? {
    ledger.tellings.contains(kind) ? serverAPI : nil
  }

  /// The app to tell of, if it is served; the only one where nobody has said.
  func app(_ bundleID: String?) -> String? {
    guard let bundleID else { return apps.all.count == 1 ? apps.all[0].bundleID : nil }
    return apps[bundleID]?.bundleID
  }

  /// Tells Apple something, and records what came of it together with the end of the job.
  ///
  /// - Parameters:
  ///   - telling: What it is about.
  ///   - job: What tells it.
  ///   - send: Sends it.
  /// - Returns: What came of it.
  /// - Throws: What the database says.
  func tell(
    _ telling: AppleTelling, doing job: Job, _ send: () async throws -> Void
  ) async throws -> Outcome {
    var telling = telling
    do {
      try await send()
      telling.outcome = .accepted
    } catch let error as AppStoreServerAPIError {
      if error.isRetryable {
        return .postponed(because: error.description, notBefore: error.notBefore)
      }
      switch error.kind {
      case .unauthorized, .misconfigured:
        logger.error(
          "Apple can't be told anything until somebody mends something",
          metadata: ["kind": "\(telling.kind.rawValue)", "reason": "\(error)"])
        return .postponed(
          because: error.description, notBefore: now() + Self.waitAfterMisconfiguration)
      case .invalidRequest, .notFound, .forbidden, .unexpectedAnswer, .rateLimited, .unavailable,
        .unreachable:
        telling.outcome = .refused(httpStatus: error.httpStatus, code: error.code?.rawValue)
        telling.deliveryStatus = nil
        logger.warning(
          "Apple refuses what it is told",
          metadata: [
            "kind": "\(telling.kind.rawValue)", "line": "\(telling.line)", "reason": "\(error)",
          ])
      }
    }
    telling.toldAt = now()
    return try await settle(telling, ending: job)
  }

  /// Records that nothing is sent, and why, together with the end of the job.
  func skip(
    _ telling: AppleTelling, because reason: AppleTelling.Reason, ending job: Job
  ) async throws -> Outcome {
    var telling = telling
    telling.outcome = .skipped(reason)
    return try await settle(telling, ending: job)
  }

  private func settle(_ telling: AppleTelling, ending job: Job) async throws -> Outcome {
    try await ledger.record(telling, ending: job)
    metrics.count(telling.kind, telling.outcome.name)
    logger.info(
      "Something to tell Apple is settled",
      metadata: [
        "kind": "\(telling.kind.rawValue)", "line": "\(telling.line)",
        "outcome": "\(telling.outcome.name)",
      ])
    return .told(telling.outcome)
  }
}

/// Counts what Apple is told, by what came of it.
final class AppleTellingMetrics: Sendable {
  private struct Key: Hashable {
    let kind: AppleTelling.Kind
    let outcome: String
  }

  private static let outcomes: [AppleTelling.Outcome] = [
    .accepted, .refused(httpStatus: nil, code: nil), .skipped(.unowned),
  ]

  private let tellings: [Key: Counter]

  init(_ factory: any MetricsFactory) {
    let keys = AppleTelling.Kind.allCases.flatMap { kind in
      Self.outcomes.map { Key(kind: kind, outcome: $0.name) }
    }
    tellings = Dictionary(
      uniqueKeysWithValues: keys.map { key in
        let counter = Counter(
          label: "tenure_apple_tellings_total",
          dimensions: [("kind", key.kind.rawValue), ("outcome", key.outcome)], factory: factory)
        return (key, counter)
      })
  }

  func count(_ kind: AppleTelling.Kind, _ outcome: String) {
    tellings[Key(kind: kind, outcome: outcome)]?.increment()
  }
}
