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

/// Who moved in said whose a line is: what was bought on it until then, seen by Tenure or not yet.
///
/// It takes nothing from anybody to whom a charge was decided before: it settles what nobody has
/// been decided to, as a claim on each of those charges would, whenever Apple tells of them. What
/// is bought later follows the rule.
package struct LinePlacement: Hashable, Codable, Sendable {
  package var account: AccountKey
  package var line: LineID
  /// The last purchase date for which it speaks.
  package var boughtUntil: Timestamp

  package init(account: AccountKey, line: LineID, boughtUntil: Timestamp) {
    self.account = account
    self.line = line
    self.boughtUntil = boughtUntil
  }

  /// Whether it speaks for a charge, under whichever of its transactions.
  package func covers(_ charge: Charge) -> Bool {
    charge.date <= boughtUntil && charge.transactions.contains { $0.line == line }
  }

  /// Whether `other` says nothing that this does not say.
  func includes(_ other: LinePlacement) -> Bool {
    account == other.account && line == other.line && boughtUntil >= other.boughtUntil
  }
}

/// What people did about a line, as against what Apple said.
package enum Act: Hashable, Codable, Sendable {
  case claim(Claim)
  case placement(Placement)
  case linePlacement(LinePlacement)

  package var line: LineID {
    switch self {
    case .claim(let claim): claim.transaction.line
    case .placement(let placement): placement.transaction.line
    case .linePlacement(let placement): placement.line
    }
  }

  /// What it is about; nil: a whole line.
  package var transaction: TransactionKey? {
    switch self {
    case .claim(let claim): claim.transaction
    case .placement(let placement): placement.transaction
    case .linePlacement: nil
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
    (lhs.recorded.at, lhs.act.line, lhs.recorded.number)
      < (rhs.recorded.at, rhs.act.line, rhs.recorded.number)
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

/// That an account became a part of another: a guest who has become a member.
///
/// What the account owned was placed with the other one at that moment. What the rule gives to it
/// all the same, by evidence or claims that are older, is the other one's, too.
package struct AccountMerge: Hashable, Sendable {
  /// The account that has what was the other one's.
  package var into: AccountKey
  /// From when on charges find both as one; later than every charge on the account's lines.
  package var at: Timestamp

  package init(into: AccountKey, at: Timestamp) {
    self.into = into
    self.at = at
  }
}
