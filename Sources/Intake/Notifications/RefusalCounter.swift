import LedgerStorage
import Logging
import Subscriptions

/// Leaves a trace of what was refused, and none of its content.
///
/// Anybody may post anything, as often as they like. So refusals are counted by hour and reason,
/// and while one statement writes them the next ones gather: a flood takes one connection and a few
/// rows.
actor RefusalTrace {
  private struct Key: Hashable {
    var hour: Timestamp
    var version: NotificationVersion?
    var reason: String
  }

  private let ledger: Ledger
  private let logger: Logger
  private var gathered: [Key: RefusedNotifications] = [:]
  /// When each reason was last logged, by version and reason.
  private var logged: [Key: Timestamp] = [:]
  private var isWriting = false

  init(ledger: Ledger, logger: Logger) {
    self.ledger = ledger
    self.logger = logger
  }

  /// Logs a refusal if it is the first of its reason in a minute, and counts it.
  ///
  /// Returns when it is written, or another call is about to write it.
  ///
  /// - Parameters:
  ///   - refusal: Why.
  ///   - bytes: The length of what was posted.
  ///   - digest: Its SHA-256; nil for what was not read to its end.
  ///   - moment: When it was posted.
  func add(
    _ refusal: NotificationRefusal, bytes: Int, digest: [UInt8]?, at moment: Timestamp
  ) async {
    let key = Key(hour: moment.hour, version: refusal.version, reason: refusal.reason)
    if logged[key].map({ moment - $0 >= .minutes(1) }) ?? true {
      logged = logged.filter { $0.key.hour == key.hour }
      logged[key] = moment
      logger.warning(
        "A notification is refused; more for this reason are counted and not logged for a minute",
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
        try await ledger.trace(refused)
      } catch {
        // The answer does not depend on the trace, and the metric has them.
        logger.error(
          "Refused notifications could not be counted", metadata: ["error": "\(error)"])
      }
    }
    isWriting = false
  }
}

extension Timestamp {
  /// The beginning of its hour.
  fileprivate var hour: Timestamp {
    Timestamp(milliseconds: milliseconds - milliseconds % 3_600_000)
  }
}
