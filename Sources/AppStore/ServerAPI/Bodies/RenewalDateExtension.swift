package import JSONText
package import Subscriptions

/// A free extension of one customer's subscription.
///
/// https://developer.apple.com/documentation/appstoreserverapi/extendrenewaldaterequest
package struct ExtendRenewalDateRequest: JSONPayload {
  /// 1 to 90.
  package var extendByDays: Int64?
  package var extendReasonCode: ExtendReasonCode?
  /// The caller's own name for the request, usually a UUID.
  package var requestIdentifier: String?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("extendByDays", \.extendByDays),
    JSONField("extendReasonCode", \.extendReasonCode),
    JSONField("requestIdentifier", \.requestIdentifier),
  ])
}

/// What came of extending one customer's subscription.
///
/// https://developer.apple.com/documentation/appstoreserverapi/extendrenewaldateresponse
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

/// A free extension of every active subscription to one product.
///
/// https://developer.apple.com/documentation/appstoreserverapi/massextendrenewaldaterequest
package struct MassExtendRenewalDateRequest: JSONPayload {
  /// 1 to 90.
  package var extendByDays: Int64?
  package var extendReasonCode: ExtendReasonCode?
  /// The caller's own name for the request, a UUID: the outcome is asked for with it.
  package var requestIdentifier: String?
  /// ISO 3166-1 alpha-3; absent for all.
  package var storefrontCountryCodes: [String]?
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

/// Apple's word that it has begun to extend.
///
/// https://developer.apple.com/documentation/appstoreserverapi/massextendrenewaldateresponse
package struct MassExtendRenewalDateResponse: JSONPayload {
  package var requestIdentifier: String?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("requestIdentifier", \.requestIdentifier)
  ])
}

/// How far Apple has come with extending.
///
/// https://developer.apple.com/documentation/appstoreserverapi/massextendrenewaldatestatusresponse
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

/// Why a renewal date is extended.
///
/// https://developer.apple.com/documentation/appstoreserverapi/extendreasoncode
package struct ExtendReasonCode: OpenEnumeration {
  package var rawValue: Int64
  package init(rawValue: Int64) { self.rawValue = rawValue }

  package static let undeclared = ExtendReasonCode(rawValue: 0)
  package static let customerSatisfaction = ExtendReasonCode(rawValue: 1)
  package static let other = ExtendReasonCode(rawValue: 2)
  package static let serviceIssueOrOutage = ExtendReasonCode(rawValue: 3)
}
