import Logging

extension Logger {
  /// Sends logs to standard error, where results don't go.
  ///
  /// - Parameter level: What is less grave is left out.
  /// - Returns: The program's logger.
  static func bootstrapTenure(level: Logger.Level) -> Logger {
    LoggingSystem.bootstrap { StreamLogHandler.standardError(label: $0) }
    var logger = Logger(label: "tenure")
    logger.logLevel = level
    return logger
  }
}
