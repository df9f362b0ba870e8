package import Logging
package import Subscriptions
import Synchronization

/// The catalogue in memory, so that no read asks the database for it.
///
/// A change made through this process counts at once; another process's, at the latest after
/// ``refreshInterval``.
package final class CatalogueCache: Sendable {
  /// How long another process's change may stay unnoticed.
  package static let refreshInterval: Duration = .seconds(5)

  private let ledger: Ledger
  private let logger: Logger
  private let state: Mutex<State>

  private struct State {
    var catalogue: Catalogue
    /// The number of the reading that brought it; readings are numbered as they begin.
    var reading = 0
    var begun = 0
  }

  /// Reads the catalogue.
  package init(ledger: Ledger, logger: Logger) async throws {
    self.ledger = ledger
    self.logger = logger
    state = Mutex(State(catalogue: try await ledger.catalogue()))
  }

  package var catalogue: Catalogue { state.withLock { $0.catalogue } }

  /// By what it is judged now what accounts may use.
  package func terms(_ sandboxAccess: SandboxAccess) -> AccessTerms {
    AccessTerms(catalogue: catalogue, sandboxAccess: sandboxAccess)
  }

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
    let reading = beginReading()
    finishReading(reading, with: try await ledger.catalogue())
  }

  func beginReading() -> Int {
    state.withLock {
      $0.begun += 1
      return $0.begun
    }
  }

  /// Takes what was read, unless a reading that began later was faster: it knows more.
  func finishReading(_ reading: Int, with catalogue: Catalogue) {
    state.withLock {
      guard reading > $0.reading else { return }
      $0.reading = reading
      $0.catalogue = catalogue
    }
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
