package import struct Foundation.UUID

/// Everything that the ownership rule reads: Apple's evidence as a set, people's actions in order.
package struct EvidenceHistory: Sendable {
  /// In the order of recording.
  package private(set) var transactions: [StoreTransaction] = []
  /// By date; at equal dates off after on.
  package private(set) var statuses: [RenewalStatus] = []
  package private(set) var actions: [RecordedAction] = []

  /// The accounts to which this ledger issued the tokens that occur.
  package var tokenHolders: [UUID: AccountKey] = [:]
  /// The orders of the claiming accounts, for the products that occur.
  package var orders: Set<OpenedOrder> = []
  package var erasures: [AccountKey: Timestamp] = [:]
  package var merges: [AccountKey: AccountMerge] = [:]

  private var positions: [TransactionKey: Int] = [:]
  /// The accounts that claimed each transaction since the last release.
  private var claimants: [TransactionKey: Set<AccountKey>] = [:]

  package init() {}

  package subscript(key: TransactionKey) -> StoreTransaction? {
    positions[key].map { transactions[$0] }
  }

  package mutating func add(_ record: TransactionRecord, recorded: RecordingOrder) {
    if let position = positions[record.key] {
      transactions[position].merge(record)
    } else {
      insert(StoreTransaction(record, recorded: recorded))
    }
  }

  package mutating func insert(_ transaction: StoreTransaction) {
    let end = transactions.endIndex
    let position =
      transactions.last.map { $0.wasRecorded(before: transaction) } ?? true
      ? end : transactions.firstIndex { transaction.wasRecorded(before: $0) } ?? end
    transactions.insert(transaction, at: position)
    for index in position..<transactions.endIndex { positions[transactions[index].key] = index }
  }

  /// Adds a status and returns true, unless Apple reported exactly this at this date before.
  @discardableResult
  package mutating func add(_ status: RenewalStatus) -> Bool {
    var position = statuses.endIndex
    while position > 0, status.precedes(statuses[position - 1]) { position -= 1 }
    if position > 0, statuses[position - 1] == status { return false }
    statuses.insert(status, at: position)
    return true
  }

  /// Adds an action and returns true, unless it is known; actions must be added in the order of
  /// recording, because a claim before a release does not count after it.
  @discardableResult
  package mutating func add(_ action: OwnershipAction, recorded: RecordingOrder) -> Bool {
    if says(action) { return false }
    let new = RecordedAction(action, recorded: recorded)
    let position = actions.lastIndex { $0 < new }.map { $0 + 1 } ?? actions.startIndex
    actions.insert(new, at: position)
    if position == actions.endIndex - 1 {
      note(new)
    } else {
      claimants = [:]
      for action in actions { note(action) }
    }
    return true
  }

  private mutating func note(_ action: RecordedAction) {
    if action.action.isRelease { claimants = [:] }
    guard case .claim(let claim) = action.action else { return }
    claimants[claim.transaction, default: []].insert(claim.account)
  }

  package var importedOverrides: [OriginalTransactionOverride] {
    actions.compactMap {
      if case .importedOverride(let ownerOverride) = $0.action { ownerOverride } else { nil }
    }
  }

  /// Whether an action adds nothing; administrators may repeat overrides.
  package func says(_ action: OwnershipAction) -> Bool {
    switch action {
    case .claim(let claim): hasClaim(by: claim.account, on: claim.transaction)
    case .ownerOverride: false
    case .importedOverride(let ownerOverride):
      importedOverrides.contains { $0.includes(ownerOverride) }
    }
  }

  /// Whether an account claimed a transaction before, and since the last release of any charge:
  /// which transactions report one charge may become known later.
  package func hasClaim(by account: AccountKey, on transaction: TransactionKey) -> Bool {
    claimants[transaction]?.contains(account) ?? false
  }

  package func holder(of token: UUID?) -> AccountKey? { token.flatMap { tokenHolders[$0] } }

  /// The account that had a token as of a moment, after merges until then.
  func holder(of token: UUID?, asOf moment: Timestamp) -> AccountKey? {
    holder(of: token).map { successor(of: $0, asOf: moment) }
  }

  /// The account for which a purchase was made with a token; nil if it was erased by then.
  func buyer(by token: UUID?, asOf moment: Timestamp) -> AccountKey? {
    holder(of: token, asOf: moment).flatMap { isErased($0, by: moment) ? nil : $0 }
  }

  func isErased(_ account: AccountKey, by moment: Timestamp) -> Bool {
    erasures[account].map { $0 <= moment } ?? false
  }

  /// The account that an account was merged into, transitively; itself if it never was.
  ///
  /// - Parameter moment: Only merges until then count; nil: all.
  func successor(of account: AccountKey, asOf moment: Timestamp? = nil) -> AccountKey {
    var account = account
    // Merges never form a circle; the bound protects against one all the same.
    for _ in 0..<merges.count {
      guard let merge = merges[account], moment.map({ merge.at <= $0 }) ?? true else { break }
      account = merge.into
    }
    return account
  }
}

extension RenewalStatus {
  /// A total order: by date, then on before off, then by severity, then by the rest.
  func precedes(_ other: RenewalStatus) -> Bool {
    asOf == other.asOf ? tieBreaker.lexicographicallyPrecedes(other.tieBreaker) : asOf < other.asOf
  }

  private var tieBreaker: [String] {
    // A missing value differs from every value, the empty text included.
    func said(_ value: (some CustomStringConvertible)?) -> String { value.map { "=\($0)" } ?? "" }
    return [
      autoRenews.map { $0 ? "1" : "2" } ?? "0", String(phase?.gravity ?? 0), said(phase?.graceEnd),
      said(autoRenewProductID), said(expirationIntent), said(appAccountToken),
      isCommitment ? "1" : "0",
    ]
  }
}
