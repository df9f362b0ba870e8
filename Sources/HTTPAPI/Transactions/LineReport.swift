import JSONText
import LedgerStorage
import Subscriptions

/// A line as people and app servers are told of it.
struct LineReport: JSONWritable {
  private let line: LineID
  private let family: RecordedFamily
  private let catalogue: Catalogue
  private let bindings: [Binding]
  private let boundAccount: AccountKey?
  /// What the line as a whole gives at the moment, as if one account owned all its charges.
  private let current: Entitlement?
  private let summary: LineSummary

  /// - Parameters:
  ///   - line: The line that was asked for.
  ///   - family: It, and the lines that Apple links with it.
  ///   - catalogue: The products.
  ///   - now: The moment at which it is looked at.
  init(of line: LineID, in family: RecordedFamily, catalogue: Catalogue, at now: Timestamp) {
    self.line = line
    self.family = family
    self.catalogue = catalogue
    bindings = Binding.bindings(of: family.rule.charges, decisions: family.rule.decisions)
    boundAccount = bindings.account(asOf: now)
    current = family.current(in: catalogue, at: now)
    summary = LineSummary(line: family.line, rule: family.rule)
  }

  func write(to json: inout JSONWriter) {
    json.object { json in
      json.member("original_transaction_id", line.originalTransactionID)
      json.member("environment", line.environment)
      json.member("account_id", boundAccount.map(name(of:)))
      json.member("auto_renewing", current?.willRenew ?? false)
      json.member("auto_renew_product_id", summary.autoRenewProductID)
      json.member("product_id", current?.productID ?? summary.latest?.productID)
      json.member("expires_at", current.map(\.expiresAt) ?? summary.paidThrough)
      json.member("state", current?.state)
      json.key("bindings")
      json.array(bindings) { json, binding in
        json.object { json in
          json.member("account_id", binding.account.map(name(of:)))
          json.member("bound_at", binding.boundAt)
          json.member("transaction_id", binding.charge.transactionID)
          json.member("rule", binding.rule)
        }
      }
      json.key("transactions")
      json.array(reports) { $0.transaction($1, in: catalogue) }
    }
  }

  /// By date.
  private var reports: [ChargeReport] {
    family.rule.charges.compactMap { ChargeReport(of: $0.id, in: family, catalogue: catalogue) }
  }

  private func name(of account: AccountKey) -> String { family.names[account] ?? "erased" }
}

extension RecordedFamily {
  /// What the line's charges give at a moment, whoever owns them; nil for what lasts no time.
  ///
  /// The same function that computes what an account may use computes it: with every charge in one
  /// hand, and every product granting one and the same.
  func current(in catalogue: Catalogue, at moment: Timestamp) -> Entitlement? {
    let holdings = rule.charges.indices.map { line.holding(ofChargeAt: $0, in: rule) }
    let products = rule.charges.map { charge in
      var product =
        catalogue.product(charge.productID, at: charge.date)
        ?? Product(
          id: charge.productID, validFrom: charge.date,
          type: charge.type(in: catalogue) ?? .consumable,
          entitlements: [])
      product.entitlements = ["line"]
      return product
    }
    return Entitlement.entitlements(
      holdings: holdings, catalogue: Catalogue(Set(products)), at: moment
    ).first
  }
}
