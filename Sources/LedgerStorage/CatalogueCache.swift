package import Logging
package import Subscriptions
import Synchronization

/// The catalogue in memory, so that no read asks the database for it.
///
/// A change made through this process counts at once; another process's, when its notification
/// arrives and at the latest after ``refreshInterval``.
package final class CatalogueCache: Sendable {
  /// How long a change may stay unnoticed where notifications are lost.
  package static let refreshInterval: Duration = .seconds(5)

  private let ledger: Ledger
  private let logger: Logger
  private let state: Mutex<Catalogue>

  /// Reads the catalogue.
  package init(ledger: Ledger, logger: Logger) async throws {
    self.ledger = ledger
    self.logger = logger
    state = Mutex(try await ledger.catalogue())
  }

  package var catalogue: Catalogue { state.withLock { $0 } }

  /// Adds a version of a product.
  ///
  /// - Returns: The version that describes the product now.
  package func describe(_ product: Product) async throws -> Product {
    let described = try await ledger.describe(product)
    try await refresh()
    return described
  }

  /// Reads the catalogue again.
  package func refresh() async throws {
    let catalogue = try await ledger.catalogue()
    state.withLock { $0 = catalogue }
  }

  /// Follows changes until it is cancelled.
  package func run() async {
    while !Task.isCancelled {
      do {
        try await refresh()
      } catch {
        logger.warning("The catalogue can't be refreshed", metadata: ["error": "\(error)"])
      }
      try? await Task.sleep(for: Self.refreshInterval)
    }
  }
}
