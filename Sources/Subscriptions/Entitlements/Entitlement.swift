package import struct Foundation.UUID

package struct Entitlement: Hashable, Sendable {
  package enum State: String, Codable, CaseIterable, Sendable {
    case active
    case inGracePeriod = "in_grace_period"
    case inBillingRetry = "in_billing_retry"
    case revoked
    case expired

    package var isActive: Bool { self == .active || self == .inGracePeriod }
  }

  package enum EndReason: String, Codable, CaseIterable, Sendable {
    /// The paid period ended.
    case expired
    case refunded
    /// Apple ended the Family Sharing of the charge, which refunds nothing.
    case familySharingEnded = "family_sharing_ended"
    /// Another plan of the same subscription replaced the charge.
    case replaced
    /// The charge belongs to another account by now, or to none.
    case moved
    /// Apple could not charge for the next period.
    case billing
    case grantEnded = "grant_ended"
    case grantRevoked = "grant_revoked"
  }

  package enum Source: String, Codable, Sendable {
    case appStore = "app_store"
    case grant
    case provisional
  }

  /// From the catalogue.
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
  /// Nil while active, and where what granted it is no longer known.
  package var endedBecause: EndReason?

  package var isActive: Bool { state.isActive }
  /// Nil while active.
  package var endedAt: Timestamp? { isActive ? nil : accessEndsAt }
}

/// An entitlement given by an administrator, or provisionally while Apple cannot be asked.
package struct Grant: Hashable, Sendable {
  package var id: UUID
  package var entitlement: String
  package var startsAt: Timestamp
  /// Nil: never.
  package var endsAt: Timestamp?
  package var source: Entitlement.Source
  package var revokedAt: Timestamp?
  /// The purchase behind a provisional grant.
  package var line: OriginalTransactionKey?

  package init(
    id: UUID, entitlement: String, startsAt: Timestamp, endsAt: Timestamp?,
    revokedAt: Timestamp? = nil, source: Entitlement.Source = .grant,
    line: OriginalTransactionKey? = nil
  ) {
    self.id = id
    self.entitlement = entitlement
    self.startsAt = startsAt
    self.endsAt = endsAt
    self.revokedAt = revokedAt
    self.source = source
    self.line = line
  }

  /// The end or the earlier revocation; nil: never.
  package var accessEnd: Timestamp? { [endsAt, revokedAt].compactMap(\.self).min() }
}

extension Entitlement {
  /// Computes one entitlement of each name, inactive ones included, by name.
  package static func entitlements(
    holdings: [Holding], grants: [Grant] = [], catalogue: Catalogue, at moment: Timestamp
  ) -> [Entitlement] {
    var best: [ExactText: Entitlement] = [:]
    func offer(_ entitlement: Entitlement) {
      let name = ExactText(entitlement.name)
      if let current = best[name], !entitlement.isBetter(than: current) { return }
      best[name] = entitlement
    }
    // Most accounts hold one original transaction, which needs no grouping.
    let lines =
      holdings.count == 1
      ? [holdings] : Array(Dictionary(grouping: holdings, by: \.original).values)
    for line in lines {
      OriginalTransactionEntitlements(line, in: catalogue, at: moment).entitlements.forEach(offer)
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
      periodType: .normal, environment: grant.line?.environment,
      originalTransactionID: grant.line?.originalTransactionID, source: grant.source,
      endedBecause: isRevoked ? .grantRevoked : isOver ? .grantEnded : nil)
  }

  /// Active before inactive and billing retry before ended, then the longer, then by identifiers
  /// and source: the answer never depends on the order of reading.
  private func isBetter(than other: Entitlement) -> Bool {
    if rank != other.rank { return rank > other.rank }
    if order != other.order { return order > other.order }
    func names(_ one: Entitlement) -> (String, String, String) {
      (one.environment?.rawValue ?? "", one.source.rawValue, one.endedBecause?.rawValue ?? "")
    }
    return names(self) < names(other)
  }

  private var rank: Int { isActive ? 2 : state == .inBillingRetry ? 1 : 0 }

  private var order: (Int64, TransactionID, OriginalTransactionID, ProductID) {
    (
      accessEndsAt?.milliseconds ?? .max, transactionID ?? "", originalTransactionID ?? "",
      productID ?? ""
    )
  }
}

/// The catalogue and the sandbox setting by which entitlements are computed.
package struct AccessTerms: Sendable {
  package var catalogue: Catalogue
  package var sandboxAccess: SandboxAccess

  package init(catalogue: Catalogue, sandboxAccess: SandboxAccess = .all) {
    (self.catalogue, self.sandboxAccess) = (catalogue, sandboxAccess)
  }

  package func entitlements(
    of accountID: String, holding holdings: [Holding], granted grants: [Grant], at moment: Timestamp
  ) -> [Entitlement] {
    let (holdings, grants) = counted(holdings, grants, of: accountID)
    return Entitlement.entitlements(
      holdings: holdings, grants: grants, catalogue: catalogue, at: moment)
  }

  /// Finds the next moment at which time alone can change the entitlements.
  package func nextChange(
    of accountID: String, holding holdings: [Holding], granted grants: [Grant], after now: Timestamp
  ) -> Timestamp? {
    let (holdings, grants) = counted(holdings, grants, of: accountID)
    let granting = holdings.filter { $0.entitlements(in: catalogue)?.isEmpty == false }
    return moments(of: granting, grants).filter { now < $0 }.min()
  }

  /// Finds the longest time around a moment in which the entitlements stay the same; products
  /// without entitlements count, too: one that is current hides those of the others.
  package func constancy(
    holding holdings: [Holding], granted grants: [Grant], around moment: Timestamp
  ) -> Range<Timestamp> {
    var (start, end) = (Timestamp(milliseconds: .min), Timestamp(milliseconds: .max))
    for change in moments(of: holdings, grants) {
      if change <= moment { start = max(start, change) } else { end = min(end, change) }
    }
    return start..<end
  }

  private func moments(of holdings: [Holding], _ grants: [Grant]) -> [Timestamp] {
    let ofHoldings = holdings.flatMap { holding -> [Timestamp?] in
      [
        holding.startsAt - .clockTolerance, holding.startsAt, holding.end(in: catalogue),
        holding.revokedAt, holding.movedAt, holding.graceEndsAt,
      ]
    }
    let ofGrants = grants.flatMap { [$0.startsAt, $0.accessEnd, $0.revokedAt] }
    return (ofHoldings + ofGrants).compactMap(\.self)
  }

  private func counted(_ holdings: [Holding], _ grants: [Grant], of accountID: String)
    -> (holdings: [Holding], grants: [Grant])
  {
    sandboxAccess.grants(.sandbox, to: accountID)
      ? (holdings, grants)
      : (
        holdings.filter { $0.charge.line.environment != .sandbox },
        grants.filter { $0.line?.environment != .sandbox }
      )
  }
}

/// The accounts to which purchases in Apple's sandbox, which cost nothing, grant anything; refusing
/// App Review and TestFlight, which buy there with production builds, fails the review.
package enum SandboxAccess: Hashable, Sendable {
  case all
  case none
  case accounts(Set<AccountID>)

  /// Whether a charge of the environment grants an account anything; if not, it fulfils no order.
  package func grants(_ environment: Environment, to accountID: String) -> Bool {
    switch (environment, self) {
    case (.production, _), (.sandbox, .all): true
    case (.sandbox, .none): false
    case (.sandbox, .accounts(let ids)): ids.contains(AccountID(accountID))
    }
  }
}
