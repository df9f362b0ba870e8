import AppStore
import JSONText
import Subscriptions

import Foundation

/// One charge under the names and dates that a certain receipt shows.
struct AnswerItem {
  let charge: Charge
  let line: Line
  var transactionID: TransactionID
  var purchaseDate: Timestamp
  var originalPurchaseDate: Timestamp
  /// The revocation that the item shows; a receipt's own list is as old as the receipt.
  var revocation: Charge.Revocation?

  /// The fields that the old and the new shape have in common.
  var namesAndDates: [JSONValue.Member] {
    var members: [JSONValue.Member] = []
    members.append("quantity", String(charge.quantity))
    members.append("product_id", charge.product.id.rawValue)
    members.append("transaction_id", transactionID.rawValue)
    members.append("original_transaction_id", line.id.rawValue)
    members.append(date: "purchase_date", purchaseDate)
    members.append(date: "original_purchase_date", originalPurchaseDate)
    return members
  }

  /// An element of `in_app`, or of `latest_receipt_info`, which says more.
  ///
  /// https://developer.apple.com/documentation/appstorereceipts/responsebody
  func json(isLatest: Bool, quirks: Set<Quirk>) -> JSONValue {
    var members = namesAndDates
    if let expiresDate = charge.expiresDate {
      members.append(date: "expires_date", expiresDate)
    }
    if let lineItem = charge.webOrderLineItemID, !quirks.contains(.withoutLineItemIDs) {
      members.append("web_order_line_item_id", lineItem.rawValue)
    }
    members.append("is_trial_period", String(charge.periodType == .trial))
    if line.group != nil {
      members.append("is_in_intro_offer_period", String(charge.periodType == .intro))
    }
    appendCancellation(to: &members, isLatest: isLatest, quirks: quirks)
    if !quirks.contains(.withoutOwnershipType) {
      members.append(
        "in_app_ownership_type", line.ownership == .purchased ? "PURCHASED" : "FAMILY_SHARED")
    }
    if isLatest, let group = line.group {
      members.append("subscription_group_identifier", group)
    }
    if let offer = charge.offer {
      members.append(offer.kind.receiptKey, offer.name)
    }
    if let token = charge.appAccountToken {
      members.append("app_account_token", token.uuidString.lowercased())
    }
    return JSONValue.object(members).with(quirks)
  }

  private func appendCancellation(
    to members: inout [JSONValue.Member], isLatest: Bool, quirks: Set<Quirk>
  ) {
    if let revocation {
      members.append(date: "cancellation_date", revocation.at)
      members.append("cancellation_reason", revocation.reason)
    } else if let upgradedAt = charge.upgradedAt, isLatest {
      if quirks.contains(.upgradesAsCancellations) {
        members.append(date: "cancellation_date", upgradedAt)
        members.append("cancellation_reason", "0")
      } else {
        members.append("is_upgraded", "true")
      }
    }
  }
}

extension JSONValue {
  private static let nativeNumbers: Set<ExactText> = [
    "quantity", "transaction_id", "original_transaction_id", "web_order_line_item_id",
    "auto_renew_status", "is_in_billing_retry_period", "expiration_intent",
  ]

  /// The object with native numbers and booleans, where that quirk is wanted.
  func with(_ quirks: Set<Quirk>) -> JSONValue {
    guard quirks.contains(.nativeValues), case .object(let members) = self else { return self }
    return .object(
      members.map { member in
        guard let text = member.value.string else { return member }
        var member = member
        if text == "true" || text == "false" {
          member.value = .bool(text == "true")
        } else if member.key.rawValue.hasSuffix("_ms") || Self.nativeNumbers.contains(member.key),
          let number = Int64(text)
        {
          member.value = .integer(number)
        }
        return member
      })
  }
}
