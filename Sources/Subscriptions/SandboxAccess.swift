/// Whose purchases in Apple's sandbox grant anything.
///
/// App Review and TestFlight buy in the sandbox with production builds, so that refusing it fails
/// the review; but whoever can buy in the sandbox pays nothing.
package enum SandboxAccess: Hashable, Sendable {
  case all
  case none
  case accounts(Set<AccountID>)

  /// Whether purchases of an environment grant anything to an account.
  package func grants(_ environment: Environment, to accountID: String) -> Bool {
    switch (environment, self) {
    case (.production, _), (.sandbox, .all): true
    case (.sandbox, .none): false
    case (.sandbox, .accounts(let ids)): ids.contains(AccountID(accountID))
    }
  }
}
