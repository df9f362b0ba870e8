package import struct Foundation.UUID

/// What an account may use, and until when: the answer that everything else exists for.
package struct Entitlement: Hashable, Sendable {
  /// Whether, and why not, what was held can be used at the moment asked about.
  package enum State: String, Codable, CaseIterable, Sendable {
    case active
    case inGracePeriod = "in_grace_period"
    case inBillingRetry = "in_billing_retry"
    case revoked
    case expired

    package var isActive: Bool { self == .active || self == .inGracePeriod }

    /// Which of several inactive holdings of one entitlement is shown: what may come back first.
    fileprivate var rank: Int {
      switch self {
      case .active: 0
      case .inGracePeriod: 1
      case .inBillingRetry: 2
      case .revoked: 3
      case .expired: 4
      }
    }
  }

  /// Where an entitlement comes from.
  package enum Source: String, Codable, Sendable {
    case appStore = "app_store"
    case grant
    case provisional
  }

  /// The entitlement's name, from the catalogue.
  package var name: String
  package var state: State
  /// Nil for a grant.
  package var productID: ProductID?
  /// The end of the paid period; nil: never.
  package var expiresAt: Timestamp?
  /// The end of access, with grace; nil: never.
  package var accessEndsAt: Timestamp?
  package var willRenew: Bool
  package var periodType: PeriodType
  package var environment: Environment?
  package var originalTransactionID: OriginalTransactionID?
  package var transactionID: TransactionID?
  package var source: Source

  package var isActive: Bool { state.isActive }
}

/// An entitlement given by an administrator, or provisionally while Apple cannot be asked.
package struct Grant: Hashable, Sendable {
  package var id: UUID
  package var entitlement: String
  package var startsAt: Timestamp
  /// Nil: never.
  package var endsAt: Timestamp?
  package var source: Entitlement.Source
  /// When an administrator took it back; nil: nobody did.
  package var revokedAt: Timestamp?
  /// The line of the purchase that a provisional one stands for; nil for any other.
  package var line: LineID?

  package init(
    id: UUID, entitlement: String, startsAt: Timestamp, endsAt: Timestamp?,
    revokedAt: Timestamp? = nil, source: Entitlement.Source = .grant, line: LineID? = nil
  ) {
    self.id = id
    self.entitlement = entitlement
    self.startsAt = startsAt
    self.endsAt = endsAt
    self.revokedAt = revokedAt
    self.source = source
    self.line = line
  }

  /// Until when it gives access: its end, or the revocation before it; nil: for ever.
  package var accessEnd: Timestamp? { [endsAt, revokedAt].compactMap(\.self).min() }
}

extension Entitlement {
  /// Computes what an account has at a moment.
  ///
  /// - Parameters:
  ///   - holdings: What the account holds, of whichever lines.
  ///   - grants: What it was given without paying.
  ///   - catalogue: Which product grants what.
  ///   - moment: The rule's t.
  /// - Returns: One entitlement of each name, inactive ones included, by name.
  package static func entitlements(
    holdings: [Holding], grants: [Grant] = [], catalogue: Catalogue, at moment: Timestamp
  ) -> [Entitlement] {
    var best: [ExactText: Entitlement] = [:]
    func offer(_ entitlement: Entitlement) {
      let name = ExactText(entitlement.name)
      if let current = best[name], !entitlement.isBetter(than: current) { return }
      best[name] = entitlement
    }
    // Most accounts hold one line: grouping is worth its while only for the others.
    let lines =
      holdings.count == 1
      ? [holdings] : Array(Dictionary(grouping: holdings, by: \.family).values)
    for line in lines {
      LineEntitlements(line, in: catalogue, at: moment).entitlements.forEach(offer)
    }
    for grant in grants where grant.startsAt <= moment {
      offer(Entitlement(grant, at: moment))
    }
    return best.sorted { $0.key < $1.key }.map(\.value)
  }

  private init(_ grant: Grant, at moment: Timestamp) {
    let isRevoked = grant.revokedAt.map { $0 <= moment } ?? false
    let isOver = grant.accessEnd.map { $0 <= moment } ?? false
    self.init(
      name: grant.entitlement, state: isRevoked ? .revoked : isOver ? .expired : .active,
      expiresAt: grant.accessEnd, accessEndsAt: grant.accessEnd, willRenew: false,
      periodType: .normal,
      environment: grant.line?.environment,
      originalTransactionID: grant.line?.originalTransactionID, source: grant.source)
  }

  /// Active before inactive; then the one lasting longest; a tie is decided by the identifiers and
  /// by the source.
  ///
  /// So the answer never depends on the order in which anything is read: what ties in all of this
  /// are grants, and those are told alike.
  private func isBetter(than other: Entitlement) -> Bool {
    if isActive != other.isActive { return isActive }
    if !isActive, state != other.state { return state.rank < other.state.rank }
    let (end, otherEnd) = (
      accessEndsAt?.milliseconds ?? .max, other.accessEndsAt?.milliseconds ?? .max
    )
    if end != otherEnd { return end > otherEnd }
    let (id, otherID) = (
      (transactionID ?? "", originalTransactionID ?? "", productID ?? ""),
      (other.transactionID ?? "", other.originalTransactionID ?? "", other.productID ?? "")
    )
    if id != otherID { return id > otherID }
    return (environment?.rawValue ?? "", source.rawValue)
      < (other.environment?.rawValue ?? "", other.source.rawValue)
  }
}

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
