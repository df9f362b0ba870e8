import Foundation
import Postgres
import Subscriptions

/// An original transaction as its tables have it.
struct OriginalTransactionRows: Sendable {
  /// The end of the hash chain.
  struct Head: Hashable, Sendable {
    var number: Int
    /// Nil before the first entry, like the date.
    var hash: [UInt8]?
    var recordedAt: Timestamp?
    var storedAt: Timestamp?
  }

  var id: OriginalTransactionKey
  var head: Head
  /// The database's time at which its transaction began.
  var readAt: Timestamp
  var repeated: RepeatedEvidence
  var transactions: [TransactionRow]
  var fulfilments: [TransactionKey: Fulfilment]
  var statuses: [StatusRow]
  var actions: [RecordedAction]
  var linked: [OriginalTransactionKey]
  /// Whether it stays locked until the transaction ends.
  var isLocked: Bool
  /// The moment since when the latest of the current movements are known; only read with a lock.
  var movementsKnownFrom: Timestamp?

  /// Locks a row, so that nothing else may record on it until the transaction ends.
  ///
  /// Inserts a missing one, because an absent row can't be locked. An existing one is locked and not
  /// written: the condition is false.
  static func lock(_ line: OriginalTransactionKey) -> SQL {
    """
    INSERT INTO tenure.original_transaction AS t (environment, original_transaction_id)
    VALUES (\(line.environment), \(line.originalTransactionID))
    ON CONFLICT (environment, original_transaction_id)
    DO UPDATE SET head_number = t.head_number WHERE false
    """
  }

  /// Reads original transactions; unknown ones are left out.
  static func query(_ lines: [OriginalTransactionKey], areLocked: Bool) -> Query<
    [OriginalTransactionRows]
  > {
    guard !lines.isEmpty else { return Query([]).map { [] } }
    // Each of one table: a Citus plans a join on a shard anew each time, which takes ten times as long.
    return Query(
      Query(
        """
        SELECT environment, original_transaction_id, head_number, head_hash, head_recorded_at,
          head_stored_at, date_trunc('milliseconds', now()), repeated, linked
        FROM tenure.original_transaction
        WHERE \(lines.condition)
        """
      ) {
        try $0.decode(
          OriginalTransactionKey.self, Int.self, [UInt8]?.self, Timestamp?.self, Timestamp?.self,
          Timestamp.self, String?.self, [OriginalTransactionID].self)
      },
      areLocked ? movementsKnownFrom(of: lines) : Query([]).map { [:] },
      TransactionRow.query(lines), StatusRow.query(lines), RecordedAction.query(lines)
    ).map { heads, movementsKnownFrom, rows, statuses, actions in
      let wanted = Set(lines)
      let rows = Dictionary(grouping: rows, by: \.row.transaction.key.line)
      let statuses = Dictionary(grouping: statuses, by: \.line)
      let actions = Dictionary(grouping: actions, by: \.action.line)
      return try heads.filter { wanted.contains($0.0) }.map {
        line, number, hash, recordedAt, storedAt, readAt, repeated, linked in
        OriginalTransactionRows(
          id: line,
          head: Head(number: number, hash: hash, recordedAt: recordedAt, storedAt: storedAt),
          readAt: readAt,
          repeated: try repeated.map {
            try JSONDecoder().decode(RepeatedEvidence.self, from: Data($0.utf8))
          } ?? RepeatedEvidence(),
          transactions: rows[line]?.map(\.row) ?? [],
          fulfilments: Dictionary(
            uniqueKeysWithValues: (rows[line] ?? []).map { ($0.row.transaction.key, $0.fulfilment) }
          ),
          statuses: statuses[line]?.map(\.row) ?? [], actions: actions[line] ?? [],
          linked: linked.map { OriginalTransactionKey(line.environment, $0) }, isLocked: areLocked,
          movementsKnownFrom: movementsKnownFrom[line])
      }
    }
  }

  private static func movementsKnownFrom(of lines: [OriginalTransactionKey])
    -> Query<[OriginalTransactionKey: Timestamp]>
  {
    Query(
      """
      SELECT environment, original_transaction_id, max(known_from)
      FROM tenure.movement
      WHERE \(lines.condition) AND known_until = 'infinity'
      GROUP BY environment, original_transaction_id
      """
    ) {
      Dictionary(
        uniqueKeysWithValues: try $0.decode(OriginalTransactionKey.self, Timestamp.self).map { $0 })
    }
  }

  static func setLinked(_ line: OriginalTransactionKey, to others: Set<OriginalTransactionKey>)
    -> SQL
  {
    """
    UPDATE tenure.original_transaction SET linked = \(others.map(\.originalTransactionID).sorted())
    WHERE \(line.condition)
    """
  }
}

/// A row of `renewal_status`.
struct StatusRow: Hashable, Sendable {
  var number: Int
  var recordedAt: Timestamp
  var status: RenewalStatus
  var tokenHolder: AccountKey?

  static func query(_ lines: [OriginalTransactionKey]) -> Query<
    [(line: OriginalTransactionKey, row: StatusRow)]
  > {
    Query(
      """
      SELECT environment, original_transaction_id, number, recorded_at, as_of, auto_renews, phase,
        grace_ends_at, auto_renew_product_id, expiration_intent, app_account_token, is_commitment,
        token_account_key
      FROM tenure.renewal_status
      WHERE \(lines.condition)
      ORDER BY number
      """
    ) {
      try $0.decode(
        OriginalTransactionKey.self, Int.self, Timestamp.self, Timestamp.self, Bool?.self,
        String?.self, Timestamp?.self, ProductID?.self, Int?.self, UUID?.self, Bool.self,
        AccountKey?.self
      ).map {
        line, number, recordedAt, asOf, autoRenews, phase, graceEnd, product, intent, token,
        isCommitment, holder in
        let status = RenewalStatus(
          asOf: asOf, autoRenews: autoRenews,
          phase: try phase.map { try RenewalStatus.Phase(name: $0, graceEndsAt: graceEnd) },
          autoRenewProductID: product, expirationIntent: intent, appAccountToken: token,
          isCommitment: isCommitment)
        return (
          line,
          StatusRow(number: number, recordedAt: recordedAt, status: status, tokenHolder: holder)
        )
      }
    }
  }

  static let insert = InsertStatement<(line: OriginalTransactionKey, row: StatusRow)>(
    into: "renewal_status",
    columns: [
      Column("environment", \.line.environment),
      Column("original_transaction_id", \.line.originalTransactionID),
      Column("number", \.row.number), Column("recorded_at", \.row.recordedAt),
      Column("as_of", \.row.status.asOf), Column("auto_renews", \.row.status.autoRenews),
      Column("phase", \.row.status.phase?.name),
      Column("grace_ends_at", \.row.status.phase?.graceEnd),
      Column("auto_renew_product_id", \.row.status.autoRenewProductID),
      Column("expiration_intent", \.row.status.expirationIntent),
      Column("app_account_token", \.row.status.appAccountToken),
      Column("token_account_key", \.row.tokenHolder),
      Column("is_commitment", \.row.status.isCommitment),
    ])
}

extension OwnershipAction {
  /// The claimant, or the owner by an override; nil: released.
  var account: AccountKey? {
    switch self {
    case .claim(let claim): claim.account
    case .ownerOverride(let ownerOverride): ownerOverride.account
    case .importedOverride(let ownerOverride): ownerOverride.account
    }
  }
}

extension RecordedAction {
  /// Reads the claims and overrides of original transactions and of their charges.
  static func query(_ lines: [OriginalTransactionKey]) -> Query<[RecordedAction]> {
    Query(
      """
      SELECT environment, original_transaction_id, recorded_at, number, is_claim, transaction_id,
        product_id, account_key, effective_from
      FROM tenure.ownership_action
      WHERE \(lines.condition)
      ORDER BY number
      """
    ) {
      try $0.decode(
        OriginalTransactionKey.self, Timestamp.self, Int.self, Bool.self, TransactionID?.self,
        ProductID?.self, AccountKey?.self, Timestamp.self
      ).map { line, recordedAt, number, isClaim, transactionID, productID, account, date in
        var key: TransactionKey?
        if let transactionID, let productID {
          key = TransactionKey(line: line, transactionID: transactionID, productID: productID)
        }
        let action: OwnershipAction =
          switch (isClaim, key, account) {
          case (true, let key?, let account?):
            .claim(Claim(account: account, transaction: key, receivedAt: date))
          case (false, let key?, _):
            .ownerOverride(OwnerOverride(account: account, transaction: key, effectiveFrom: date))
          case (false, nil, let account?):
            .importedOverride(
              OriginalTransactionOverride(account: account, line: line, boughtUntil: date))
          case (true, _, _), (false, nil, nil): throw DecodingFault.unknownValue
          }
        return RecordedAction(action, recorded: RecordingOrder(at: recordedAt, number: number))
      }
    }
  }

  static func insert(_ rows: [SQL]) -> [SQL] {
    rows.rowLists.map { rows in
      """
      INSERT INTO tenure.ownership_action (environment, original_transaction_id, number,
        recorded_at, is_claim, transaction_id, product_id, account_key, effective_from,
        submission_id)
      VALUES \(rows)
      """
    }
  }

  /// The row for ``insert(_:)``.
  ///
  /// - Parameter source: For a claim, the submission.
  func values(source: EntrySource) -> SQL {
    let (isClaim, date): (Bool, Timestamp) =
      switch action {
      case .claim(let claim): (true, claim.receivedAt)
      case .ownerOverride(let ownerOverride): (false, ownerOverride.effectiveFrom)
      case .importedOverride(let ownerOverride): (false, ownerOverride.boughtUntil)
      }
    return """
      (\(action.line.environment), \(action.line.originalTransactionID), \(recorded.number),
        \(recorded.at), \(isClaim), \(action.transaction?.transactionID),
        \(action.transaction?.productID), \(action.account), \(date),
        \(isClaim ? source.id : nil)::uuid)
      """
  }
}

/// The original transactions that Apple links, with their combined state.
struct StoredOriginalTransaction: Sendable {
  let members: [OriginalTransactionKey: OriginalTransactionRows]
  let line: OriginalTransaction
  /// The charges with the recorded decisions, which the tables were written from.
  let rule: OwnershipRule

  init(_ members: [OriginalTransactionRows]) {
    self.members = Dictionary(uniqueKeysWithValues: members.map { ($0.id, $0) })
    var history = EvidenceHistory()
    var decisions: [Charge.ID: OriginalTransaction.RecordedDecision] = [:]
    var holders: [UUID: AccountKey] = [:]
    for member in members {
      for row in member.transactions {
        let transaction = row.transaction
        history.insert(transaction)
        if let recorded = row.recorded { decisions[transaction.key] = recorded }
        if let token = transaction.appAccountToken?.value { holders[token] = row.tokenHolder }
      }
      for row in member.statuses {
        history.add(row.status)
        if let token = row.status.appAccountToken { holders[token] = row.tokenHolder }
      }
    }
    for action in members.flatMap(\.actions).sorted() {
      history.add(action.action, recorded: action.recorded)
    }
    history.tokenHolders = holders
    line = OriginalTransaction(
      history: history, repeated: self.members.mapValues(\.repeated).filter { !$0.value.isEmpty },
      decisions: decisions, heads: self.members.mapValues(\.head.number),
      links: self.members.mapValues { Set($0.linked) })
    rule = OwnershipRule(recordedOn: line)
  }

  /// The owners and claimants.
  var accounts: Set<AccountKey> {
    Set(line.decisions.values.flatMap { $0.losses.map(\.account) })
      .union(line.decisions.values.compactMap(\.decision.owner))
      .union(line.history.actions.compactMap(\.action.account))
  }

  var lastRecordedAt: Timestamp? { members.values.compactMap(\.head.recordedAt).max() }

  private var movementsKnownFrom: Timestamp? {
    precondition(members.values.allSatisfy(\.isLocked), "Movements are only changed under a lock.")
    return members.values.compactMap(\.movementsKnownFrom).max()
  }

  var hasMovements: Bool { movementsKnownFrom != nil }

  /// The moment of a change of movements.
  ///
  /// If a clock was ahead at an earlier change, a millisecond later than that: no row ends before it
  /// begins, and no two of one key are known at once.
  func movementChange(at moment: Timestamp) -> Timestamp {
    max(moment, movementsKnownFrom.map { $0 + .milliseconds(1) } ?? moment)
  }

  var rows: [TransactionKey: TransactionRow] {
    Dictionary(
      uniqueKeysWithValues: members.values.flatMap(\.transactions).map { ($0.transaction.key, $0) })
  }

  func fulfilment(of charge: Charge) -> Fulfilment {
    // An alias may have been fulfilled or delivered as a separate charge.
    let fulfilments = charge.transactions.compactMap { members[$0.line]?.fulfilments[$0] }
    return Fulfilment(
      orderID: fulfilments.compactMap(\.orderID).first,
      deliveredAt: fulfilments.compactMap(\.deliveredAt).min())
  }
}
