import AppStore
package import LedgerStorage
import Subscriptions

/// Send Consumption Information.
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
    guard let serverAPI = serverAPI(for: .consumption) else {
      return try await skip(writeBack, because: .turnedOff, ending: job)
    }
    guard now() < question.askedAt + Self.patienceOfApple else {
      return try await skip(writeBack, because: .tooLate, ending: job)
    }
    guard let original, let charge, let owner = writeBack.account, let name = original.names[owner]
    else { return try await skip(writeBack, because: .unowned, ending: job) }
    if original.line.history.erasures[owner] != nil {
      return try await skip(writeBack, because: .accountErased, ending: job)
    }
    if original.isFamilyShared(charge) {
      return try await skip(writeBack, because: .familyShared, ending: job)
    }
    guard let bundleID = writeBack.bundleID else {
      return try await skip(writeBack, because: .unknownApp, ending: job)
    }
    guard try await ledger.writeBacks.hasConsumptionConsent(owner) else {
      return try await skip(writeBack, because: .noConsent, ending: job)
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
