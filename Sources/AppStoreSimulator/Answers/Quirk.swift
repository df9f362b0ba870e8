/// A peculiarity of verifyReceipt's answers that real ones have shown; each can be switched on.
package enum Quirk: String, Hashable, Codable, CaseIterable, Sendable {
  /// Lists come in no order.
  case shuffled
  /// Some items of a list come twice.
  case doubled
  /// Some charges stand only in `in_app`, some only in `latest_receipt_info`, some in both.
  case split
  /// `in_app` is empty although the receipt is valid.
  case emptyInApp = "empty_in_app"
  /// Receipts restored before 2015: the purchase date is the restore's, often after the expiry.
  case restoredPurchaseDates = "restored_purchase_dates"
  /// Older answers: an upgrade shows as a cancellation at its moment, without `is_upgraded`.
  case upgradesAsCancellations = "upgrades_as_cancellations"
  /// Numbers and booleans where Apple writes strings today.
  case nativeValues = "native_values"
  /// `latest_receipt_info` is one object, the latest item, instead of a list.
  case latestInfoAsObject = "latest_info_as_object"
  /// `receipt` is a list with one element.
  case receiptAsArray = "receipt_as_array"
  /// Before 2020 items had no `in_app_ownership_type`.
  case withoutOwnershipType = "without_ownership_type"
  /// Items without `web_order_line_item_id`.
  case withoutLineItemIDs = "without_line_item_ids"
  /// 21007 and 21008 come with the decoded receipt, which is to be ignored.
  case receiptWithWrongEnvironment = "receipt_with_wrong_environment"
}
