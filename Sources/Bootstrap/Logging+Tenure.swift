import Intake
package import Logging
import Observability

package enum LogFormat: String, CaseIterable, Sendable {
  case text
  /// One object per line.
  case json
}

extension Logger {
  /// Sends logs to standard error, because results go to standard output.
  package static func bootstrapTenure(level: Logger.Level, format: LogFormat = .text) -> Logger {
    LoggingSystem.bootstrap(
      { label, provider in
        switch format {
        case .text: StreamLogHandler.standardError(label: label, metadataProvider: provider)
        case .json: JSONLogHandler(label: label, metadataProvider: provider)
        }
      },
      metadataProvider: .multiplex(
        [LogContext.metadataProvider, OpenTelemetryTracer.metadataProvider]))
    var logger = Logger(label: "tenure")
    logger.logLevel = level
    return logger
  }
}
