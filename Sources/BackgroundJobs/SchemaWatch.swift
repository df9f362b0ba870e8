package import LedgerStorage
package import Logging
import ServiceLifecycle

/// Notices beside a running program that another one has brought the schema further.
package struct SchemaWatch: Service {
  /// What to do once the schema serves this program no longer.
  package enum Ending: Sendable {
    /// End the program: what it would do from then on could only fail.
    case program
    /// Go on and say so: readiness tells the balancer.
    case nothing
  }

  /// Once in this time, by the real clock.
  package static let interval: Duration = .seconds(15)

  private let schema: SchemaMigrator
  private let ending: Ending
  private let interval: Duration
  private let logger: Logger

  /// - Parameters:
  ///   - schema: What is looked at.
  ///   - ending: What to do once it serves this program no longer.
  ///   - interval: How often it is looked at.
  ///   - logger: Told of each change once.
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
      var known = SchemaStanding.current
      var isRefused = false
      while !Task.isCancelled {
        do {
          let standing = try await schema.check()
          if case .ahead(let version) = standing, standing != known {
            logger.warning("\(SchemaStanding.sentence(on: version))")
          }
          (known, isRefused) = (standing, false)
        } catch let error as LedgerError {
          if ending == .program { throw error }
          if !isRefused { logger.critical("\(error)") }
          isRefused = true
        } catch {
          // Whoever needs the database says that it can't be reached.
        }
        try? await Task.sleep(for: interval)
      }
    }
  }
}
