/// The selection of a transaction in a submission by an account's app server.
package struct Claim: Hashable, Codable, Sendable {
  package var account: AccountKey
  package var transaction: TransactionKey
  /// The arrival of the submission, however late Apple verified it.
  package var receivedAt: Timestamp

  package init(account: AccountKey, transaction: TransactionKey, receivedAt: Timestamp) {
    (self.account, self.transaction, self.receivedAt) = (account, transaction, receivedAt)
  }
}

package struct OwnerOverride: Hashable, Codable, Sendable {
  /// Nil releases the charge: the first claim after this one gets it.
  package var account: AccountKey?
  package var transaction: TransactionKey
  /// Later renewals count it from here on; those charged before keep their owner.
  package var effectiveFrom: Timestamp

  package init(account: AccountKey?, transaction: TransactionKey, effectiveFrom: Timestamp) {
    (self.account, self.transaction, self.effectiveFrom) = (account, transaction, effectiveFrom)
  }

  package var isRelease: Bool { account == nil }
}

/// An import's override of the owner of a whole original transaction, for purchases up to a date:
/// it settles undecided charges, recorded or still unknown, and takes none away.
package struct OriginalTransactionOverride: Hashable, Codable, Sendable {
  package var account: AccountKey
  package var line: OriginalTransactionKey
  /// The last purchase date that it applies to.
  package var boughtUntil: Timestamp

  package init(account: AccountKey, line: OriginalTransactionKey, boughtUntil: Timestamp) {
    (self.account, self.line, self.boughtUntil) = (account, line, boughtUntil)
  }

  package func covers(_ charge: Charge) -> Bool {
    charge.date <= boughtUntil && charge.transactions.contains { $0.line == line }
  }

  func includes(_ other: OriginalTransactionOverride) -> Bool {
    account == other.account && line == other.line && boughtUntil >= other.boughtUntil
  }
}

/// A person's action on an original transaction, in contrast to Apple's evidence.
package enum OwnershipAction: Hashable, Codable, Sendable {
  case claim(Claim)
  case ownerOverride(OwnerOverride)
  case importedOverride(OriginalTransactionOverride)

  package var line: OriginalTransactionKey {
    switch self {
    case .claim(let claim): claim.transaction.line
    case .ownerOverride(let ownerOverride): ownerOverride.transaction.line
    case .importedOverride(let ownerOverride): ownerOverride.line
    }
  }

  /// Nil: the whole original transaction.
  package var transaction: TransactionKey? {
    switch self {
    case .claim(let claim): claim.transaction
    case .ownerOverride(let ownerOverride): ownerOverride.transaction
    case .importedOverride: nil
    }
  }

  var isRelease: Bool {
    if case .ownerOverride(let ownerOverride) = self { ownerOverride.isRelease } else { false }
  }
}

package struct RecordedAction: Hashable, Comparable, Sendable {
  package var action: OwnershipAction
  package var recorded: RecordingOrder

  package init(_ action: OwnershipAction, recorded: RecordingOrder) {
    (self.action, self.recorded) = (action, recorded)
  }

  /// By the moment of recording, then by original transaction, since each counts its own entries.
  package static func < (lhs: RecordedAction, rhs: RecordedAction) -> Bool {
    (lhs.recorded.at, lhs.action.line, lhs.recorded.number)
      < (rhs.recorded.at, rhs.action.line, rhs.recorded.number)
  }
}

/// The part of an account's order that the rule reads.
package struct OpenedOrder: Hashable, Sendable {
  package var account: AccountKey
  package var productID: ProductID
  package var openedAt: Timestamp

  package init(account: AccountKey, productID: ProductID, openedAt: Timestamp) {
    (self.account, self.productID, self.openedAt) = (account, productID, openedAt)
  }
}

/// The merge of an account, such as a guest's, into another, which got everything that it owned
/// then and gets all that the rule assigns to it later.
package struct AccountMerge: Hashable, Sendable {
  package var into: AccountKey
  /// Charges from here on treat both accounts as one; later than every charge of this account.
  package var at: Timestamp

  package init(into: AccountKey, at: Timestamp) {
    (self.into, self.at) = (into, at)
  }
}
