package import JSONText
package import Subscriptions

/// A free extension of one subscription:
/// <https://developer.apple.com/documentation/appstoreserverapi/extendrenewaldaterequest>.
package struct ExtendRenewalDateRequest: JSONPayload {
  package var extendByDays: Int64?  // 1 to 90
  package var extendReasonCode: ExtendReasonCode?
  /// Chosen by the caller, usually a UUID.
  package var requestIdentifier: String?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("extendByDays", \.extendByDays),
    JSONField("extendReasonCode", \.extendReasonCode),
    JSONField("requestIdentifier", \.requestIdentifier),
  ])
}

/// See <https://developer.apple.com/documentation/appstoreserverapi/extendrenewaldateresponse>.
package struct ExtendRenewalDateResponse: JSONPayload {
  package var originalTransactionID: String?
  package var webOrderLineItemID: String?
  package var success: Bool?
  /// The new end of the period.
  package var effectiveDate: Timestamp?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("originalTransactionId", \.originalTransactionID),
    JSONField("webOrderLineItemId", \.webOrderLineItemID),
    JSONField("success", \.success),
    JSONField("effectiveDate", \.effectiveDate),
  ])
}

/// A free extension of all subscriptions to a product:
/// <https://developer.apple.com/documentation/appstoreserverapi/massextendrenewaldaterequest>.
package struct MassExtendRenewalDateRequest: JSONPayload {
  package var extendByDays: Int64?  // 1 to 90
  package var extendReasonCode: ExtendReasonCode?
  package var requestIdentifier: String?  // A UUID chosen by the caller, for requesting the status
  package var storefrontCountryCodes: [String]?  // ISO 3166-1 alpha-3; absent for all storefronts
  package var productID: String?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("extendByDays", \.extendByDays),
    JSONField("extendReasonCode", \.extendReasonCode),
    JSONField("requestIdentifier", \.requestIdentifier),
    JSONField("storefrontCountryCodes", \.storefrontCountryCodes),
    JSONField("productId", \.productID),
  ])
}

/// See <https://developer.apple.com/documentation/appstoreserverapi/massextendrenewaldateresponse>.
package struct MassExtendRenewalDateResponse: JSONPayload {
  package var requestIdentifier: String?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("requestIdentifier", \.requestIdentifier)
  ])
}

// https://developer.apple.com/documentation/appstoreserverapi/massextendrenewaldatestatusresponse
package struct MassExtendRenewalDateStatusResponse: JSONPayload {
  package var requestIdentifier: String?
  package var complete: Bool?
  package var completeDate: Timestamp?
  package var succeededCount: Int64?
  package var failedCount: Int64?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("requestIdentifier", \.requestIdentifier),
    JSONField("complete", \.complete),
    JSONField("completeDate", \.completeDate),
    JSONField("succeededCount", \.succeededCount),
    JSONField("failedCount", \.failedCount),
  ])
}

/// See <https://developer.apple.com/documentation/appstoreserverapi/extendreasoncode>.
package struct ExtendReasonCode: OpenEnumeration {
  package var rawValue: Int64
  package init(rawValue: Int64) { self.rawValue = rawValue }

  package static let undeclared = ExtendReasonCode(rawValue: 0)
  package static let customerSatisfaction = ExtendReasonCode(rawValue: 1)
  package static let other = ExtendReasonCode(rawValue: 2)
  package static let serviceIssueOrOutage = ExtendReasonCode(rawValue: 3)
}
