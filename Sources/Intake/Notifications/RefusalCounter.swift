import LedgerStorage
import Logging
import Subscriptions

/// Counts refused notifications by hour and reason, without their content.
///
/// Those that arrive while a statement runs are written together: a flood takes one connection.
actor RefusalCounter {
  private struct Key: Hashable {
    var hour: Timestamp
    var version: NotificationVersion?
    var reason: String
  }

  private let ledger: Ledger
  private let logger: Logger
  private var gathered: [Key: RefusedNotifications] = [:]
  /// The time of the last log line for each reason of this hour.
  private var logged: [Key: Timestamp] = [:]
  private var isWriting = false

  init(ledger: Ledger, logger: Logger) {
    self.ledger = ledger
    self.logger = logger
  }

  /// Counts a refusal, and logs it if it is the first for its reason in a minute.
  ///
  /// `digest`: the body's SHA-256; nil if it was not read to its end.
  func add(
    _ refusal: NotificationRefusal, bytes: Int, digest: [UInt8]?, at moment: Timestamp
  ) async {
    let key = Key(hour: moment.hour, version: refusal.version, reason: refusal.reason)
    if logged[key].map({ moment - $0 >= .minutes(1) }) ?? true {
      logged = logged.filter { $0.key.hour == key.hour }
      logged[key] = moment
      logger.warning(
        "Notification refused; more for this reason are only counted for a minute",
        metadata: [
          "notification.version": "\(refusal.version.map { "\($0.rawValue)" } ?? "none")",
          "reason": "\(refusal.reason)", "detail": "\(refusal.detail)", "bytes": "\(bytes)",
        ])
    }
    gathered[key] = RefusedNotifications(
      hour: key.hour, version: key.version, reason: key.reason,
      count: (gathered[key]?.count ?? 0) + 1, lastAt: moment, lastDetail: refusal.detail,
      lastBodyBytes: bytes, lastBodySHA256: digest)
    guard !isWriting else { return }
    isWriting = true
    while !gathered.isEmpty {
      let refused = Array(gathered.values)
      gathered = [:]
      do {
        try await ledger.notifications.trace(refused)
      } catch {
        // The answers do not depend on the count, and the metric has them.
        logger.error("Counting refused notifications failed", metadata: ["error": "\(error)"])
      }
    }
    isWriting = false
  }
}

extension Timestamp {
  fileprivate var hour: Timestamp {
    Timestamp(milliseconds: milliseconds - milliseconds % 3_600_000)
  }
}
