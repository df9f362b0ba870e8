import Postgres
package import Subscriptions

extension Ledger {
  /// Tells the view `current_entitlement` whose sandbox purchases grant anything: in code it is a
  /// setting, which SQL can't see.
  ///
  /// - Returns: Whether the view was told something else before.
  /// - Throws: What the database says.
  package func publish(_ access: SandboxAccess) async throws -> Bool {
    let (isEverybody, accountIDs): (Bool, [String]) =
      switch access {
      case .all: (true, [])
      case .none: (false, [])
      case .accounts(let ids): (false, ids.sorted())
      }
    let differs: SQL = "everybody <> \(isEverybody) OR account_ids <> \(accountIDs)"
    // Looking first: a program that starts on a standby writes nothing if it need not.
    let stale = try await database.query("SELECT 1 FROM tenure.sandbox_access WHERE \(differs)")
    guard !stale.isEmpty else { return false }
    let changed = try await database.execute(
      """
      UPDATE tenure.sandbox_access
      SET everybody = \(isEverybody), account_ids = \(accountIDs)
      WHERE \(differs)
      """)
    return changed > 0
  }
}
