package import LedgerStorage
package import Logging
import ServiceLifecycle

/// Notices when another program upgrades the schema.
package struct SchemaWatch: Service {
  /// The reaction to a schema that this program can't use.
  package enum Ending: Sendable {
    /// End the program, which could only fail.
    case program
    /// Log it; the readiness check fails, too.
    case nothing
  }

  package static let interval: Duration = .seconds(15)

  private let schema: SchemaMigrator
  private let ending: Ending
  private let interval: Duration
  private let logger: Logger

  package init(
    schema: SchemaMigrator, ending: Ending, interval: Duration = Self.interval, logger: Logger
  ) {
    self.schema = schema
    self.ending = ending
    self.interval = interval
    self.logger = logger
  }

  package func run() async throws {
    try await cancelWhenGracefulShutdown {
      var known = SchemaStatus.current
      var isRefused = false
      while !Task.isCancelled {
        do {
          let status = try await schema.check()
          if case .ahead(let version) = status, status != known {
            logger.warning("\(SchemaStatus.sentence(on: version))")
          }
          (known, isRefused) = (status, false)
        } catch let error as LedgerError {
          if ending == .program { throw error }
          if !isRefused { logger.critical("\(error)") }
          isRefused = true
        } catch {
          // Requests and jobs report an unreachable database.
        }
        try? await Task.sleep(for: interval)
      }
    }
  }
}
