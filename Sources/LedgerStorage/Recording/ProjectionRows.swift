import Postgres
package import Subscriptions

// The rows of the projections: how each is derived and written.

extension TransactionRow {
  static func rows(of line: OriginalTransaction, rule: OwnershipRule) -> [TransactionRow] {
    line.history.transactions.map { row(of: $0, in: line, rule: rule) }
  }

  static func row(
    of key: TransactionKey, in line: OriginalTransaction, rule: OwnershipRule
  ) -> TransactionRow? {
    line.history[key].map { row(of: $0, in: line, rule: rule) }
  }

  private static func row(
    of transaction: StoreTransaction, in line: OriginalTransaction, rule: OwnershipRule
  ) -> TransactionRow {
    guard let position = rule.position(of: transaction.key) else {
      preconditionFailure("Every transaction reports a charge.")
    }
    let charge = rule.charges[position]
    return TransactionRow(
      transaction: transaction,
      tokenHolder: line.history.holder(of: transaction.appAccountToken?.value), charge: charge.id,
      revokedAt: line.history.revocation(of: transaction, in: charge)?.at,
      recorded: charge.id == transaction.key ? line.decisions[charge.id] : nil)
  }
}

/// A row of `holding`, under the account's key.
struct HoldingRow: Hashable, Comparable, Sendable {
  var account: AccountKey
  var holding: Holding

  /// The holdings as of the recording date of the last item, and those that accounts have lost.
  static func rows(of line: OriginalTransaction, rule: OwnershipRule, asOf moment: Timestamp)
    -> Set<HoldingRow>
  {
    Set(
      (line.holdings(rule, asOf: moment) + line.lastLostHoldings(rule)).map {
        HoldingRow(account: $0.account, holding: $0.holding)
      })
  }

  /// Whether only the catalogue has the product's type, as for a purchase without a period in a
  /// receipt.
  var dependsOnCatalogue: Bool { holding.productType == nil && holding.endsAt == nil }

  /// Whether the row is not stored, because the catalogue has the product as a consumable.
  func isLeftOut(by catalogue: Catalogue) -> Bool {
    dependsOnCatalogue && holding.type(in: catalogue) == .consumable
  }

  var description: String { "a holding of transaction \(holding.charge.transactionID)" }

  func hasSameKey(as other: HoldingRow) -> Bool {
    account == other.account && holding.charge == other.holding.charge
  }

  static func < (lhs: HoldingRow, rhs: HoldingRow) -> Bool {
    (lhs.account, lhs.holding.charge) < (rhs.account, rhs.holding.charge)
  }

  /// A row with the account id of its owner.
  typealias Named = (row: HoldingRow, name: String)

  static let upsert = InsertStatement<Named>(
    into: "holding",
    key: [
      Column("account_id", \.name), Column("environment", \.row.holding.charge.line.environment),
      Column("original_transaction_id", \.row.holding.charge.line.originalTransactionID),
      Column("transaction_id", \.row.holding.charge.transactionID),
      Column("product_id", \.row.holding.productID),
    ],
    columns: [
      Column("linked_to", \.row.holding.linkedTo),
      Column("product_type", \.row.holding.productType),
      Column("period_type", \.row.holding.periodType),
      Column("starts_at", \.row.holding.startsAt), Column("ends_at", \.row.holding.endsAt),
      Column("revoked_at", \.row.holding.revokedAt),
      Column("superseded_at", \.row.holding.supersededAt),
      Column("moved_at", \.row.holding.movedAt),
      Column("auto_renews", \.row.holding.renewal?.autoRenews),
      Column("phase", \.row.holding.renewal?.phase.name),
      Column("grace_ends_at", \.row.holding.graceEndsAt),
      Column("is_sharing_ended", \.row.holding.isSharingEnded),
    ])

  static func deleteAll(name: String, line: OriginalTransactionKey) -> SQL {
    """
    DELETE FROM tenure.holding
    WHERE account_id = \(name) AND \(line.condition)
    """
  }

  func delete(name: String) -> SQL {
    let line = holding.charge.line
    return """
      DELETE FROM tenure.holding
      WHERE account_id = \(name) AND \(line.condition)
        AND transaction_id = \(holding.charge.transactionID) AND product_id = \(holding.productID)
      """
  }
}

/// The change of the rows of `holding` by a recording.
struct HoldingChange: Sendable {
  private(set) var before: Set<HoldingRow> = []
  /// Empty where nothing is recorded.
  private(set) var after: Set<HoldingRow> = []
  /// Whether original transactions are linked by it.
  private(set) var isOfNewlyLinked = false

  init(
    from stored: StoredOriginalTransaction, to line: OriginalTransaction, _ rule: OwnershipRule,
    by items: [LedgerItem]
  ) {
    guard let recordedAt = items.map(\.recordedAt).max() else { return }
    before =
      stored.lastRecordedAt.map { HoldingRow.rows(of: stored.line, rule: stored.rule, asOf: $0) }
      ?? []
    after = HoldingRow.rows(of: line, rule: rule, asOf: recordedAt)
    isOfNewlyLinked = items.contains {
      if case .evidence(.link) = $0.content { true } else { false }
    }
  }

  /// Leaves out the rows that the catalogue makes unnecessary.
  func leavingOut(by catalogue: Catalogue) -> HoldingChange {
    var change = self
    change.after = after.filter { !$0.isLeftOut(by: catalogue) }
    return change
  }

  var changedAccounts: Set<AccountKey> {
    Set(before.symmetricDifference(after).map(\.account))
  }
}

/// The current state of an original transaction, with those that Apple links.
package struct OriginalTransactionState: Hashable, Sendable {
  package var latest: Charge?
  package var latestOwner: AccountKey?
  /// The latest end of a paid period.
  package var paidThrough: Timestamp?
  /// Nil without a subscription.
  package var autoRenews: Bool?
  /// The product of the next renewal, by Apple's latest statement since the latest charge.
  package var autoRenewProductID: ProductID?
  package var phase: RenewalStatus.Phase?
  /// The date of Apple's latest renewal status.
  package var statusAsOf: Timestamp?

  package init(line: OriginalTransaction, rule: OwnershipRule) {
    paidThrough = rule.charges.compactMap(\.end).max()
    statusAsOf = line.statusAsOf
    guard let position = rule.charges.latestPosition else { return }
    latest = rule.charges[position]
    latestOwner = rule.decisions[position].owner
    autoRenewProductID = rule.course.announcedProduct(after: position)
    guard rule.charges[position].isSubscription else { return }
    let renewal = rule.renewal(ofChargeAt: position)
    autoRenews = renewal.autoRenews
    phase = renewal.phase
  }

  /// Reads the names of the columns of original transactions that do not show a state.
  static func differing(_ states: [(line: OriginalTransactionKey, state: Self)])
    -> Query<[OriginalTransactionKey: [String]]>
  {
    let (lines, states) = (states.map(\.line), states.map(\.state))
    return Query(
      """
      SELECT environment, original_transaction_id, array_remove(ARRAY[
        CASE WHEN latest_charged_at IS DISTINCT FROM charged THEN 'latest_charged_at' END,
        CASE WHEN latest_owner_key IS DISTINCT FROM owner THEN 'latest_owner_key' END,
        CASE WHEN paid_through IS DISTINCT FROM paid THEN 'paid_through' END,
        CASE WHEN auto_renew_product_id IS DISTINCT FROM product
          THEN 'auto_renew_product_id' END], NULL)
      FROM tenure.original_transaction
      JOIN unnest(\(lines.map(\.environment)), \(lines.map(\.originalTransactionID)),
          \(states.map(\.latest?.date)), \(states.map(\.latestOwner)),
          \(states.map(\.paidThrough)), \(states.map(\.autoRenewProductID)))
        AS expected (line_environment, line_id, charged, owner, paid, product)
        ON environment = line_environment AND original_transaction_id = line_id
      WHERE \(lines.condition)
        AND (latest_charged_at, latest_owner_key, paid_through, auto_renew_product_id)
          IS DISTINCT FROM (charged, owner, paid, product)
      """
    ) {
      Dictionary(
        uniqueKeysWithValues: try $0.decode(OriginalTransactionKey.self, [String].self).map { $0 })
    }
  }
}
