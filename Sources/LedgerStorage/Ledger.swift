package import CoreMetrics
package import Postgres
import Subscriptions

/// The ledger in PostgreSQL, by subject.
///
/// One method of a store is one database transaction, committed when it returns:
///
/// ```swift
/// let ledger = Ledger(database: pool)
/// let account = try await ledger.accounts.findOrCreateAccount("klara", at: .now)
/// ```
package struct Ledger: LedgerStore {
  package let core: LedgerCore

  /// Works on a database whose schema is up to date, and queues write-backs of these kinds only.
  package init(
    database: ConnectionPool, orderLifetime: Duration = StoredOrder.lifetime,
    writeBackKinds: Set<WriteBack.Kind> = [], metrics: any MetricsFactory = MetricsSystem.factory
  ) {
    core = LedgerCore(
      database: database, orderLifetime: orderLifetime, writeBackKinds: writeBackKinds,
      metrics: LedgerMetrics(metrics))
  }

  /// Whether the database can't be reached or can't answer now: ask again later.
  package static func isUnavailable(_ error: any Error) -> Bool {
    guard let error = error as? PostgresError else { return false }
    return error.isTransient || error.code == .closed
  }
}

package final class LedgerCore: Sendable {
  let database: ConnectionPool
  let holdingBatcher: HoldingBatcher
  let notifier: ChangeNotifier
  /// Environments that send notifications, so refunds need no polling.
  let notificationMemory = NotificationMemory()
  let changes = RecentWrites()
  let metrics: LedgerMetrics
  /// Time after which an unpaid order expires.
  let orderLifetime: Duration
  let writeBackKinds: Set<WriteBack.Kind>

  init(
    database: ConnectionPool, orderLifetime: Duration, writeBackKinds: Set<WriteBack.Kind>,
    metrics: LedgerMetrics
  ) {
    self.database = database
    self.orderLifetime = orderLifetime
    self.writeBackKinds = writeBackKinds
    self.metrics = metrics
    holdingBatcher = HoldingBatcher(database: database)
    notifier = ChangeNotifier(database: database)
  }
}

/// The ledger, or the statements of one subject.
package protocol LedgerStore: Sendable {
  var core: LedgerCore { get }
}

extension LedgerStore {
  package var submissions: SubmissionStore { SubmissionStore(core: core) }
  package var notifications: NotificationStore { NotificationStore(core: core) }
  package var polls: PollStore { PollStore(core: core) }
  package var writeBacks: WriteBackStore { WriteBackStore(core: core) }
  package var accounts: AccountStore { AccountStore(core: core) }
  package var orders: OrderStore { OrderStore(core: core) }
  package var products: ProductStore { ProductStore(core: core) }
  package var holdings: HoldingStore { HoldingStore(core: core) }
  package var grants: GrantStore { GrantStore(core: core) }
  package var ownership: OwnershipStore { OwnershipStore(core: core) }
  package var jobs: JobQueue { JobQueue(core: core) }
  package var events: EventFeed { EventFeed(core: core) }
  package var webhooks: WebhookQueue { WebhookQueue(core: core) }
  package var rates: RateStore { RateStore(core: core) }
  package var administration: AdministrationStore { AdministrationStore(core: core) }
  package var maintenance: Maintenance { Maintenance(core: core) }
  package var auditor: LedgerAuditor { LedgerAuditor(core: core) }
  package var imports: ImportStore { ImportStore(core: core) }
  package var exports: ExportStore { ExportStore(core: core) }
  var recorder: Recorder { Recorder(core: core) }

  var database: ConnectionPool { core.database }
  /// Sends NOTIFY after commits that workers or long polls wait for.
  package var notifier: ChangeNotifier { core.notifier }
  var notificationMemory: NotificationMemory { core.notificationMemory }
  /// Accounts written moments ago, whose reads bypass the replica.
  package var changes: RecentWrites { core.changes }
  var orderLifetime: Duration { core.orderLifetime }
  package var writeBackKinds: Set<WriteBack.Kind> { core.writeBackKinds }

  /// Notifies listeners and counts a recording, once the transaction commits.
  func announce(
    _ channels: Set<ChangeNotifier.Channel>, _ recording: Recording? = nil,
    after transaction: Transaction
  ) {
    transaction.afterCommit { [core] in
      core.notifier.notify(channels)
      if let recording { core.metrics.count(recording) }
    }
  }
}
