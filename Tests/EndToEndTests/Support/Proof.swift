import AppStoreSimulator
import Foundation
import LedgerStorage
import Postgres
import Subscriptions
import Testing

/// Invariants of the database, whatever happened to the programs.
struct Proof: Sendable {
  let database: ConnectionPool
  let simulation: AppStoreSimulation

  /// Every answered submission is stored for its account, to the last character.
  func everyAnsweredReceiptIsStored(_ answers: [Shop.Answered]) async throws {
    let rows = try await database.query(
      """
      WITH account AS MATERIALIZED (SELECT account_key, account_id FROM tenure.account_by_key)
      SELECT s.submission_id, k.account_id, s.signed_transactions IS NOT NULL
      FROM tenure.submission AS s JOIN account AS k ON k.account_key = s.account_key
      """
    ).decode(UUID.self, String.self, Bool.self)
    let ledger = Ledger(database: database)
    var stored: [UUID: (account: String, sent: String)] = [:]
    for (id, account, _) in rows {
      switch try await ledger.submissions.payload(of: id) {
      case .receipt(let data): stored[id] = (account, data)
      case .signedData(let transactions, _):
        stored[id] = (account, transactions.joined(separator: " "))
      case nil: Issue.record("submission \(id) has no payload")
      }
    }
    #expect(Set(rows.map(\.2)) == [false, true], "receipts and signed transactions")
    #expect(Set(answers.map(\.id)).count == answers.count, "one answer, one submission")
    for answer in answers {
      #expect(stored[answer.id]?.account == answer.account, "\(answer.id)")
      #expect(stored[answer.id]?.sent == answer.sent, "\(answer.id)")
    }
    print(
      "  \(answers.count) answers (\(answers.count { $0.httpStatus == 202 }) of them \"later\"),"
        + " \(stored.count) submissions stored")
  }

  /// Nothing that was stored, answered or not, is left undecided.
  func everyStoredReceiptIsDecided() async throws {
    let pending = try await database.query(
      "SELECT submission_id FROM tenure.submission WHERE status = 'pending'"
    ).decode(UUID.self)
    #expect(pending.isEmpty)
    let verified = try await database.query(
      "SELECT count(*) FROM tenure.submission WHERE status = 'verified'"
    ).decodeOnly(Int.self)
    #expect(verified > 0)
  }

  /// One payment belongs to at most one account, under all its transaction ids, and the holder is
  /// its owner.
  func noChargeHasTwoOwners() async throws {
    let rows = try await database.query(
      """
      WITH charge AS MATERIALIZED (SELECT * FROM tenure.store_transaction)
      SELECT t.environment, t.transaction_id, c.owner_account_key
      FROM tenure.store_transaction AS t
      JOIN charge AS c ON c.environment = t.environment
        AND c.original_transaction_id = t.charge_original_transaction_id
        AND c.transaction_id = t.charge_transaction_id AND c.product_id = t.charge_product_id
      """
    ).decode(Environment.self, TransactionID.self, AccountKey?.self)
    var owners: [String: Set<AccountKey>] = [:]
    for (environment, transaction, owner) in rows {
      if let owner { owners["\(environment) \(transaction)", default: []].insert(owner) }
    }
    #expect(!owners.isEmpty)
    for charge in simulation.truth() {
      let found = charge.transactionIDs.reduce(into: Set<AccountKey>()) {
        $0.formUnion(owners["\(charge.environment) \($1)"] ?? [])
      }
      #expect(found.count <= 1, "\(charge.transactionIDs)")
    }
    let strangers = try await database.query(
      """
      WITH h AS MATERIALIZED (SELECT * FROM tenure.holding WHERE moved_at IS NULL),
        a AS MATERIALIZED (SELECT * FROM tenure.account),
        t AS MATERIALIZED (SELECT * FROM tenure.store_transaction)
      SELECT h.transaction_id FROM h
      JOIN a ON a.account_id = h.account_id
      LEFT JOIN t ON t.environment = h.environment
        AND t.original_transaction_id = h.original_transaction_id
        AND t.transaction_id = h.transaction_id AND t.product_id = h.product_id
      WHERE t.owner_account_key IS DISTINCT FROM a.account_key
      """
    ).decode(TransactionID.self)
    #expect(strangers.isEmpty)
  }

  /// An order is fulfilled by one charge at the most, and a charge fulfils one order at the most.
  func noOrderIsFulfilledTwice() async throws {
    let twice = try await database.query(
      """
      SELECT order_id FROM tenure.store_transaction WHERE order_id IS NOT NULL
      GROUP BY order_id HAVING count(*) > 1
      """
    ).decode(UUID.self)
    #expect(twice.isEmpty)
    let shared = try await database.query(
      """
      SELECT transaction_id FROM tenure.purchase_order WHERE fulfilled_at IS NOT NULL
      GROUP BY environment, original_transaction_id, transaction_id, product_id
      HAVING count(*) > 1
      """
    ).decode(TransactionID.self)
    #expect(shared.isEmpty)
    let fulfilled = try await database.query(
      "SELECT count(*) FROM tenure.purchase_order WHERE fulfilled_at IS NOT NULL"
    ).decodeOnly(Int.self)
    #expect(fulfilled > 0)
  }
}
