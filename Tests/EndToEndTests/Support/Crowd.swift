import AppStoreSimulator
import LedgerStorage
import Subscriptions

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// The customers, one submission after the other.
actor Crowd {
  /// With the visits that each makes, well above a thousand submissions.
  private static let customers = 400
  private static let months = 2
  static let app = SimulatedApp.sample

  let simulation: AppStoreSimulation
  private var population: SimulatedPopulation
  private var submissions = 0

  /// Their submissions are purchases of the last months.
  init(seed: UInt64) throws {
    let start = Timestamp.now - .days(31 * Self.months)
    population = try SimulatedPopulation(
      configuration: SimulatedPopulation.Configuration(
        seed: seed, customers: Self.customers, months: Self.months, app: Self.app, start: start))
    simulation = population.simulation
    // Apple is sometimes unavailable; the worker then finishes the server's submissions.
    simulation.setFaults {
      $0.rate = 0.02
      $0.kinds = [.unavailable, .reset]
    }
  }

  /// The next submission, numbered from 1; nil when everybody has lived to the end.
  func next() -> (number: Int, submission: SimulatedSubmission)? {
    guard let next = population.next() else { return nil }
    submissions += 1
    return (submissions, next)
  }

  /// Puts everything that the app sells into the catalogue.
  static func describeProducts(to ledger: Ledger) async throws {
    for product in app.products {
      _ = try await ledger.products.describe(
        Product(
          id: product.id, validFrom: .now - .days(365), type: product.type,
          entitlements: ["use-of-\(product.id)"], subscriptionGroup: product.group,
          level: product.group == nil ? nil : product.level,
          period: product.period ?? (product.type == .nonRenewing ? CalendarPeriod(months: 6) : nil)
        ))
    }
  }
}
