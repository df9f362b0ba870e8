import Postgres

/// Where an entry comes from, and which one.
package struct EntrySource: Hashable, Sendable {
  /// The ways in which anything gets into the ledger.
  package enum Kind: String, CaseIterable, Sendable, PostgresEncodable, PostgresDecodable {
    case receipt
    case signedTransaction = "signed_transaction"
    case notification
    case poll
    case administrator
    case `import`
  }

  package var kind: Kind
  /// The submission's, notification's or administrator's identifier.
  package var id: String?

  package init(_ kind: Kind, id: String?) {
    self.kind = kind
    self.id = id
  }
}
