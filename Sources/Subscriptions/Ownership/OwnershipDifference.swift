/// A charge that another policy gives to other accounts.
package struct OwnershipDifference: Hashable, Sendable {
  package var charge: Charge
  /// The recorded owner; nil: unclaimed.
  package var owner: AccountKey?
  package var decision: Decision
  package var verdict: OwnershipPolicy.Verdict
  /// The end of its access, by a refund or replacement too; nil without access, as for consumables,
  /// and for access without end.
  package var accessEndsAt: Timestamp?
  /// The length of its access; access without end counts until the moment of the comparison.
  package var access: Duration
  /// What was charged, refunded or not; nil where no price is known.
  package var price: ChargePrice?

  package var days: Int64 { access.wholeDays }

  package var gains: [AccountKey] { verdict.owners.filter { $0 != owner } }
  package var loses: AccountKey? { verdict.owners.contains { $0 == owner } ? nil : owner }

  /// Compares the recorded owners of an original transaction's charges with a policy's.
  ///
  /// - Parameter recorded: The charges with the recorded decisions.
  package static func differences(
    of line: OriginalTransaction, recorded: OwnershipRule, under policy: OwnershipPolicy,
    in catalogue: Catalogue, at now: Timestamp
  ) -> [OwnershipDifference] {
    let verdicts = policy.verdicts(on: line, recorded: recorded)
    return recorded.charges.indices.compactMap { position in
      let (decision, verdict) = (recorded.decisions[position], verdicts[position])
      guard verdict.owners != [decision.owner].compactMap(\.self) else { return nil }
      let charge = recorded.charges[position]
      let holding = line.holding(ofChargeAt: position, in: recorded)
      let isConsumable = charge.type(in: catalogue) == .consumable
      let end =
        isConsumable
        ? holding.startsAt
        : [holding.end(in: catalogue), holding.revokedAt].compactMap(\.self).min()
      return OwnershipDifference(
        charge: charge, owner: decision.owner, decision: decision, verdict: verdict,
        accessEndsAt: isConsumable ? nil : end,
        access: max(.zero, (end ?? now) - holding.startsAt),
        price: line.terms(of: charge, owner: nil, in: catalogue).price)
    }
  }
}

/// The number of charges that a policy gives to other accounts, by month.
package struct OwnershipComparison: Sendable {
  /// The charges of a month, or of all.
  package struct Figures: Hashable, Sendable {
    package var charges = 0
    /// Accounts that gain or lose a charge.
    package var accounts = 0
    package var access: Duration = .zero
    /// In thousandths, by currency.
    package var milliunits: [String: Int64] = [:]

    package var days: Int64 { access.wholeDays }

    fileprivate mutating func add(_ difference: OwnershipDifference) {
      charges += 1
      access += difference.access
      if let price = difference.price {
        milliunits[price.currency, default: 0] += price.amountMilliunits
      }
    }
  }

  /// Examined, including those without a difference.
  package private(set) var originalTransactions = 0
  package private(set) var charges = 0
  package private(set) var total = Figures()
  /// By the month of the charge in UTC, such as `2026-01`.
  package private(set) var months: [String: Figures] = [:]
  /// Hashes of the accounts, by month: 8 bytes each.
  private var accounts: [String: Set<Int>] = [:]

  package init() {}

  package var hasDifferences: Bool { total.charges > 0 }

  package mutating func add(_ differences: [OwnershipDifference], among charges: Int) {
    originalTransactions += 1
    self.charges += charges
    for difference in differences {
      let month = String("\(difference.charge.date)".prefix(7))
      total.add(difference)
      months[month, default: Figures()].add(difference)
      for account in difference.gains + [difference.loses].compactMap(\.self) {
        let hash = account.hashValue
        if accounts["", default: []].insert(hash).inserted { total.accounts += 1 }
        if accounts[month, default: []].insert(hash).inserted {
          months[month]?.accounts += 1
        }
      }
    }
  }
}

extension Duration {
  fileprivate var wholeDays: Int64 { components.seconds / 86_400 }
}
