package import JSONText

/// Consumption information about a purchase for which a refund was requested, version 2.
///
/// <https://developer.apple.com/documentation/appstoreserverapi/consumptionrequest>.
package struct ConsumptionRequest: JSONPayload {
  /// Apple only accepts true.
  package var customerConsented: Bool?
  package var deliveryStatus: DeliveryStatus?
  /// Whether the customer could try the content, or learn about it, before buying.
  package var sampleContentProvided: Bool?
  /// In thousandths of a percent; 0 unless delivered, absent for a prorated refund of a
  /// subscription.
  package var consumptionPercentage: Int64?
  package var refundPreference: RefundPreference?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("customerConsented", \.customerConsented),
    JSONField("consumptionPercentage", \.consumptionPercentage),
    JSONField("deliveryStatus", \.deliveryStatus),
    JSONField("refundPreference", \.refundPreference),
    JSONField("sampleContentProvided", \.sampleContentProvided),
  ])
}

package struct DeliveryStatus: OpenEnumeration {
  package var rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }

  package static let delivered = DeliveryStatus(rawValue: "DELIVERED")
  package static let undeliveredQualityIssue = DeliveryStatus(
    rawValue: "UNDELIVERED_QUALITY_ISSUE")
  package static let undeliveredWrongItem = DeliveryStatus(rawValue: "UNDELIVERED_WRONG_ITEM")
  package static let undeliveredServerOutage = DeliveryStatus(
    rawValue: "UNDELIVERED_SERVER_OUTAGE")
  package static let undeliveredOther = DeliveryStatus(rawValue: "UNDELIVERED_OTHER")
}

package struct RefundPreference: OpenEnumeration {
  package var rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }

  package static let decline = RefundPreference(rawValue: "DECLINE")
  package static let grantFull = RefundPreference(rawValue: "GRANT_FULL")
  package static let grantProrated = RefundPreference(rawValue: "GRANT_PRORATED")
}
