import Foundation
import Subscriptions

/// A random story of one line, with dates that cluster round the boundaries of the rule.
struct RandomHistory {
  private(set) var items: [Item] = []
  private(set) var orders: Set<OpenedOrder> = []
  private(set) var erasures: [AccountKey: Timestamp] = [:]
  private(set) var merges: [AccountKey: AccountMerge] = [:]
  private(set) var members: [OriginalTransactionKey] = [mainKey]
  private var known: [TransactionKey] = []

  /// Whether charges overlap, answers disagree, lines are linked and administrators act; else Apple
  /// is consistent, and things look as they mostly do.
  private let isHostile: Bool

  init(isHostile: Bool, using generator: inout SeededGenerator) {
    self.isHostile = isHostile
    if isHostile, generator.once(in: 3) {
      members.append(otherKey)
      items.append(.evidence(.link(line: otherKey, previous: mainKey)))
    }
    var start = day(0)
    for number in 1...generator.number(1...7) {
      let record = record(number, from: start, using: &generator)
      addAnswers(about: record, using: &generator)
      addStatuses(near: record, using: &generator)
      addActions(on: record, using: &generator)
      let end = record.expiresDate ?? start
      start = Self.moment(near: isHostile && generator.once(in: 5) ? start : end, using: &generator)
    }
    if generator.once(in: 6) {
      erasures[generator.pick(a, b)] = Self.moment(near: start, using: &generator)
    }
    if isHostile, generator.once(in: 6) {
      for (account, other) in generator.pick([(a, b)], [(a, b), (b, c)], [(b, t)], [(t, a)]) {
        merges[account] = AccountMerge(
          into: other, at: Self.moment(near: start, using: &generator))
      }
    }
  }

  var ledger: Ledger {
    Ledger(members: members, orders: orders, erasures: erasures, merges: merges)
  }

  private func record(_ number: Int, from start: Timestamp, using generator: inout SeededGenerator)
    -> TransactionRecord
  {
    var product = generator.pick(ProductID.monthly, .monthly, .quarterly)
    if isHostile, generator.once(in: 6) { product = generator.pick(.gems, .lifetime, .season) }
    let length = product == .quarterly ? Duration.days(90) : .days(30)
    let lacksItem = isHostile && generator.once(in: 3)
    var record = charge(
      TransactionID("\(number)"), product, from: start,
      to: product.hasPeriod ? start + length : nil,
      kind: generator.pick(.unknown, .unknown, .unknown, .renewal, .purchase),
      line: generator.pick(from: members),
      item: lacksItem ? nil : WebOrderLineItemID("w\(number)"),
      token: generator.pick(nil, nil, nil, issuedToken(t), issuedToken(b), strangeToken),
      isCommitment: generator.once(in: 8))
    if isHostile, generator.once(in: 3) { record.productType = catalogue[product]?.type }
    // A trimmed payload; and one of a restore before 2015, which carries the restore's date.
    if isHostile, generator.once(in: 12) { record.expiresDate = nil }
    if isHostile, let end = record.expiresDate, generator.once(in: 12) {
      record.originalPurchaseDate = start
      record.purchaseDate = end + .days(generator.pick(1, 400))
    }
    return record
  }

  private mutating func addAnswers(
    about record: TransactionRecord, using generator: inout SeededGenerator
  ) {
    items.append(.evidence(.transaction(record)))
    for _ in 0..<generator.number(0...2) {
      items.append(.evidence(.transaction(again(record, using: &generator))))
    }
  }

  /// Another answer about the same transaction, or about the same charge under another id.
  private func again(_ record: TransactionRecord, using generator: inout SeededGenerator)
    -> TransactionRecord
  {
    let end = record.expiresDate ?? record.purchaseDate
    var record = record
    record.asOf = Self.moment(near: end, using: &generator)
    switch generator.number(1...14) {
    case 1, 2:
      record.revocation = .revoked(
        Revocation(
          at: Self.moment(near: end, using: &generator), reason: nil,
          percentage: generator.pick(nil, 50_000)))
    case 3: record.isUpgraded = true
    case 4:
      let id = TransactionID("\(record.key.transactionID)9")
      record.key = key(id, record.key.productID, line: record.key.line)
    case 5: record.revocation = .notSaid
    case 6: record.appAccountToken = generator.pick(nil, issuedToken(c))
    case 7 where isHostile:
      record.key = key(
        record.key.transactionID, record.key.productID, line: generator.pick(from: members))
      record.webOrderLineItemID = nil
    case 8 where isHostile:
      record.expiresDate = record.expiresDate.map { Self.moment(near: $0, using: &generator) }
    case 13, 14:
      record.revocation = .mentioned(at: Self.moment(near: end, using: &generator), reason: nil)
    case 11: record.revocation = .notMentioned
    case 12: record.revocation = .notRevoked
    case 9: record.kind = generator.pick(.unknown, .renewal, .purchase)
    case 10 where isHostile: record.productType = catalogue[record.key.productID]?.type
    default: break
    }
    return record
  }

  private mutating func addStatuses(
    near record: TransactionRecord, using generator: inout SeededGenerator
  ) {
    for _ in 0..<generator.number(0...4) {
      let date = generator.pick(record.purchaseDate, record.expiresDate ?? record.purchaseDate)
      let asOf = Self.moment(near: date, using: &generator)
      let status = RenewalStatus(
        asOf: asOf, autoRenews: generator.pick(true, false, false, nil),
        phase: generator.pick(
          nil, nil, .undisturbed, .billingRetry, .expired, .gracePeriod(until: asOf + .days(16))),
        appAccountToken: generator.pick(nil, nil, nil, issuedToken(b), issuedToken(c)))
      items.append(.evidence(.renewalStatus(status, line: generator.pick(from: members))))
    }
  }

  private mutating func addActions(
    on record: TransactionRecord, using generator: inout SeededGenerator
  ) {
    known.append(record.key)
    for _ in 0..<generator.number(0...2) {
      let receivedAt =
        record.chargedAt + generator.pick(minus(.minutes(5)), .zero, .minutes(5), .days(1))
      // Mostly the latest purchase, else a restore of everything known, in random order.
      let selected = generator.once(in: 4) ? known.shuffled(using: &generator) : [record.key]
      let account = generator.pick(a, b, b, c)
      items.append(
        .actions(
          selected.map {
            .claim(Claim(account: account, transaction: $0, receivedAt: receivedAt))
          }))
    }
    if generator.once(in: 3) {
      let date = generator.pick(record.purchaseDate, record.expiresDate ?? record.purchaseDate)
      orders.insert(
        OpenedOrder(
          account: generator.pick(a, b, c), productID: record.key.productID,
          openedAt: Self.moment(near: date, using: &generator)))
    }
    if generator.once(in: 8) {
      items.append(
        importItem(
          generator.pick(from: members), for: generator.pick(a, b, c),
          boughtUntil: Self.moment(near: record.purchaseDate, using: &generator)))
    }
    if isHostile, generator.once(in: 8) {
      items.append(
        overrideItem(
          record.key, with: generator.pick(a, b, nil, nil),
          from: Self.moment(near: record.purchaseDate, using: &generator)))
      // After a release, the next claim; after an assignment, a claim without effect.
      if generator.once(in: 2) {
        items.append(
          claimItem(
            generator.pick(from: known), record.key, by: generator.pick(a, b, c),
            receivedAt: record.chargedAt + .days(1)))
      }
    }
  }

  /// A moment at, just before or just after a date, by one of the rule's lengths.
  static func moment(near date: Timestamp, using generator: inout SeededGenerator) -> Timestamp {
    let offset = generator.pick(
      Duration.zero, .zero, .zero, .seconds(60), .minutes(5), .hours(20), .hours(24), .days(2),
      .days(10), .days(15), .days(60), .days(90))
    let nudge = generator.pick(Duration.zero, .zero, ms, minus(ms))
    return generator.once(in: 2) ? date + offset + nudge : date - offset + nudge
  }
}

extension ProductID {
  fileprivate var hasPeriod: Bool { self == .monthly || self == .quarterly }
}

extension Ledger {
  /// Records batch after batch, sometimes long after the one before.
  mutating func record(_ batches: [[Item]], using generator: inout SeededGenerator) {
    for batch in batches {
      record(batch, at: generator.once(in: 3) ? now + .days(generator.number(0...20)) : nil)
    }
  }
}
