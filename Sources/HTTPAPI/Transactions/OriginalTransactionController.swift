import Foundation
import Hummingbird
import HummingbirdCore
import JSONText
import LedgerStorage
package import Subscriptions

struct OriginalTransactionController: Controller {
  let api: API

  func show(_ request: Request, context: APIContext) async throws -> Response {
    let id = OriginalTransactionID(try context.parameter(.originalTransactionID))
    guard let line = try await ledger.line(id, environment: try request.query.environment()),
      let original = try await ledger.ownership.original(of: line)
    else {
      throw Problem(
        .unknownOriginalTransaction, "Original transaction \(id) is not recorded.")
    }
    let (catalogue, now) = (catalogue, now())
    let bindings = Binding.bindings(of: original.rule.charges, decisions: original.rule.decisions)
    // The entitlement that an account owning all its charges would have.
    let current = original.current(in: catalogue, at: now)
    let summary = OriginalTransactionState(line: original.line, rule: original.rule)
    func name(of account: AccountKey) -> String { original.names[account] ?? "erased" }
    return Response(capacity: 4096) { json in
      json.member("original_transaction_id", line.originalTransactionID)
      json.member("environment", line.environment)
      json.member("account_id", bindings.account(asOf: now).map(name(of:)))
      json.member("auto_renewing", current?.willRenew ?? false)
      json.member("auto_renew_product_id", summary.autoRenewProductID)
      json.member("product_id", current?.productID ?? summary.latest?.productID)
      json.member("expires_at", current.map(\.expiresAt) ?? summary.paidThrough)
      json.member("state", current?.state)
      json.objects("bindings", bindings) { json, binding in
        json.member("account_id", binding.account.map(name(of:)))
        json.member("bound_at", binding.boundAt)
        json.member("transaction_id", binding.charge.transactionID)
        json.member("rule", binding.rule)
      }
      json.array("transactions", original.charges(in: catalogue)) {
        $0.transaction($1, in: catalogue)
      }
    }
  }

  func preview(_ request: Request, context: APIContext) async throws -> Response {
    let query = request.query
    let accountID = try query.required(.accountID)
    let originalID = try query.required(.originalTransactionID)
    let environment = try query.environment()
    let id = OriginalTransactionID(originalID)
    // An unknown original transaction has no owner: the first account to submit it becomes it.
    let line =
      try await ledger.line(id, environment: environment)
      ?? OriginalTransactionKey(environment ?? .production, id)
    // An unknown account owns nothing, so any key will do.
    let account = try await ledger.accounts.account(accountID)?.key ?? AccountKey(rawValue: UUID())
    let original = try await ledger.ownership.original(of: line, claimant: account)
    var names = original?.names ?? [:]
    names[account] = accountID
    let preview = OwnershipPreview(
      of: original?.line ?? OriginalTransaction(members: [line]), account: account, id: line,
      at: now())
    return Response { [names] json in
      json.member("account_id", accountID)
      json.member("original_transaction_id", line.originalTransactionID)
      json.member("environment", line.environment)
      for (name, decision) in [("purchase", preview.purchase), ("renewal", preview.renewal)] {
        json.object(name) { json in
          json.member("owner_account_id", decision.owner.map { names[$0] ?? "erased" })
          json.member("rule", decision.rule)
          json.member("because", Explanation(decision) { names[$0] ?? "erased" }.sentence)
        }
      }
    }
  }

}

extension Ledger {
  /// Finds an original transaction in the given environment, or else in the only one that has it.
  func line(_ id: OriginalTransactionID, environment: Subscriptions.Environment?)
    async throws -> OriginalTransactionKey?
  {
    let environments = try await ownership.environments(of: id)
      .filter { environment == nil || $0 == environment }
    guard environments.count <= 1 else {
      throw Problem(
        .ambiguous,
        "Original transaction \(id) exists in both environments: add `environment=production` or "
          + "`environment=sandbox`.")
    }
    return environments.first.map { OriginalTransactionKey($0, id) }
  }
}

extension RecordedOriginalTransaction {
  /// The state at a moment, as if one account owned all; nil if no charge has a duration.
  ///
  /// - Parameter some: The charges that count; nil for all.
  package func current(
    of some: Set<Charge.ID>? = nil, in catalogue: Catalogue, at moment: Timestamp
  ) -> Entitlement? {
    let holdings = rule.charges.indices
      .filter { some?.contains(rule.charges[$0].id) ?? true }
      .map { line.holding(ofChargeAt: $0, in: rule) }
    let products = rule.charges.map { charge in
      var product =
        catalogue.product(charge.productID, at: charge.date)
        ?? Product(
          id: charge.productID, validFrom: charge.date,
          type: charge.type(in: catalogue) ?? .consumable, entitlements: [])
      product.entitlements = ["line"]
      return product
    }
    return Entitlement.entitlements(
      holdings: holdings, catalogue: Catalogue(Set(products)), at: moment
    ).first
  }
}
