import Foundation
import Postgres
import Subscriptions

/// What a recording tells of its lines and orders, and of whom it changes what they have.
struct RecordingNews {
  /// The events but for those of entitlements, in the order in which they are told.
  private(set) var events: [LedgerEvent] = []
  /// The accounts whose holdings the recording changes.
  private(set) var holders: Set<AccountKey> = []
  /// The account ids behind the keys that are known.
  private(set) var names: [AccountKey: String] = [:]
  /// The accounts that are erased: nothing is told of them.
  private(set) var erased: Set<AccountKey> = []

  /// - Parameters:
  ///   - recording: What was recorded.
  ///   - orders: What became of orders by it.
  ///   - now: The recording date.
  init(_ recording: Recording, orders: [OrderChange], at now: Timestamp) {
    for family in recording.distinctFamilies {
      names.merge(family.names) { first, _ in first }
      erased.formUnion(family.line.history.erasures.keys)
      guard !family.entries.isEmpty else { continue }
      events +=
        LineNews(
          before: family.before.line, ruleBefore: family.ruleBefore, after: family.line,
          rule: family.rule, entries: family.entries
        ).events(at: now)
      holders.formUnion(family.changedHolders)
    }
    events += orders.map { $0.event(in: recording, at: now) }
  }

  /// Whom anything is told or changed of.
  var accounts: Set<AccountKey> {
    holders.union(events.compactMap(\.account)).subtracting(erased)
  }

  /// The events that are told: none of an erased account, and those of a binding that moved say
  /// what the account has now.
  func events(with news: [AccountNews]) -> [LedgerEvent] {
    let news = Dictionary(uniqueKeysWithValues: news.map { ($0.key, $0) })
    return events.compactMap { event in
      guard let account = event.account else { return event }
      guard let told = news[account] else { return nil }
      var event = event
      switch event.kind {
      case .bindingClosed, .bindingOpened: event.data.entitlements = told.entitlements
      default: break
      }
      return event
    }
  }
}

extension RecordedFamily {
  /// The accounts whose rows in the table of holdings the recording changes.
  fileprivate var changedHolders: Set<AccountKey> {
    // Lines that become one held what is held once now.
    holdings.changedAccounts.union(holdings.isOfNewlyLinked ? before.accounts : [])
  }
}

extension OrderChange {
  fileprivate func event(in recording: Recording, at now: Timestamp) -> LedgerEvent {
    var data = EventData(line: charge.line)
    data.orderID = order.uuidString.lowercased()
    data.transactionID = charge.transactionID
    data.productID = productID
    if let charge = recording.family(of: charge)?.charge(of: charge)?.charge {
      data.purchasedAt = charge.date
      data.expiresAt = charge.end
      data.revokedAt = charge.revocation?.at
    }
    let kind: LedgerEvent.Kind =
      switch change {
      case .fulfilled: .orderFulfilled
      case .refunded: .orderRefunded
      case .reopened: .orderReopened
      }
    return LedgerEvent(kind, at: now, account: account, data: data)
  }
}
