/// An account's app server submitted a receipt or signed transaction in which this was selected.
package struct Claim: Hashable, Codable, Sendable {
  package var account: AccountKey
  package var transaction: TransactionKey
  /// When the submission arrived, however late Apple verified it.
  package var receivedAt: Timestamp

  package init(account: AccountKey, transaction: TransactionKey, receivedAt: Timestamp) {
    self.account = account
    self.transaction = transaction
    self.receivedAt = receivedAt
  }
}

/// An administrator decided whose a charge is, or took it away from whoever had it.
package struct Placement: Hashable, Codable, Sendable {
  /// Nil: nobody's until somebody claims it; the first claim after this one has it.
  package var account: AccountKey?
  package var transaction: TransactionKey
  /// From when on the placement counts for later renewals: those charged before keep their owner.
  package var effectiveFrom: Timestamp

  package init(account: AccountKey?, transaction: TransactionKey, effectiveFrom: Timestamp) {
    self.account = account
    self.transaction = transaction
    self.effectiveFrom = effectiveFrom
  }

  /// Whether the charge was taken away from whoever had it, and given to nobody.
  package var isRelease: Bool { account == nil }
}

/// What people did about a line, as against what Apple said.
package enum Act: Hashable, Codable, Sendable {
  case claim(Claim)
  case placement(Placement)

  package var transaction: TransactionKey {
    switch self {
    case .claim(let claim): claim.transaction
    case .placement(let placement): placement.transaction
    }
  }

  /// Whether an administrator released a charge by it.
  var isRelease: Bool {
    if case .placement(let placement) = self { placement.isRelease } else { false }
  }
}

/// An act with when it was recorded.
package struct RecordedAct: Hashable, Comparable, Sendable {
  package var act: Act
  package var recorded: RecordingOrder

  package init(_ act: Act, recorded: RecordingOrder) {
    self.act = act
    self.recorded = recorded
  }

  /// By the moment of recording; of one moment, by line, since each counts its own entries.
  package static func < (lhs: RecordedAct, rhs: RecordedAct) -> Bool {
    (lhs.recorded.at, lhs.act.transaction.line, lhs.recorded.number)
      < (rhs.recorded.at, rhs.act.transaction.line, rhs.recorded.number)
  }
}

/// An order that an account opened, as far as the rule looks at orders.
package struct OpenedOrder: Hashable, Sendable {
  package var account: AccountKey
  package var productID: ProductID
  package var openedAt: Timestamp

  package init(account: AccountKey, productID: ProductID, openedAt: Timestamp) {
    self.account = account
    self.productID = productID
    self.openedAt = openedAt
  }
}
