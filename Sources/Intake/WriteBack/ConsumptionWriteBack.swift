import AppStore
package import LedgerStorage
import Subscriptions

/// What became of a purchase, from the notification that asks to Apple's acknowledgement.
extension AppleTeller {
  /// How long Apple waits for an answer, from the moment when it signed the question.
  ///
  /// https://developer.apple.com/documentation/appstoreserverapi/send-consumption-information
  package static let patienceOfApple: Duration = .hours(12)

  /// Answers a notification that asks what became of a purchase, if the customer agrees.
  ///
  /// - Parameters:
  ///   - notificationID: What asks.
  ///   - job: Claimed.
  /// - Returns: What came of it. The job is ended where it is told.
  /// - Throws: What the database says.
  package func tellConsumption(
    askedBy notificationID: String, doing job: Job
  ) async throws -> Outcome {
    guard let question = try await ledger.consumptionQuestion(notificationID) else {
      return .nothingToTell
    }
    var telling = AppleTelling(
      .consumption, of: question.line, at: now(), bundleID: app(question.bundleID),
      request: question.request, outcome: .skipped(.unowned))
    let family = try await ledger.family(of: question.line)
    let charge = family?.charge(on: question.line, question.request.transactionID)
    if let family, let charge {
      telling.account = family.charge(of: charge.id)?.recorded.decision.owner
    }
    guard let serverAPI = serverAPI(for: .consumption) else {
      return try await skip(telling, because: .turnedOff, ending: job)
    }
    guard now() < question.askedAt + Self.patienceOfApple else {
      return try await skip(telling, because: .tooLate, ending: job)
    }
    guard let family, let charge, let owner = telling.account, let name = family.names[owner]
    else { return try await skip(telling, because: .unowned, ending: job) }
    if family.line.history.erasures[owner] != nil {
      return try await skip(telling, because: .accountErased, ending: job)
    }
    if family.isFamilyShared(charge) {
      return try await skip(telling, because: .familyShared, ending: job)
    }
    guard let bundleID = telling.bundleID else {
      return try await skip(telling, because: .unknownApp, ending: job)
    }
    guard try await ledger.hasConsumptionConsent(owner) else {
      return try await skip(telling, because: .noConsent, ending: job)
    }
    var request = ConsumptionRequest()
    request.customerConsented = true
    // What could be tried before, how much was used and what should be done is not known here.
    request.sampleContentProvided = false
    let status = DeliveryStatus(
      of: charge, deliveredAt: family.deliveries[charge.id], to: name,
      by: catalogue.terms(sandboxAccess))
    request.deliveryStatus = status
    telling.deliveryStatus = status.rawValue
    let body = request
    return try await tell(telling, doing: job) {
      _ = try await serverAPI.sendConsumptionInformation(
        body, on: question.request.transactionID, of: bundleID, in: question.line.environment)
    }
  }
}

extension RecordedFamily {
  /// The charge that a transaction of a line reports.
  fileprivate func charge(on line: LineID, _ id: TransactionID) -> Charge? {
    rule.charges.last { charge in
      charge.transactions.contains { $0.line == line && $0.transactionID == id }
    }
  }
}

extension DeliveryStatus {
  /// What is known of whether an account has what a charge paid for: the app's server has
  /// acknowledged it, or it is access, which the ledger gives by itself.
  ///
  /// - Parameters:
  ///   - charge: The charge.
  ///   - deliveredAt: When the app's server said that it is delivered; nil: it has not.
  ///   - accountID: Whose it is.
  ///   - terms: By what it is judged what accounts may use.
  init(
    of charge: Charge, deliveredAt: Timestamp?, to accountID: String, by terms: AccessTerms
  ) {
    let isAccess =
      charge.type(in: terms.catalogue) != .consumable
      && terms.catalogue[charge.productID]?.entitlements.isEmpty == false
      && terms.grantsAccess(in: charge.id.line.environment, to: accountID)
    self = deliveredAt != nil || isAccess ? .delivered : .undeliveredOther
  }
}
