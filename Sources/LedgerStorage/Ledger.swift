package import CoreMetrics
package import Postgres
import Subscriptions

/// The ledger in PostgreSQL: every statement of the product goes through here.
///
/// One method is one database transaction, and everything of it is committed when it returns.
/// Extensions, one for each subject, hold the methods: recording, submissions, orders, accounts,
/// the catalogue, entitlements, events, jobs, the audit.
package struct Ledger: Sendable {
  let database: ConnectionPool
  /// Reads holdings for many callers at once.
  let holdings: HoldingReader
  /// Rung after commits that others wait for.
  package let bell: Bell
  /// Where refunds need not be looked for.
  let notificationMemory = NotificationMemory()
  /// Whose reads may not lag.
  package let changes = RecentChanges()
  let metrics: LedgerMetrics

  /// How long an order waits for its payment before it expires.
  let orderLifetime: Duration
  /// Of what Apple is told by itself.
  package let tellings: Set<AppleTelling.Kind>

  /// Works on a database whose schema is up to date.
  ///
  /// - Parameters:
  ///   - database: Where everything is.
  ///   - orderLifetime: How long an order waits for its payment.
  ///   - tellings: Of what Apple is told by itself: whatever else is recorded puts no job into the
  ///     queue that would.
  ///   - metrics: Where decisions are counted.
  package init(
    database: ConnectionPool, orderLifetime: Duration = StoredOrder.lifetime,
    tellings: Set<AppleTelling.Kind> = [],
    metrics: any MetricsFactory = MetricsSystem.factory
  ) {
    self.database = database
    self.metrics = LedgerMetrics(metrics)
    self.orderLifetime = orderLifetime
    self.tellings = tellings
    holdings = HoldingReader(database: database)
    bell = Bell(database: database)
  }
}

extension Ledger {
  /// Whether an error means that the database can't be reached or can't answer now: ask again
  /// later.
  package static func isUnavailable(_ error: any Error) -> Bool {
    guard let error = error as? PostgresError else { return false }
    return error.isTransient || error.code == .closed
  }
}
