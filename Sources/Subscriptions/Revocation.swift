/// The end of a charge before its time: when, and how Apple explains it.
package struct Revocation: Hashable, Codable, Sendable {
  package var at: Timestamp
  package var reason: String?
  /// Apple's `revocationType`, where it is signed: REFUND_FULL, REFUND_PRORATED, FAMILY_REVOKE.
  package var type: String?
  /// The share that was refunded, in thousandths of a percent; nil: Apple did not say.
  package var percentage: Int64?

  package init(
    at: Timestamp, reason: String?, type: String? = nil, percentage: Int64? = nil
  ) {
    self.at = at
    self.reason = reason
    self.type = type
    self.percentage = percentage
  }

  /// Whether money was refunded: a member who leaves a family gets none.
  package var isRefund: Bool { type != "FAMILY_REVOKE" }

  /// The part of a price that was refunded, to the nearest milliunit.
  package func refunded(of milliunits: Int64) -> Int64 {
    let whole: Int64 = 100_000
    guard isRefund, let percentage, 0..<whole ~= percentage else {
      return isRefund ? milliunits : 0
    }
    let (units, rest) = milliunits.quotientAndRemainder(dividingBy: whole)
    return units * percentage + (rest * percentage + rest.signum() * whole / 2) / whole
  }

  /// Which of two yields: the later one, the one without a reason, then the one that says less.
  static func isWeaker(_ lhs: Revocation, _ rhs: Revocation) -> Bool {
    if lhs.at != rhs.at { return rhs.at < lhs.at }
    if lhs.reason != rhs.reason { return isWeaker(lhs.reason, rhs.reason) }
    if lhs.type != rhs.type { return isWeaker(lhs.type, rhs.type) }
    return isWeaker(lhs.percentage, rhs.percentage)
  }

  private static func isWeaker<Value: Comparable>(_ lhs: Value?, _ rhs: Value?) -> Bool {
    guard let lhs else { return rhs != nil }
    return rhs.map { $0 < lhs } ?? false
  }
}

/// What Apple's answers said about the revocation of one transaction.
///
/// Every part is an extreme of all answers, so merging is commutative, associative and idempotent.
/// What an unsigned answer lifts, a signed one that is not older lifts too: only the later of these
/// two is kept.
package struct RevocationHistory: Hashable, Sendable {
  /// How far Apple's unsigned answers about receipts can lag behind a revocation.
  package static let lag: Duration = .hours(24)

  /// The latest answer that named a revocation.
  package var revoked: Dated<Revocation>?
  /// The earliest one.
  package var firstRevokedAsOf: Timestamp?
  /// The latest signed answer that named none.
  package var notRevokedAsOf: Timestamp?
  /// The latest unsigned answer that could have named one, and did not; nil if it is no later than
  /// the signed one.
  package var notMentionedAsOf: Timestamp?

  package init(
    revoked: Dated<Revocation>? = nil, firstRevokedAsOf: Timestamp? = nil,
    notRevokedAsOf: Timestamp? = nil, notMentionedAsOf: Timestamp? = nil
  ) {
    self.revoked = revoked
    self.firstRevokedAsOf = firstRevokedAsOf
    self.notRevokedAsOf = notRevokedAsOf
    self.notMentionedAsOf = notMentionedAsOf
  }

  init(_ record: TransactionRecord) {
    switch record.revocation {
    case .notSaid: self.init()
    case .notMentioned: self.init(notMentionedAsOf: record.asOf)
    case .notRevoked: self.init(notRevokedAsOf: record.asOf)
    case .revoked(let revocation):
      self.init(revoked: Dated(revocation, asOf: record.asOf), firstRevokedAsOf: record.asOf)
    }
  }

  /// The revocation that holds; nil: there is none, or it was lifted.
  ///
  /// A signed answer lifts it at once, an unsigned one only if it is dated 24 hours after the
  /// revocation became known: by the first answer that named one or, of a second refund, by the
  /// date of that.
  package var current: Revocation? {
    guard let revoked else { return nil }
    if let notRevokedAsOf, revoked.asOf < notRevokedAsOf { return nil }
    let known = max(firstRevokedAsOf ?? revoked.asOf, revoked.value.at)
    if let notMentionedAsOf, revoked.asOf < notMentionedAsOf,
      known + Self.lag <= notMentionedAsOf
    {
      return nil
    }
    return revoked.value
  }

  mutating func merge(_ other: RevocationHistory) {
    revoked = latest(revoked, other.revoked, Revocation.isWeaker)
    firstRevokedAsOf = least(firstRevokedAsOf, other.firstRevokedAsOf)
    notRevokedAsOf = [notRevokedAsOf, other.notRevokedAsOf].compactMap(\.self).max()
    let notMentioned = [notMentionedAsOf, other.notMentionedAsOf].compactMap(\.self).max()
    notMentionedAsOf = notMentioned.flatMap { unsigned in
      notRevokedAsOf.map { unsigned <= $0 } ?? false ? nil : unsigned
    }
  }

  /// Notes that an answer repeats what holds.
  mutating func confirm(asOf: Timestamp) {
    if let known = revoked, current != nil {
      revoked?.asOf = max(known.asOf, asOf)
    } else if let known = notMentionedAsOf, notRevokedAsOf.map({ $0 <= known }) ?? true {
      notMentionedAsOf = max(known, asOf)
    } else {
      notRevokedAsOf = notRevokedAsOf.map { max($0, asOf) }
    }
  }
}

extension [StoreTransaction] {
  /// The revocation of the charge that these report: of any of them, for the silence of an alias
  /// says nothing.
  var revocation: Revocation? { compactMap(\.revocation.current).max(by: Revocation.isWeaker) }
}
