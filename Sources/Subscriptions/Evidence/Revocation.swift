/// The early end of a charge, as Apple reports it.
package struct Revocation: Hashable, Codable, Sendable {
  package var at: Timestamp
  package var reason: String?
  /// Apple's `revocationType`, if signed: REFUND_FULL, REFUND_PRORATED, FAMILY_REVOKE.
  package var type: String?
  /// The refunded share in thousandths of a percent; nil: not reported.
  package var percentage: Int64?

  package init(at: Timestamp, reason: String?, type: String? = nil, percentage: Int64? = nil) {
    (self.at, self.reason, self.type, self.percentage) = (at, reason, type, percentage)
  }

  /// Whether money was refunded, unlike to a member who leaves a family.
  package var isRefund: Bool { type != "FAMILY_REVOKE" }

  package func refunded(of milliunits: Int64) -> Int64 {
    let whole: Int64 = 100_000
    guard isRefund, let percentage, 0..<whole ~= percentage else {
      return isRefund ? milliunits : 0
    }
    let (units, rest) = milliunits.quotientAndRemainder(dividingBy: whole)
    return units * percentage + (rest * percentage + rest.signum() * whole / 2) / whole
  }

  /// The order of precedence: an earlier date, a reason, then more information wins.
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

/// Apple's answers about the revocation of one transaction: extremes of all answers, so that
/// merging is commutative, associative and idempotent.
///
/// Unsigned answers can omit a new revocation, and repeat one that a signed answer has lifted.
package struct RevocationHistory: Hashable, Sendable {
  /// How far Apple's unsigned answers about receipts can lag.
  package static let lag: Duration = .hours(24)

  /// The revocation in the latest signed answer that contains one.
  package var signed: Dated<Revocation>?
  /// The revocation in the latest unsigned answer that contains one.
  package var unsigned: Dated<Revocation>?
  /// The latest revocation date in any answer, with the date of the first answer that contains it.
  package var known: Dated<Timestamp>?
  /// The latest signed answer without a revocation.
  package var notRevokedAsOf: Timestamp?
  /// The latest unsigned answer without a revocation, if later than the signed one.
  package var notMentionedAsOf: Timestamp?

  init(_ record: TransactionRecord) {
    known = record.revocation.revocation.map { Dated($0.at, asOf: record.asOf) }
    switch record.revocation {
    case .notSaid: break
    case .notMentioned: notMentionedAsOf = record.asOf
    case .notRevoked: notRevokedAsOf = record.asOf
    case .mentioned: unsigned = record.revocation.revocation.map { Dated($0, asOf: record.asOf) }
    case .revoked(let revocation): signed = Dated(revocation, asOf: record.asOf)
    }
  }

  /// The revocation date that a signed answer lifted, with the date of that answer.
  fileprivate var lifted: Dated<Timestamp>? {
    guard let known, let notRevokedAsOf, known.asOf < notRevokedAsOf else { return nil }
    return Dated(known.value, asOf: notRevokedAsOf)
  }

  /// The revocation in effect: a later signed answer without it lifts it at once, an unsigned one
  /// only if dated at least 24 hours after it became known.
  ///
  /// - Parameter lifted: What signed answers lifted on transactions of the charge, and unsigned
  ///   ones repeat for 24 hours.
  fileprivate func current(lifted: [Dated<Timestamp>]) -> Revocation? {
    if let signed, isInEffect(signed) { return signed.value }
    guard let unsigned, isInEffect(unsigned) else { return nil }
    let repeatsLifted = lifted.contains {
      unsigned.value.at <= $0.value && unsigned.asOf < $0.asOf + Self.lag
    }
    return repeatsLifted ? nil : unsigned.value
  }

  /// The revocation in effect, by the answers about this transaction alone.
  package var current: Revocation? { current(lifted: [lifted].compactMap(\.self)) }

  /// Whether both hold the same facts, whatever the dates of the answers.
  func statesTheSame(as other: RevocationHistory) -> Bool {
    signed?.value == other.signed?.value && unsigned?.value == other.unsigned?.value
      && current == other.current
  }

  private func isInEffect(_ revocation: Dated<Revocation>) -> Bool {
    if let notRevokedAsOf, revocation.asOf < notRevokedAsOf { return false }
    guard let notMentionedAsOf, revocation.asOf < notMentionedAsOf, let known else { return true }
    return notMentionedAsOf < known.asOf + Self.lag
  }

  mutating func merge(_ other: RevocationHistory) {
    signed = latest(signed, other.signed, Revocation.isWeaker)
    unsigned = latest(unsigned, other.unsigned, Revocation.isWeaker)
    known = [known, other.known].compactMap(\.self).max {
      ($0.value, $1.asOf) < ($1.value, $0.asOf)
    }
    notRevokedAsOf = [notRevokedAsOf, other.notRevokedAsOf].compactMap(\.self).max()
    notMentionedAsOf = [notMentionedAsOf, other.notMentionedAsOf].compactMap(\.self).max()
    if let notRevokedAsOf, let unsigned = notMentionedAsOf, unsigned <= notRevokedAsOf {
      notMentionedAsOf = nil
    }
  }
}

extension Collection<StoreTransaction> {
  /// The revocation of the charge that these transactions report: of any of them, because an answer
  /// without a revocation is only about its own transaction.
  var revocation: Revocation? {
    let lifted = compactMap(\.revocation.lifted)
    return compactMap { $0.revocation.current(lifted: lifted) }.max(by: Revocation.isWeaker)
  }
}

extension EvidenceHistory {
  /// The revocation of a transaction, given everything known of its charge.
  package func revocation(of transaction: StoreTransaction, in charge: Charge) -> Revocation? {
    transaction.revocation.current(
      lifted: charge.transactions.compactMap { self[$0]?.revocation.lifted })
  }
}
