import Foundation
package import Subscriptions

/// What another backend says of a line: whose it is.
package struct ImportedOwner: Hashable, Sendable {
  package var line: LineID
  package var accountID: String
  /// When it was true: what was bought until then is the account's.
  package var asOf: Timestamp
  /// The app that it was bought in, where several are served.
  package var bundleID: String?
  /// A transaction of the line, to ask Apple with.
  package var transactionID: TransactionID?
  /// A receipt that lists the line, in base64.
  package var receipt: String?

  package init(
    line: LineID, accountID: String, asOf: Timestamp, bundleID: String? = nil,
    transactionID: TransactionID? = nil, receipt: String? = nil
  ) {
    self.line = line
    self.accountID = accountID
    self.asOf = asOf
    self.bundleID = bundleID
    self.transactionID = transactionID
    self.receipt = receipt
  }

  /// The account, compared byte by byte.
  var account: AccountID { AccountID(accountID) }

  /// Whether it names anything to ask Apple with.
  var hasSource: Bool { transactionID != nil || receipt != nil }
}

/// What came of importing the owner of a line.
package enum ImportVerdict: Hashable, Sendable {
  /// It is recorded now, or would be.
  case recorded
  /// It was known; nothing is recorded.
  case known
  /// Tenure has it that the line is this account's; nothing is recorded.
  case ownedByAnotherAccount(String)
  /// The person was erased; nothing is recorded.
  case accountErased
}

/// How far Apple has confirmed what was imported.
package struct ImportProgress: Hashable, Sendable {
  /// The lines that were imported.
  package var lines = 0
  /// Those of which Apple has told a charge.
  package var verified = 0
  /// Those about which Apple is still to be asked.
  package var waiting = 0
  /// Those of which Apple tells nothing; each with why when it was given up.
  package var unverifiable = 0

  package init() {}
}

/// An imported line of which Apple has told nothing yet.
package struct UnverifiedImport: Hashable, Sendable {
  package var line: LineID
  package var accountID: String
  /// When Apple was given up; nil: it is still to be asked.
  package var givenUpAt: Timestamp?
  /// What was said the last time, if it was asked.
  package var reason: String?
}

extension StoredFamily {
  /// The account that the whole line is for, before or beside what Apple tells of it.
  var importedFor: AccountKey? { line.history.linePlacements.last?.account }

  /// Whether Apple was never heard of the line, though an import says whose it is.
  var awaitsApple: Bool { line.history.transactions.isEmpty && importedFor != nil }

  /// What an import of the line comes to.
  func verdict(on owner: ImportedOwner, of account: AccountKey?) -> (
    verdict: ImportVerdict, other: AccountKey?
  ) {
    let placement = account.map {
      LinePlacement(account: $0, line: owner.line, boughtUntil: owner.asOf)
    }
    // Whatever has become of it since.
    if let placement, line.history.says(.linePlacement(placement)) { return (.known, nil) }
    let rule = rule
    let latest = rule.charges.latestPosition.map { (rule.charges[$0], rule.decisions[$0]) }
    let holder =
      latest.map { $0.1.isProvisional ? nil : $0.1.owner }
      ?? (line.history.transactions.isEmpty ? importedFor : nil)
    if let holder, holder != account { return (.ownedByAnotherAccount(""), holder) }
    // What Apple has told of the present needs no word of the past.
    if let latest, holder != nil, latest.0.end.map({ $0 > owner.asOf }) ?? true {
      return (.known, nil)
    }
    return (.recorded, nil)
  }
}
