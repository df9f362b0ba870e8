import Intake
import Logging
import Synchronization

/// Discards all messages.
let quietLogger = Logger(label: "quiet") { _ in SwiftLogNoOpLogHandler() }

/// Records all messages.
final class RecordedLog: Sendable {
  struct Line: Sendable {
    var level: Logger.Level
    var message: String
    var metadata: [String: String]
  }

  private let recorded = Mutex<[Line]>([])
  private let threshold = Mutex(Logger.Level.trace)

  /// The least severe level that is logged; may be changed while loggers are in use.
  var level: Logger.Level {
    get { threshold.withLock { $0 } }
    set { threshold.withLock { $0 = newValue } }
  }

  var lines: [Line] { recorded.withLock { $0 } }
  var text: String { lines.map { "\($0)" }.joined(separator: "\n") }

  var logger: Logger {
    Logger(label: "test") { _ in Handler(log: self) }
  }

  private struct Handler: LogHandler {
    let log: RecordedLog
    var logLevel: Logger.Level {
      get { log.level }
      set { log.level = newValue }
    }
    var metadata: Logger.Metadata = [:]

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
      get { metadata[key] }
      set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
      let metadata =
        metadata.merging(LogContext.metadataProvider.get()) { $1 }
        .merging(event.metadata ?? [:]) { $1 }
      let line = Line(
        level: event.level, message: "\(event.message)",
        metadata: metadata.mapValues { "\($0)" })
      log.recorded.withLock { $0.append(line) }
    }
  }
}
