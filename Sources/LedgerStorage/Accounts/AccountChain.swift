import Foundation
import JSONText
import Postgres
import Subscriptions

/// The chain of an account, whose entries vouch for rows that no entry of the ledger contains.
///
/// A seal follows the statement that writes the row, in its transaction, and locks the chain:
/// several are in the order of ``statements(_:)``.
enum AccountChain {
  enum Kind: String, Sendable, PostgresEncodable {
    case account
    case order = "purchase_order"
    case grant = "account_grant"
    case submission
    case delivery
    case product
    /// Entries that were appended to original transactions of which the account is the owner.
    case recording
  }

  /// The chain of what concerns no account.
  static let common = AccountKey(
    rawValue: UUID(uuid: (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)))

  struct Seal: Sendable {
    let account: AccountKey
    let statement: SQL
  }

  /// The statements by account, so that transactions never wait for each other's chains.
  static func statements(_ seals: [Seal]) -> [SQL] {
    seals.sorted { $0.account < $1.account }.map(\.statement)
  }

  /// Appends an entry with the present values of a row.
  static func seal(_ account: AccountKey, _ kind: Kind, _ row: UUID) -> Seal {
    Seal(account: account, statement: "SELECT tenure.seal(\(account), \(kind), \(row)::text)")
  }

  /// Appends entries about rows that the account has or had.
  static func seal(_ account: AccountKey, _ kind: Kind, _ rows: [UUID]) -> Seal {
    Seal(
      account: account,
      statement: """
        SELECT count(tenure.seal(\(account), \(kind), row::text)) FROM unnest(\(rows)) AS row
        """)
  }

  static func seal(_ account: AccountKey) -> Seal {
    Seal(account: account, statement: "SELECT tenure.seal(\(account), \(Kind.account))")
  }

  static func seal(_ product: ProductID, validFrom: Timestamp) -> Seal {
    Seal(
      account: common,
      statement: """
        SELECT tenure.seal(\(common), \(Kind.product),
          concat(\(product), ' ', extract(epoch FROM \(validFrom)::timestamptz)))
        """)
  }

  static func seal(
    deliveryOf charge: TransactionKey, by account: AccountKey, at moment: Timestamp
  ) -> Seal {
    Seal(
      account: account,
      statement: """
        SELECT tenure.seal(\(account), \(Kind.delivery), concat_ws('/', \(charge.line.environment),
          \(charge.line.originalTransactionID), \(charge.transactionID), \(charge.productID)),
          jsonb_build_object('delivered_at', extract(epoch FROM \(moment)::timestamptz)))
        """)
  }

  /// The new ends of original transactions' chains, as an entry has them.
  static func details(_ heads: [OriginalTransactionKey: OriginalTransactionRows.Head]) -> String {
    guard !heads.isEmpty else { return "{}" }
    var json = JSONWriter(capacity: 128)
    json.object { json in
      json.key("heads")
      json.object { json in
        for (line, head) in heads.sorted(by: { $0.key < $1.key }) {
          json.member(line.subject, "\(head.number):\(head.hash?.hexadecimal ?? "")")
        }
      }
    }
    return json.text
  }

  /// - Parameter account: The account that sent it, which keeps it when merged.
  static func seal(
    submission: UUID, of account: AccountKey,
    recording heads: [OriginalTransactionKey: OriginalTransactionRows.Head] = [:]
  ) -> Seal {
    Seal(
      account: account,
      statement: """
        SELECT tenure.seal(\(account), \(Kind.submission), \(submission)::text,
          \(details(heads))::jsonb)
        """)
  }

  /// Leaves the new ends of original transactions' chains with the owners of their latest charges.
  ///
  /// A chain that is cut or written anew no longer fits them.
  static func seal(
    _ recorded: [(
      owner: AccountKey?, heads: [OriginalTransactionKey: OriginalTransactionRows.Head]
    )]
  ) -> [Seal] {
    var byOwner: [AccountKey: [OriginalTransactionKey: OriginalTransactionRows.Head]] = [:]
    for (owner, heads) in recorded {
      if let owner, !heads.isEmpty { byOwner[owner, default: [:]].merge(heads) { $1 } }
    }
    return byOwner.map { owner, heads in
      Seal(
        account: owner,
        statement: "SELECT tenure.seal(\(owner), \(Kind.recording), '', \(details(heads))::jsonb)")
    }
  }
}
