import Intake
package import Logging
import Observability

/// How lines of the log look.
package enum LogFormat: String, CaseIterable, Sendable {
  /// For people.
  case text
  /// One object a line.
  case json
}

extension Logger {
  /// Sends logs to standard error, where results don't go.
  ///
  /// - Parameters:
  ///   - level: What is less grave is left out.
  ///   - format: How lines look.
  /// - Returns: The program's logger.
  package static func bootstrapTenure(level: Logger.Level, format: LogFormat = .text) -> Logger {
    LoggingSystem.bootstrap(
      { label, provider in
        switch format {
        case .text: StreamLogHandler.standardError(label: label, metadataProvider: provider)
        case .json: JSONLogHandler(label: label, metadataProvider: provider)
        }
      },
      metadataProvider: .multiplex(
        [Occasion.metadataProvider, OpenTelemetryTracer.metadataProvider]))
    var logger = Logger(label: "tenure")
    logger.logLevel = level
    return logger
  }
}
