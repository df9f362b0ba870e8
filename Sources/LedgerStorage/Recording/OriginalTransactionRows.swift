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
  }

  /// Apple's answer of the date listed every transaction up to an entry, and nothing of an earlier
  /// date was learned of them since.
  struct Confirmation: Hashable, Sendable {
    var asOf: Timestamp
    var number: Int
  }

  var id: OriginalTransactionKey
  var head: Head
  var confirmation: Confirmation?
  var transactions: [TransactionRow]
  var fulfilments: [TransactionKey: Fulfilment]
  var statuses: [StatusRow]
  var acts: [AdministratorActionRow]
  var linked: [OriginalTransactionKey]

  struct StatusRow: Hashable, Sendable {
    var number: Int
    var status: RenewalStatus
    var tokenHolder: AccountKey?
  }

  struct AdministratorActionRow: Hashable, Sendable {
    var recorded: RecordingOrder
    var act: OwnershipAction
  }
}

extension OriginalTransactionRows {
  /// Inserts a missing row, because an absent row can't be locked.
  static func create(_ line: OriginalTransactionKey) -> SQL {
    """
    INSERT INTO tenure.original_transaction (environment, original_transaction_id)
    VALUES (\(line.environment), \(line.originalTransactionID))
    ON CONFLICT (environment, original_transaction_id) DO NOTHING
    """
  }

  /// Reads an original transaction; nil if there is none of this id.
  ///
  /// - Parameter locking: Whether nothing else may record on it until the transaction ends.
  static func query(_ line: OriginalTransactionKey, locking: Bool) -> Query<
    OriginalTransactionRows?
  > {
    let (environment, id) = (line.environment, line.originalTransactionID)
    let head: SQL = """
      SELECT head_number, head_hash, head_recorded_at, confirmed_as_of, confirmed_number
      FROM tenure.original_transaction
      WHERE environment = \(environment) AND original_transaction_id = \(id)
      \(unescaped: locking ? "FOR UPDATE" : "")
      """
    let statuses: SQL = """
      SELECT number, as_of, auto_renews, phase, grace_ends_at, auto_renew_product_id,
        expiration_intent, app_account_token, token_account_key, is_commitment
      FROM tenure.renewal_status
      WHERE environment = \(environment) AND original_transaction_id = \(id)
      ORDER BY number
      """
    let claims: SQL = """
      SELECT number, recorded_at, transaction_id, product_id, account_key, received_at
      FROM tenure.claim
      WHERE environment = \(environment) AND original_transaction_id = \(id)
      ORDER BY number
      """
    let placements: SQL = """
      SELECT number, recorded_at, transaction_id, product_id, account_key, effective_from
      FROM tenure.placement
      WHERE environment = \(environment) AND original_transaction_id = \(id)
      ORDER BY number
      """
    let links: SQL = """
      SELECT linked_original_transaction_id FROM tenure.original_transaction_link
      WHERE environment = \(environment) AND original_transaction_id = \(id)
      """
    return Query(
      Query(head) {
        try $0.decodeFirst(
          Int.self, [UInt8]?.self, Timestamp?.self, Timestamp?.self, Int.self)
      },
      TransactionRow.query(line), Query(statuses, decode: Self.statuses),
      Query(claims) { try Self.claims($0, line: line) },
      Query(placements) { try Self.placements($0, line: line) },
      Query(links) {
        try $0.decode(OriginalTransactionID.self).map { OriginalTransactionKey(environment, $0) }
      }
    ).map { head, rows, statuses, claims, placements, linked in
      guard let (number, hash, recordedAt, confirmedAsOf, confirmedNumber) = head else {
        return nil
      }
      return OriginalTransactionRows(
        id: line, head: Head(number: number, hash: hash, recordedAt: recordedAt),
        confirmation: confirmedAsOf.map { Confirmation(asOf: $0, number: confirmedNumber) },
        transactions: rows.map(\.row),
        fulfilments: Dictionary(
          uniqueKeysWithValues: rows.map { ($0.row.transaction.key, $0.fulfilment) }),
        statuses: statuses, acts: claims + placements, linked: linked)
    }
  }

  private static func statuses(_ rows: Rows) throws -> [StatusRow] {
    try rows.decode(
      Int.self, Timestamp.self, Bool?.self, String?.self, Timestamp?.self, ProductID?.self,
      Int?.self, UUID?.self, AccountKey?.self, Bool.self
    ).map { row in
      let (
        number, asOf, autoRenews, phase, graceEndsAt, product, intent, token, holder, commitment
      ) =
        row
      return StatusRow(
        number: number,
        status: RenewalStatus(
          asOf: asOf, autoRenews: autoRenews,
          phase: try phase.map {
            try RenewalStatus.Phase(name: $0, graceEndsAt: graceEndsAt)
          },
          autoRenewProductID: product, expirationIntent: intent, appAccountToken: token,
          isCommitment: commitment),
        tokenHolder: holder)
    }
  }

  private static func claims(_ rows: Rows, line: OriginalTransactionKey) throws
    -> [AdministratorActionRow]
  {
    try rows.decode(
      Int.self, Timestamp.self, TransactionID.self, ProductID.self, AccountKey.self,
      Timestamp.self
    ).map { number, recordedAt, transactionID, productID, account, receivedAt in
      let key = TransactionKey(line: line, transactionID: transactionID, productID: productID)
      return AdministratorActionRow(
        recorded: RecordingOrder(at: recordedAt, number: number),
        act: .claim(Claim(account: account, transaction: key, receivedAt: receivedAt)))
    }
  }

  private static func placements(_ rows: Rows, line: OriginalTransactionKey) throws
    -> [AdministratorActionRow]
  {
    try rows.decode(
      Int.self, Timestamp.self, TransactionID?.self, ProductID?.self, AccountKey?.self,
      Timestamp.self
    ).map { number, recordedAt, transactionID, productID, account, effectiveFrom in
      let act: OwnershipAction
      if let transactionID, let productID {
        let key = TransactionKey(line: line, transactionID: transactionID, productID: productID)
        act = .placement(
          OwnerOverride(account: account, transaction: key, effectiveFrom: effectiveFrom))
      } else {
        // An import's override of the whole original transaction.
        guard let account else { throw DecodingFault.unknownValue }
        act = .linePlacement(
          OriginalTransactionOverride(account: account, line: line, boughtUntil: effectiveFrom))
      }
      return AdministratorActionRow(
        recorded: RecordingOrder(at: recordedAt, number: number), act: act)
    }
  }
}

extension StoreTransaction {
  /// With the date of the confirmation, if covered by it.
  func confirmed(by confirmation: OriginalTransactionRows.Confirmation?) -> StoreTransaction {
    guard let confirmation, recorded.number <= confirmation.number else { return self }
    var copy = self
    copy.confirm(asOf: confirmation.asOf)
    return copy
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
        let transaction = row.transaction.confirmed(by: member.confirmation)
        history.insert(transaction)
        if let recorded = row.recorded { decisions[transaction.key] = recorded }
        if let token = transaction.appAccountToken?.value { holders[token] = row.tokenHolder }
      }
      for row in member.statuses {
        history.add(row.status)
        if let token = row.status.appAccountToken { holders[token] = row.tokenHolder }
      }
    }
    let acts = members.flatMap(\.acts).map { RecordedAction($0.act, recorded: $0.recorded) }
    for act in acts.sorted() { history.add(act.act, recorded: act.recorded) }
    history.tokenHolders = holders
    line = OriginalTransaction(
      history: history, decisions: decisions,
      heads: self.members.mapValues(\.head.number),
      links: self.members.mapValues { Set($0.linked) })
    rule = OwnershipRule(recordedOn: line)
  }

  /// The owners and claimants.
  var accounts: Set<AccountKey> {
    var accounts = Set(line.decisions.values.compactMap(\.decision.owner))
    for act in line.history.acts {
      switch act.act {
      case .claim(let claim): accounts.insert(claim.account)
      case .placement(let placement):
        if let account = placement.account { accounts.insert(account) }
      case .linePlacement(let placement): accounts.insert(placement.account)
      }
    }
    return accounts
  }

  var lastRecordedAt: Timestamp? { members.values.compactMap(\.head.recordedAt).max() }

  var countedCharges: [TransactionKey: CountedCharge] {
    rows.reduce(into: [:]) { counted, row in
      counted[row.key] = CountedCharge(row.value, members[row.key.line]?.fulfilments[row.key])
    }
  }

  func fulfilment(of charge: Charge) -> Fulfilment {
    // An alias may have been fulfilled or delivered as a charge of its own.
    let fulfilments = charge.transactions.compactMap { members[$0.line]?.fulfilments[$0] }
    return Fulfilment(
      orderID: fulfilments.compactMap(\.orderID).first,
      deliveredAt: fulfilments.compactMap(\.deliveredAt).min())
  }
}
