package import Subscriptions

/// Which of a customer's transactions are asked for.
///
/// https://developer.apple.com/documentation/appstoreserverapi/get-transaction-history. A revision
/// is good for the query that it came from, and for no other.
package struct TransactionHistoryQuery: Hashable, Sendable {
  /// Apple's `sort`, by the date of the last change.
  package enum Order: String, CaseIterable, Sendable {
    case ascending = "ASCENDING"
    /// Revisions of this order lead backwards: they are of no use for news.
    case descending = "DESCENDING"
  }

  /// Apple's `productType`.
  package enum ProductType: String, CaseIterable, Sendable {
    case autoRenewable = "AUTO_RENEWABLE"
    case nonRenewable = "NON_RENEWABLE"
    case consumable = "CONSUMABLE"
    case nonConsumable = "NON_CONSUMABLE"
  }

  /// Purchased at that moment or later.
  package var startDate: Timestamp?
  /// Purchased before that moment.
  package var endDate: Timestamp?
  /// Empty: of every product.
  package var productIDs: [ProductID] = []
  /// Empty: of every type.
  package var productTypes: [ProductType] = []
  package var order = Order.ascending
  /// Empty: of every group.
  package var subscriptionGroupIdentifiers: [String] = []
  package var inAppOwnershipType: InAppOwnershipType?
  /// True: those alone that were revoked; false: the others alone.
  package var revoked: Bool?

  package init() {}

  /// As Apple reads it, always the same for the same query.
  var items: [(name: String, value: String)] {
    var items: [(name: String, value: String)] = []
    if let startDate { items.append(("startDate", "\(startDate.milliseconds)")) }
    if let endDate { items.append(("endDate", "\(endDate.milliseconds)")) }
    items += productIDs.map { ("productId", $0.rawValue) }
    items += productTypes.map { ("productType", $0.rawValue) }
    items.append(("sort", order.rawValue))
    items += subscriptionGroupIdentifiers.map { ("subscriptionGroupIdentifier", $0) }
    if let inAppOwnershipType { items.append(("inAppOwnershipType", inAppOwnershipType.rawValue)) }
    if let revoked { items.append(("revoked", "\(revoked)")) }
    return items
  }
}
