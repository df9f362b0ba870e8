package import Subscriptions

/// A receipt that Apple vouches for, in the vocabulary of the rules.
package struct VerifiedReceipt: Hashable, Sendable {
  /// The environment whose endpoint vouched for it.
  package var environment: Environment
  /// The configured app that it belongs to.
  package var bundleID: String
  /// Apple's `status`: 0, or 21006 for an old receipt of an expired subscription.
  package var status: Int
  /// When Apple said so: `request_date_ms`, or the moment of the answer where that is missing.
  package var requestDate: Timestamp
  /// How far Apple's clock was ahead of ours when the answer came, at least.
  package var clockSkew: Duration
  /// Every transaction once, by purchase date.
  package var records: [TransactionRecord]
  /// At most one status per line.
  package var statuses: [LineID: RenewalStatus]
  /// What Apple listed and nobody could read; it stands in the exchange.
  package var unreadable: [UnreadableRecord]
  /// How many transactions carry an `app_account_token` that is no UUID, and so count as without.
  package var unusableAppAccountTokens: Int

  package init(
    environment: Environment, bundleID: String, status: Int = 0, requestDate: Timestamp,
    clockSkew: Duration = .zero, records: [TransactionRecord],
    statuses: [LineID: RenewalStatus] = [:],
    unreadable: [UnreadableRecord] = [],
    unusableAppAccountTokens: Int = 0
  ) {
    self.environment = environment
    self.bundleID = bundleID
    self.status = status
    self.requestDate = requestDate
    self.clockSkew = clockSkew
    self.records = records
    self.statuses = statuses
    self.unreadable = unreadable
    self.unusableAppAccountTokens = unusableAppAccountTokens
  }

  /// All of it, transactions first: the same for the same facts, however Apple orders them.
  package var evidence: [Evidence] {
    records.map { .transaction($0) }
      + statuses.sorted { $0.key < $1.key }.map { .renewalStatus($0.value, line: $0.key) }
  }
}

/// One entry of one of Apple's lists that could not be read.
package struct UnreadableRecord: Hashable, Comparable, Sendable, CustomStringConvertible {
  /// The list's name, as Apple writes it.
  package var list: String
  /// What is wrong with it, without its values.
  package var reason: String
  /// Nil if that can't be read either.
  package var purchaseDate: Timestamp?

  package init(list: String, reason: String, purchaseDate: Timestamp? = nil) {
    self.list = list
    self.reason = reason
    self.purchaseDate = purchaseDate
  }

  package var description: String { "\(list): \(reason)" }

  package static func < (lhs: UnreadableRecord, rhs: UnreadableRecord) -> Bool {
    (lhs.list, lhs.reason, lhs.purchaseDate?.milliseconds ?? .max)
      < (rhs.list, rhs.reason, rhs.purchaseDate?.milliseconds ?? .max)
  }

  /// Whether the entry is a purchase that is newer than all that could be read.
  ///
  /// Without a date it counts only where nothing could be read: old entries without one stay in a
  /// receipt forever, and every submission of it would be verified again and again.
  package func hidesPurchase(after newest: Timestamp?) -> Bool {
    guard !["pending_renewal_info", "top level"].contains(list) else { return false }
    guard let newest else { return true }
    return purchaseDate.map { newest < $0 } ?? false
  }
}
