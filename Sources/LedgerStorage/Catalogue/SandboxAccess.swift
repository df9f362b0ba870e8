import Postgres
package import Subscriptions

extension ProductStore {
  /// Stores the sandbox setting for the view `current_entitlement`, which can't see settings.
  ///
  /// A change alters entitlements, so it schedules a reconciliation.
  ///
  /// - Returns: Whether the setting changed.
  package func publish(_ access: SandboxAccess, at now: Timestamp) async throws -> Bool {
    let (isEverybody, accountIDs): (Bool, [String]) =
      switch access {
      case .all: (true, [])
      case .none: (false, [])
      case .accounts(let ids): (false, ids.sorted().map(\.rawValue))
      }
    let differs: SQL = "everybody <> \(isEverybody) OR account_ids <> \(accountIDs)"
    // Read first, so that a process starting on a standby writes nothing if nothing changed.
    let stale = try await database.query("SELECT 1 FROM tenure.sandbox_access WHERE \(differs)")
    guard !stale.isEmpty else { return false }
    let hasChanged = try await database.withTransaction { transaction in
      let changed = try await transaction.execute(
        """
        UPDATE tenure.sandbox_access
        SET everybody = \(isEverybody), account_ids = \(accountIDs)
        WHERE \(differs)
        """)
      if changed > 0 {
        try await transaction.commit(with: [Job.schedule(.reconcile, runAt: now, at: now)])
      }
      return changed > 0
    }
    if hasChanged { notifier.notify(.jobs) }
    return hasChanged
  }
}
