package import LedgerStorage

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
