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
    let (holdings, grants) = counted(holdings, grants, of: accountID)
    return Entitlement.entitlements(
      holdings: holdings, grants: grants, catalogue: catalogue, at: moment)
  }

  /// Finds the next moment at which what an account has can change by time alone.
  ///
  /// - Parameters:
  ///   - accountID: The account.
  ///   - holdings: What it holds, of whichever lines.
  ///   - grants: What it was given without paying.
  ///   - now: Only later moments count.
  /// - Returns: The moment; nil: there is none.
  package func nextChange(
    of accountID: String, holding holdings: [Holding], granted grants: [Grant],
    after now: Timestamp
  ) -> Timestamp? {
    let (holdings, grants) = counted(holdings, grants, of: accountID)
    return EntitlementNews.nextChange(
      holdings: holdings, grants: grants, catalogue: catalogue, after: now)
  }

  /// Leaves out what comes from the sandbox where that does not count.
  private func counted(_ holdings: [Holding], _ grants: [Grant], of accountID: String)
    -> (holdings: [Holding], grants: [Grant])
  {
    guard !sandboxAccess.grants(.sandbox, to: accountID) else { return (holdings, grants) }
    return (
      holdings.filter { $0.charge.line.environment != .sandbox },
      grants.filter { $0.line?.environment != .sandbox }
    )
  }
}
