package import Postgres
package import Subscriptions

// How the rule's own types travel: identifiers and enumerations as their raw values.

extension Timestamp: PostgresRepresentable {
  package var postgresValue: PostgresTimestamp {
    PostgresTimestamp(millisecondsSince1970: milliseconds)
  }

  /// Rounds down to the millisecond, so that what SQL wrote with microseconds stays in its own.
  package init(postgresValue: PostgresTimestamp) throws {
    guard postgresValue.isFinite else { throw DecodingFault.outOfRange }
    self.init(milliseconds: postgresValue.millisecondsSince1970)
  }
}

extension Environment: PostgresEncodable, PostgresDecodable {}
extension ProductID: PostgresEncodable, PostgresDecodable {}
extension TransactionID: PostgresEncodable, PostgresDecodable {}
extension OriginalTransactionID: PostgresEncodable, PostgresDecodable {}
extension WebOrderLineItemID: PostgresEncodable, PostgresDecodable {}
extension AccountKey: PostgresEncodable, PostgresDecodable {}
extension ProductType: PostgresEncodable, PostgresDecodable {}
extension ChargeKind: PostgresEncodable, PostgresDecodable {}
extension OwnershipType: PostgresEncodable, PostgresDecodable {}
extension PeriodType: PostgresEncodable, PostgresDecodable {}
extension Decision.Rule: PostgresEncodable, PostgresDecodable {}
extension RenewalFinding.Ground: PostgresEncodable, PostgresDecodable {}
extension PurchaseOrder.Status: PostgresEncodable, PostgresDecodable {}
extension Movement.Kind: PostgresEncodable, PostgresDecodable {}
extension ChargePrice.Source: PostgresEncodable, PostgresDecodable {}
extension Entitlement.Source: PostgresEncodable, PostgresDecodable {}
extension Job.Lane: PostgresEncodable, PostgresDecodable {}
extension Job.Task.Kind: PostgresEncodable {}
extension AppleTelling.Kind: PostgresEncodable, PostgresDecodable {}
extension AppleTelling.Reason: PostgresEncodable, PostgresDecodable {}
extension LedgerEvent.Kind: PostgresEncodable, PostgresDecodable {}

extension RenewalStatus.Phase {
  /// The name under which the phase is stored.
  var name: String {
    switch self {
    case .undisturbed: "undisturbed"
    case .gracePeriod: "grace_period"
    case .billingRetry: "billing_retry"
    case .expired: "expired"
    }
  }

  var graceEndsAt: Timestamp? {
    if case .gracePeriod(let until) = self { until } else { nil }
  }

  /// - Throws: ``DecodingFault`` for a name that no phase has, or a grace period without its end.
  init(name: String, graceEndsAt: Timestamp?) throws {
    switch (name, graceEndsAt) {
    case ("undisturbed", nil): self = .undisturbed
    case ("grace_period", let until?): self = .gracePeriod(until: until)
    case ("billing_retry", nil): self = .billingRetry
    case ("expired", nil): self = .expired
    default: throw DecodingFault.unknownValue
    }
  }
}
