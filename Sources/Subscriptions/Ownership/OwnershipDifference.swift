/// A charge that another policy gives to other accounts.
package struct OwnershipDifference: Hashable, Sendable {
  package var charge: Charge
  /// The recorded owner; nil: unclaimed.
  package var owner: AccountKey?
  package var decision: Decision
  package var verdict: OwnershipPolicy.Verdict
  /// By a refund or replacement too; nil without access, as for consumables, and without end.
  package var accessEndsAt: Timestamp?
  /// The length of its access; access without end counts until the moment of the comparison.
  package var access: Duration
  /// What was charged, refunded or not; nil where no price is known.
  package var price: ChargePrice?

  package var days: Int64 { access.wholeDays }

  package var gains: [AccountKey] { verdict.owners.filter { $0 != owner } }
  package var loses: AccountKey? { verdict.owners.contains { $0 == owner } ? nil : owner }

  /// Compares the recorded owners of an original transaction's charges with a policy's.
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
        accessEndsAt: isConsumable ? nil : end, access: max(.zero, (end ?? now) - holding.startsAt),
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
    private var milliunits: [ExactText: Int64] = [:]

    package var days: Int64 { access.wholeDays }

    /// By currency.
    package var amounts: [(currency: String, milliunits: Int64)] {
      milliunits.sorted { $0.key < $1.key }.map { ($0.key.rawValue, $0.value) }
    }

    fileprivate mutating func add(_ difference: OwnershipDifference) {
      charges += 1
      access += difference.access
      if let price = difference.price {
        milliunits[ExactText(price.currency), default: 0] += price.amountMilliunits
      }
    }
  }

  /// Examined, including those without a difference.
  package private(set) var originalTransactions = 0
  package private(set) var charges = 0
  package private(set) var total = Figures()
  /// By the start of the charge's month in UTC.
  private var figures: [Timestamp: Figures] = [:]
  /// Hashes of the accounts, by month and of all months (nil): 8 bytes each.
  private var accounts: [Timestamp?: Set<Int>] = [:]

  package init() {}

  /// By the month of the charge in UTC, such as `2026-01`.
  package var months: [(month: String, figures: Figures)] {
    figures.sorted { $0.key < $1.key }.map { (String("\($0.key)".prefix(7)), $0.value) }
  }

  package var hasDifferences: Bool { total.charges > 0 }

  package mutating func add(_ differences: [OwnershipDifference], among charges: Int) {
    originalTransactions += 1
    self.charges += charges
    for difference in differences {
      var day = difference.charge.date.dayAndTime.date
      day.day = 1
      let month = Timestamp(day)
      total.add(difference)
      figures[month, default: Figures()].add(difference)
      for account in difference.gains + [difference.loses].compactMap(\.self) {
        let hash = account.hashValue
        if accounts[nil, default: []].insert(hash).inserted { total.accounts += 1 }
        if accounts[month, default: []].insert(hash).inserted { figures[month]?.accounts += 1 }
      }
    }
  }
}

extension Duration {
  fileprivate var wholeDays: Int64 { components.seconds / 86_400 }
}
