import Crypto
package import JSONText
import Secrets
package import Subscriptions

/// A version 1 notification
/// (https://developer.apple.com/documentation/appstoreservernotifications/responsebodyv1).
///
/// It is unsigned, so anyone with the shared secret could forge it, and anyone who has seen it could
/// replay it. It therefore only triggers verification of its receipt, and only Apple's response
/// counts.
///
/// Until 2021-03-10 the receipt and its newest transaction were at the top level, in iOS 6 format;
/// since then they are in `unified_receipt`. Some bodies contain both.
package struct NotificationV1: Sendable {
  /// Apple's `notification_type`, one of ``types`` or unknown.
  package let notificationType: String
  /// "PROD" or "Sandbox" at the top level, "Production" or "Sandbox" below.
  package let environment: Environment?
  /// `bid`; in old bodies it is part of the transaction, or missing.
  package let bundleID: String?
  /// The original transaction concerned; nil if the body names none and contains several.
  package let originalTransactionID: OriginalTransactionID?
  package let autoRenews: Bool?
  package let autoRenewProductID: ProductID?
  package let autoRenewStatusChangedAt: Timestamp?
  package let receiptData: String?
  /// The posted body without its password.
  package let body: JSONValue
  let password: String?

  /// Apple's types of version 1, as of 2026-06.
  package static let types = [
    "CANCEL", "CONSUMPTION_REQUEST", "DID_CHANGE_RENEWAL_PREF", "DID_CHANGE_RENEWAL_STATUS",
    "DID_FAIL_TO_RENEW", "DID_RECOVER", "DID_RENEW", "INITIAL_BUY", "INTERACTIVE_RENEWAL",
    "PRICE_INCREASE_CONSENT", "REFUND", "RENEWAL", "REVOKE",
  ]

  package init?(_ json: JSONValue) {
    guard case .object(let members) = json, let type = try? json.identifier("notification_type")
    else { return nil }
    notificationType = type
    password = json["password"]?.string
    body = .object(members.filter { $0.key != "password" })

    let unified = json["unified_receipt"] ?? .null
    let old = ["latest_receipt_info", "latest_expired_receipt_info"].compactMap { json[$0] }
    environment = [json, unified].lazy.compactMap { Self.environment($0["environment"]) }.first
    bundleID = ([json] + old).lazy.compactMap { try? $0.identifier("bid") }.first
    originalTransactionID = Self.line(of: json, unified, old)
    autoRenews = try? json.flag("auto_renew_status")
    autoRenewProductID = (try? json.identifier("auto_renew_product_id")).map { ProductID($0) }
    autoRenewStatusChangedAt = try? json.moment("auto_renew_status_change_date")
    receiptData = [
      unified["latest_receipt"], json["latest_receipt"], json["latest_expired_receipt"],
    ].lazy.compactMap { $0?.string }.first { !$0.isEmpty }
  }

  /// The original transaction that is named, or the only one contained.
  private static func line(
    of json: JSONValue, _ unified: JSONValue, _ old: [JSONValue]
  ) -> OriginalTransactionID? {
    func id(_ item: JSONValue) -> OriginalTransactionID? {
      (try? item.transactionIdentifier("original_transaction_id")).map { OriginalTransactionID($0) }
    }
    if let named = id(json) { return named }
    let lists = ["latest_receipt_info", "pending_renewal_info"].compactMap { unified[$0]?.array }
    let shown = Set((old + lists.joined()).compactMap(id))
    return shown.count == 1 ? shown.first : nil
  }

  private static func environment(_ value: JSONValue?) -> Environment? {
    // Longer values match none of these.
    guard let text = value?.string, text.utf8.count <= 16, text.isASCII else { return nil }
    return switch text.lowercased() {
    case "prod", "production": .production
    case "sandbox": .sandbox
    default: nil
    }
  }

  /// An ID, because Apple assigns none: the SHA-256 without the password, the same when sent again.
  package var id: String { "v1:" + SHA256.hash(data: body.bytes).hexadecimal }
}

/// Whether a version 1 notification contains the shared secret of a configured app.
package enum NotificationV1Sender: Hashable, Sendable {
  /// The app is nil if the body names none and several share the secret.
  case app(bundleID: String?)
  /// One sentence without posted content.
  case wrongSecret(String)
  case wrongBundleID(String)
}

extension AppStoreApps {
  /// Finds the app that sent a version 1 notification, comparing all secrets in constant time.
  package func sender(of notification: NotificationV1) -> NotificationV1Sender {
    // Digests have equal lengths, so comparing them reveals nothing about the secrets.
    let password = notification.password.map { SHA256.hash(data: Array($0.utf8)) }
    var matching: [AppStoreApp] = []
    for app in all {
      guard let secret = app.sharedSecret else { continue }
      if SHA256.hash(data: Array(secret.revealed.utf8)) == password { matching.append(app) }
    }
    guard let bundleID = notification.bundleID else {
      switch matching.count {
      case 0: return .wrongSecret("The password is not the shared secret of any configured app.")
      case 1: return .app(bundleID: matching[0].bundleID)
      default: return .app(bundleID: nil)
      }
    }
    guard let app = self[bundleID] else {
      return .wrongBundleID("`bid` names an app that is not configured.")
    }
    guard app.sharedSecret != nil else {
      return .wrongSecret(
        "No shared secret is configured for \(app.bundleID), so its version 1 notifications can't "
          + "be verified.")
    }
    guard matching.contains(app) else {
      return .wrongSecret("The password is not the shared secret of \(app.bundleID).")
    }
    return .app(bundleID: bundleID)
  }
}
