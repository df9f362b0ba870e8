package import JSONText
package import Subscriptions

extension NamedDifference {
  /// The columns of ``rows``.
  package static let columns = [
    "change", "account_id", "environment", "original_transaction_id", "transaction_id",
    "product_id", "charged_at", "access_ends_at", "access_days", "amount_milliunits", "currency",
    "owner_account_id", "explanation", "policy_explanation",
  ]

  /// A row for each account that gains or loses the charge.
  package var rows: [[String?]] {
    let key = difference.charge.id
    let changes =
      difference.gains.map { ("gains", $0) }
      + [difference.loses].compactMap { $0.map { ("loses", $0) } }
    return changes.map { change, account in
      [
        change, name(account), key.line.environment.rawValue,
        key.line.originalTransactionID.rawValue, key.transactionID.rawValue,
        key.productID.rawValue, "\(difference.charge.date)",
        difference.accessEndsAt?.description, "\(difference.days)",
        difference.price?.amountMilliunits.description, difference.price?.currency,
        difference.owner.map(name), explanation, policyExplanation,
      ]
    }
  }
}

extension JSONWriter {
  /// Writes the members of a charge with another owner.
  package mutating func members(of named: NamedDifference) {
    let (difference, key) = (named.difference, named.difference.charge.id)
    member("transaction_id", key.transactionID)
    member("original_transaction_id", key.line.originalTransactionID)
    member("environment", key.line.environment)
    member("product_id", key.productID)
    member("charged_at", difference.charge.date)
    member("access_ends_at", difference.accessEndsAt)
    member("access_days", difference.days)
    member("amount_milliunits", difference.price?.amountMilliunits)
    member("currency", difference.price?.currency)
    member("owner_account_id", difference.owner.map(named.name))
    array("gains", difference.gains) { $0.write(named.name($1)) }
    member("loses", difference.loses.map(named.name))
    member("explanation", named.explanation)
    member("policy_explanation", named.policyExplanation)
  }

  /// Writes the totals of a comparison, and those of each month.
  package mutating func members(of comparison: OwnershipComparison, under policy: OwnershipPolicy) {
    member("policy", policy.name)
    member("original_transactions", comparison.originalTransactions)
    member("charges", comparison.charges)
    object("elsewhere") { $0.members(of: comparison.total) }
    objects("months", comparison.months) { json, entry in
      json.member("month", entry.month)
      json.members(of: entry.figures)
    }
  }

  private mutating func members(of figures: OwnershipComparison.Figures) {
    member("charges", figures.charges)
    member("accounts", figures.accounts)
    member("access_days", figures.days)
    objects("amounts", figures.amounts) { json, amount in
      json.member("currency", amount.currency)
      json.member("amount_milliunits", amount.milliunits)
    }
  }
}
