import Logging
import Synchronization

/// Everything that is logged, at every level, as text.
final class CollectedLog: Sendable {
  private let collected = Mutex<[String]>([])

  var lines: [String] { collected.withLock { $0 } }

  var logger: Logger {
    var logger = Logger(label: "test") { _ in Handler(log: self) }
    logger.logLevel = .trace
    return logger
  }

  private struct Handler: LogHandler {
    let log: CollectedLog
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.trace

    subscript(metadataKey key: String) -> Logger.MetadataValue? {
      get { metadata[key] }
      set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
      let all = metadata.merging(event.metadata ?? [:]) { $1 }
      log.collected.withLock { $0.append("\(event.level) \(event.message) \(all)") }
    }
  }
}
