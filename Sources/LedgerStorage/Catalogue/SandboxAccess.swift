import Postgres
package import Subscriptions

extension Ledger {
  /// Tells the view `current_entitlement` whose sandbox purchases grant anything: in code it is a
  /// setting, which SQL can't see.
  ///
  /// What accounts have is something else then: a survey sees to what they are told.
  ///
  /// - Parameters:
  ///   - access: The setting.
  ///   - now: The moment.
  /// - Returns: Whether the view was told something else before.
  /// - Throws: What the database says.
  package func publish(_ access: SandboxAccess, at now: Timestamp) async throws -> Bool {
    let (isEverybody, accountIDs): (Bool, [String]) =
      switch access {
      case .all: (true, [])
      case .none: (false, [])
      case .accounts(let ids): (false, ids.sorted().map(\.rawValue))
      }
    let differs: SQL = "everybody <> \(isEverybody) OR account_ids <> \(accountIDs)"
    // Looking first: a program that starts on a standby writes nothing if it need not.
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
    if hasChanged { bell.ring(.jobs) }
    return hasChanged
  }
}
