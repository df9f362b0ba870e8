import AppStore
import JSONText
import LedgerStorage
import Subscriptions

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
