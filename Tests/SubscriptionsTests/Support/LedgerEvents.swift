import Foundation
import Subscriptions

extension Ledger {
  /// The events of a step of a story.
  mutating func published(_ step: (inout Ledger) -> Void) -> [LedgerEvent] {
    let (before, ruleBefore, count) = (line, rule, items.count)
    step(&self)
    return OriginalTransactionEvents(
      before: before, ruleBefore: ruleBefore, after: line, rule: rule,
      items: Array(items.dropFirst(count))
    ).events(at: now)
  }
}

extension LedgerEvent {
  /// The event in a few words: its kind, its account, its charge, and what matters of the
  /// rest.
  var words: String {
    let letter = account.map { String(UnicodeScalar($0.rawValue.uuid.15)) } ?? "-"
    var words = [kind.rawValue, letter]
    if let id = data.transactionID { words.append(id.rawValue) }
    switch kind {
    case .transactionRecorded, .recovered, .inBillingRetry, .transactionRestored: break
    case .ownerDecided, .transactionClaimed, .ownerCorrected, .bindingClosed, .bindingOpened:
      if let isOwner = data.isOwner { words.append(isOwner ? "gained" : "lost") }
      if let rule = data.rule { words.append("by \(rule.rawValue)") }
      if let counterpart = data.counterpart {
        words.append("from \(counterpart == .noAccount ? "none" : counterpart.rawValue)")
      }
    case .transactionRevoked: words.append(data.revokedAt?.inDays ?? "")
    case .renewalStatusChanged:
      words.append(data.autoRenewing == true ? "on" : "off")
      if let product = data.autoRenewProductID { words.append("for \(product)") }
    case .inGracePeriod: words.append(data.graceEndsAt?.inDays ?? "")
    case .productChanged: words.append("\(data.previousProductID ?? "") to \(data.productID ?? "")")
    case .entitlementGranted, .entitlementExtended, .entitlementShortened, .entitlementExpired,
      .entitlementRevoked, .orderFulfilled, .orderRefunded, .orderReopened, .orderExpired,
      .accountErased:
      break
    }
    return words.joined(separator: " ")
  }
}

extension Timestamp {
  /// The day of the story.
  var inDays: String { "day \((self - day(0)).inMilliseconds / 86_400_000)" }
}
