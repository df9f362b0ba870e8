import AppStore
import Subscriptions

import struct Foundation.UUID

/// Notifications of version 2, and who gets which.
extension AppStoreState {
  /// A charge as the subject of a notification.
  struct Subject {
    let charge: Int
    let line: Int
  }

  /// Writes to the app's servers what they are told of an event.
  mutating func notify(about event: SimulatedEvent) {
    guard let charge = chargeNumbers[event.transactionID] else { return }
    let line = charges[charge].line
    let targets = mail.targets(
      of: NotificationMail.Addressee(app: lines[line].app, environment: event.environment))
    guard !targets.isEmpty else { return }
    for subject in [Subject(charge: charge, line: line)] + shares(of: event, charge, line) {
      for version in SimulatedNotification.Version.allCases {
        let targets = targets.filter { $0.version == version }
        guard !targets.isEmpty else { continue }
        switch version {
        case .v1, .v1Before2021: ring(about: event, subject, as: version, at: targets)
        case .v2: write(about: event, subject, to: targets)
        }
      }
    }
  }

  /// The shares in a charge that an event of the purchaser's concerns.
  private func shares(of event: SimulatedEvent, _ charge: Int, _ line: Int) -> [Subject] {
    guard event.concernsShares, lines[line].ownership == .purchased else { return [] }
    return customers[lines[line].customer].familyMembers.flatMap { customers[$0].lines }
      .filter { lines[$0].sharedFrom == line }
      .compactMap { share in
        let own = charges[charge].shares.first { charges[$0].line == share }
        return (own ?? standingCharge(of: share)).map { Subject(charge: $0, line: share) }
      }
  }

  private mutating func write(
    about event: SimulatedEvent, _ subject: Subject, to targets: [NotificationTarget]
  ) {
    guard let (type, subtype) = event.type2 else { return }
    var data = data(about: subject)
    if case .refundRequested(let reason) = event.kind {
      data.consumptionRequestReason = reason.rawValue
    }
    write(type, subtype, about: event, subject, to: targets) { $0.data = data }
  }

  private func data(about subject: Subject) -> NotificationData {
    let line = lines[subject.line]
    var data = NotificationData()
    data.environment = SignedEnvironment(line.environment)
    if line.environment == .production { data.appAppleID = Int64(apps[line.app].appAppleID) }
    data.bundleID = apps[line.app].bundleID
    data.bundleVersion = apps[line.app].version
    data.signedTransactionInfo = signer.sign(transactionPayload(of: subject.charge).json)
    data.signedRenewalInfo = renewalPayload(of: subject.line).map { signer.sign($0.json) }
    data.status = subscriptionStatus(of: subject.line)
    return data
  }

  private mutating func write(
    _ type: NotificationTypeV2, _ subtype: NotificationSubtype?, about event: SimulatedEvent?,
    _ subject: Subject, to targets: [NotificationTarget],
    _ fill: (inout ResponseBodyV2DecodedPayload) -> Void
  ) {
    let uuid = mail.nextUUID()
    post(
      signed(type, subtype, uuid: uuid, fill), uuid: uuid, version: .v2, type: type.rawValue,
      subtype: subtype?.rawValue, about: event, subject, to: targets)
  }

  private func signed(
    _ type: NotificationTypeV2, _ subtype: NotificationSubtype?, uuid: UUID,
    _ fill: (inout ResponseBodyV2DecodedPayload) -> Void
  ) -> SimulatedNotification.Content {
    var payload = ResponseBodyV2DecodedPayload()
    payload.notificationType = type
    payload.subtype = subtype
    payload.notificationUUID = uuid.uuidString.lowercased()
    payload.version = "2.0"
    payload.signedDate = now
    fill(&payload)
    return .signed(signer.sign(payload.json))
  }

  mutating func post(
    _ content: SimulatedNotification.Content, uuid: UUID, version: SimulatedNotification.Version,
    type: String, subtype: String?, about event: SimulatedEvent?, _ subject: Subject,
    to targets: [NotificationTarget]
  ) {
    let line = lines[subject.line]
    mail.post(
      SimulatedNotification(
        number: mail.nextNumber, uuid: uuid, version: version, type: type, subtype: subtype,
        environment: line.environment, bundleID: apps[line.app].bundleID, at: now, event: event,
        transactionID: charges[subject.charge].transactionID, originalTransactionID: line.id,
        content: content),
      to: targets)
  }

  // MARK: About an app

  /// Writes a test notification, which tells nothing; nil without a URL for version 2.
  mutating func writeTest(app: Int, environment: Environment) -> SimulatedNotification? {
    var data = NotificationData()
    data.environment = SignedEnvironment(environment)
    if environment == .production { data.appAppleID = Int64(apps[app].appAppleID) }
    data.bundleID = apps[app].bundleID
    return write(.test, nil, to: app, environment) { $0.data = data }
  }

  /// Tells that a subscription was not extended together with the others.
  mutating func writeExtensionFailure(_ subject: Subject) {
    let line = lines[subject.line]
    let targets = targets2(app: line.app, line.environment)
    guard !targets.isEmpty else { return }
    let data = data(about: subject)
    write(.renewalExtension, .failure, about: nil, subject, to: targets) { $0.data = data }
  }

  /// Tells what came of extending many.
  mutating func writeSummary(of result: MassExtension, countries: [String]?) {
    var summary = NotificationSummary()
    summary.environment = SignedEnvironment(result.environment)
    if result.environment == .production {
      summary.appAppleID = Int64(apps[result.app].appAppleID)
    }
    summary.bundleID = apps[result.app].bundleID
    summary.productID = result.product.rawValue
    summary.requestIdentifier = result.identifier
    summary.storefrontCountryCodes = countries
    summary.succeededCount = Int64(result.succeeded)
    summary.failedCount = Int64(result.failed)
    _ = write(.renewalExtension, .summary, to: result.app, result.environment) {
      $0.summary = summary
    }
  }

  private func targets2(app: Int, _ environment: Environment) -> [NotificationTarget] {
    mail.targets(of: NotificationMail.Addressee(app: app, environment: environment))
      .filter { $0.version == .v2 }
  }

  private mutating func write(
    _ type: NotificationTypeV2, _ subtype: NotificationSubtype?, to app: Int,
    _ environment: Environment, _ fill: (inout ResponseBodyV2DecodedPayload) -> Void
  ) -> SimulatedNotification? {
    let targets = targets2(app: app, environment)
    guard !targets.isEmpty else { return nil }
    let uuid = mail.nextUUID()
    let notification = SimulatedNotification(
      number: mail.nextNumber, uuid: uuid, version: .v2, type: type.rawValue,
      subtype: subtype?.rawValue, environment: environment, bundleID: apps[app].bundleID,
      at: now, event: nil, transactionID: nil, originalTransactionID: nil,
      content: signed(type, subtype, uuid: uuid, fill))
    mail.post(notification, to: targets)
    return notification
  }
}
