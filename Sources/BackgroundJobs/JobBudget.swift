package import LedgerStorage

/// How many jobs of a lane may be begun now, where that depends on more than on this worker: on
/// what Apple answers in an hour to all of them.
package struct JobBudget: Sendable {
  /// Takes up to so many jobs of a lane out of the budget, and returns how many it grants.
  package var grant: @Sendable (_ lane: Job.Lane, _ wanted: Int) async throws -> Int
  /// Puts back what was granted and is not used.
  package var giveBack: @Sendable (_ lane: Job.Lane, _ unused: Int) async throws -> Void

  package init(
    grant: @escaping @Sendable (_ lane: Job.Lane, _ wanted: Int) async throws -> Int,
    giveBack: @escaping @Sendable (_ lane: Job.Lane, _ unused: Int) async throws -> Void
  ) {
    self.grant = grant
    self.giveBack = giveBack
  }

  /// A budget that grants everything.
  package static let unlimited = JobBudget(grant: { _, wanted in wanted }, giveBack: { _, _ in })
}
