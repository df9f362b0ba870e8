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
  /// Answers reads where it may; nil: there is none.
  package let replica: ReadReplica?
  /// Rung after commits that others wait for.
  package let bell: Bell
  /// Where refunds need not be looked for.
  let notificationMemory = NotificationMemory()
  let metrics: LedgerMetrics

  /// How long an order waits for its payment before it expires.
  let orderLifetime: Duration

  /// Works on a database whose schema is up to date.
  ///
  /// - Parameters:
  ///   - database: Where everything is.
  ///   - replica: What may answer reads instead; nil: nothing else does.
  ///   - orderLifetime: How long an order waits for its payment.
  ///   - metrics: Where decisions are counted.
  package init(
    database: ConnectionPool, replica: ReadReplica? = nil,
    orderLifetime: Duration = StoredOrder.lifetime,
    metrics: any MetricsFactory = MetricsSystem.factory
  ) {
    self.database = database
    self.replica = replica
    self.metrics = LedgerMetrics(metrics)
    self.orderLifetime = orderLifetime
    holdings = HoldingReader(database: database)
    bell = Bell(database: database)
  }

  /// Has reads of accounts asked of the primary, from the commit on, until the replica has it.
  func willChange(_ accountIDs: [String], in transaction: Transaction) {
    guard let replica else { return }
    transaction.afterCommit { replica.noteChange(of: accountIDs) }
  }
}
