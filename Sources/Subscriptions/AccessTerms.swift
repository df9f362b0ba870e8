/// By what it is judged what an account may use, beside what it holds: the catalogue, and whether
/// the sandbox counts.
package struct AccessTerms: Sendable {
  package var catalogue: Catalogue
  package var sandboxAccess: SandboxAccess

  package init(catalogue: Catalogue, sandboxAccess: SandboxAccess = .all) {
    self.catalogue = catalogue
    self.sandboxAccess = sandboxAccess
  }

  /// Whether a charge of the environment grants anything to an account.
  ///
  /// One that does not fulfils no order.
  package func grantsAccess(in environment: Environment, to accountID: String) -> Bool {
    sandboxAccess.grants(environment, to: accountID)
  }

  /// Computes what an account has at a moment.
  ///
  /// - Parameters:
  ///   - accountID: The account.
  ///   - holdings: What it holds, of whichever lines.
  ///   - grants: What it was given without paying.
  ///   - moment: The rule's t.
  /// - Returns: One entitlement of each name, inactive ones included, by name.
  package func entitlements(
    of accountID: String, holding holdings: [Holding], granted grants: [Grant],
    at moment: Timestamp
  ) -> [Entitlement] {
    let countsSandbox = sandboxAccess.grants(.sandbox, to: accountID)
    return Entitlement.entitlements(
      holdings: countsSandbox
        ? holdings : holdings.filter { $0.charge.line.environment != .sandbox },
      grants: countsSandbox ? grants : grants.filter { $0.line?.environment != .sandbox },
      catalogue: catalogue, at: moment)
  }
}
