package import Subscriptions

/// A free extension of one subscription, or of all subscriptions to a product:
/// <https://developer.apple.com/documentation/appstoreserverapi/extendrenewaldaterequest>,
/// <https://developer.apple.com/documentation/appstoreserverapi/massextendrenewaldaterequest>.
package typealias ExtendRenewalDateRequest = JSONPayload<ExtensionRequestFields>

package struct ExtensionRequestFields: JSONFields {
  package let extendByDays = JSONField<Int64>("extendByDays")  // 1 to 90
  package let extendReasonCode = JSONField<ExtendReasonCode>("extendReasonCode")
  /// A UUID chosen by the caller, for requesting the status.
  package let requestIdentifier = JSONField<String>("requestIdentifier")
  /// ISO 3166-1 alpha-3; absent for all storefronts.
  package let storefrontCountryCodes = JSONField<[String]>("storefrontCountryCodes")
  /// Only for all subscriptions to it.
  package let productID = JSONField<String>("productId")
  package static let schema = JSONSchema(Self())
}

/// See <https://developer.apple.com/documentation/appstoreserverapi/extendrenewaldateresponse>.
package typealias ExtendRenewalDateResponse = JSONPayload<ExtensionResponseFields>

package struct ExtensionResponseFields: JSONFields {
  package let originalTransactionID = JSONField<String>("originalTransactionId")
  package let webOrderLineItemID = JSONField<String>("webOrderLineItemId")
  package let success = JSONField<Bool>("success")
  /// The new end of the period.
  package let effectiveDate = JSONField<Timestamp>("effectiveDate")
  package static let schema = JSONSchema(Self())
}

/// The progress of a free extension of all subscriptions:
/// <https://developer.apple.com/documentation/appstoreserverapi/massextendrenewaldatestatusresponse>.
///
/// The response to the request itself has only the identifier.
package typealias MassExtendRenewalDateResponse = JSONPayload<MassExtensionResponseFields>

package struct MassExtensionResponseFields: JSONFields {
  package let requestIdentifier = JSONField<String>("requestIdentifier")
  package let complete = JSONField<Bool>("complete")
  package let succeededCount = JSONField<Int64>("succeededCount")
  package let failedCount = JSONField<Int64>("failedCount")
  package static let schema = JSONSchema(Self())
}

/// See <https://developer.apple.com/documentation/appstoreserverapi/extendreasoncode>.
package struct ExtendReasonCode: OpenEnumeration {
  package var rawValue: Int64
  package init(rawValue: Int64) { self.rawValue = rawValue }

  package static let undeclared = Self(rawValue: 0)
  package static let customerSatisfaction = Self(rawValue: 1)
  package static let other = Self(rawValue: 2)
  package static let serviceIssueOrOutage = Self(rawValue: 3)
}
