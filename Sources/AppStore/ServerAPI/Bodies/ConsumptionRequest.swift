/// Consumption information about a purchase for which a refund was requested, version 2:
/// <https://developer.apple.com/documentation/appstoreserverapi/consumptionrequest>.
package typealias ConsumptionRequest = JSONPayload<ConsumptionRequestFields>

package struct ConsumptionRequestFields: JSONFields {
  /// Apple only accepts true.
  package let customerConsented = JSONField<Bool>("customerConsented")
  package let deliveryStatus = JSONField<DeliveryStatus>("deliveryStatus")
  /// Whether the customer could try the content, or learn about it, before buying.
  package let sampleContentProvided = JSONField<Bool>("sampleContentProvided")
  /// In thousandths of a percent; 0 unless delivered, absent for a prorated refund.
  package let consumptionPercentage = JSONField<Int64>("consumptionPercentage")
  package let refundPreference = JSONField<RefundPreference>("refundPreference")
  package static let schema = JSONSchema(Self())
}

package struct DeliveryStatus: OpenEnumeration {
  package var rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }

  package static let delivered = Self(rawValue: "DELIVERED")
  package static let undeliveredQualityIssue = Self(rawValue: "UNDELIVERED_QUALITY_ISSUE")
  package static let undeliveredWrongItem = Self(rawValue: "UNDELIVERED_WRONG_ITEM")
  package static let undeliveredServerOutage = Self(rawValue: "UNDELIVERED_SERVER_OUTAGE")
  package static let undeliveredOther = Self(rawValue: "UNDELIVERED_OTHER")
}

package struct RefundPreference: OpenEnumeration {
  package var rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }

  package static let decline = Self(rawValue: "DECLINE")
  package static let grantFull = Self(rawValue: "GRANT_FULL")
  package static let grantProrated = Self(rawValue: "GRANT_PRORATED")
}
