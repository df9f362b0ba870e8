package import JSONText
package import Subscriptions

/// Advanced Commerce API data of a transaction or renewal.
///
/// https://developer.apple.com/documentation/appstoreserverapi/advancedcommerceinfo. Amounts are in
/// thousandths of the currency's unit.
package struct AdvancedCommerceInfo: JSONPayload {
  package var descriptors: Descriptors?
  package var estimatedTax: Int64?
  package var items: [Item]?
  package var period: String?  // ISO 8601
  package var requestReferenceID: String?
  package var taxCode: String?
  package var taxExclusivePrice: Int64?
  package var taxRate: String?
  /// Only present in renewals.
  package var consistencyToken: String?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("descriptors", \.descriptors),
    JSONField("estimatedTax", \.estimatedTax),
    JSONField("items", \.items),
    JSONField("period", \.period),
    JSONField("requestReferenceId", \.requestReferenceID),
    JSONField("taxCode", \.taxCode),
    JSONField("taxExclusivePrice", \.taxExclusivePrice),
    JSONField("taxRate", \.taxRate),
    JSONField("consistencyToken", \.consistencyToken),
  ])

  package struct Descriptors: JSONPayload {
    package var description: String?
    package var displayName: String?
    package var unknownFields: [JSONValue.Member] = []

    package init() {}

    package static let fields = JSONFields<Self>([
      JSONField("description", \.description),
      JSONField("displayName", \.displayName),
    ])
  }

  package struct Item: JSONPayload {
    package var sku: String?
    package var description: String?
    package var displayName: String?
    package var price: Int64?
    package var offer: Offer?
    /// The only place where refunds of parts appear.
    package var refunds: [Refund]?
    package var revocationDate: Timestamp?
    package var priceIncreaseInfo: PriceIncreaseInfo?
    package var unknownFields: [JSONValue.Member] = []

    package init() {}

    package static let fields = JSONFields<Self>([
      JSONField("SKU", \.sku),
      JSONField("description", \.description),
      JSONField("displayName", \.displayName),
      JSONField("price", \.price),
      JSONField("offer", \.offer),
      JSONField("refunds", \.refunds),
      JSONField("revocationDate", \.revocationDate),
      JSONField("priceIncreaseInfo", \.priceIncreaseInfo),
    ])
  }

  package struct Offer: JSONPayload {
    package var period: String?  // ISO 8601
    package var periodCount: Int64?
    package var price: Int64?
    package var reason: String?
    package var unknownFields: [JSONValue.Member] = []

    package init() {}

    package static let fields = JSONFields<Self>([
      JSONField("period", \.period),
      JSONField("periodCount", \.periodCount),
      JSONField("price", \.price),
      JSONField("reason", \.reason),
    ])
  }

  package struct Refund: JSONPayload {
    package var refundAmount: Int64?
    package var refundDate: Timestamp?
    package var refundReason: String?
    package var refundType: String?
    package var unknownFields: [JSONValue.Member] = []

    package init() {}

    package static let fields = JSONFields<Self>([
      JSONField("refundAmount", \.refundAmount),
      JSONField("refundDate", \.refundDate),
      JSONField("refundReason", \.refundReason),
      JSONField("refundType", \.refundType),
    ])
  }

  /// A price increase at the next renewal.
  package struct PriceIncreaseInfo: JSONPayload {
    package var dependentSKUs: [String]?
    package var price: Int64?
    package var status: String?
    package var unknownFields: [JSONValue.Member] = []

    package init() {}

    package static let fields = JSONFields<Self>([
      JSONField("dependentSKUs", \.dependentSKUs),
      JSONField("price", \.price),
      JSONField("status", \.status),
    ])
  }
}
