package import Foundation
package import Subscriptions

/// Why the ledger could not do what was asked, where the caller can do something about it.
package enum LedgerError: Error, Hashable, Sendable, CustomStringConvertible {
  case unknownProduct(ProductID)
  /// A submission of this id is not stored.
  case unknownSubmission(UUID)
  /// An account of this name was never seen.
  case unknownAccount(String)
  /// The person was erased: nothing can be given to the account, or taken from it.
  case erasedAccount(String)
  /// The account was merged into another: that one has what was its.
  case mergedAccount(String, into: String)
  /// An account can't be merged into itself.
  case mergesIntoItself(String)
  case unknownTransaction(TransactionID)
  /// Nothing is delivered for a charge that was refunded or revoked.
  case revokedCharge(Charge.ID)
  case unknownGrant(UUID)
  /// A grant of this id exists, and differs in the member.
  case differentGrant(UUID, member: String)
  /// The stored form of an entry can't be read: a newer Tenure wrote it, or somebody changed it.
  case unreadableEntry(line: LineID, number: Int)
  /// The database's schema is not the one that this version works with.
  case schemaVersion(found: Int?, needed: Int)
  /// The tables that the step to this version changes were in use for as long as it was tried.
  case schemaInUse(version: Int)

  package var description: String {
    switch self {
    case .unknownProduct(let id): "Product \(id) is not in the catalogue."
    case .unknownSubmission(let id): "There is no submission \(id)."
    case .unknownAccount(let id):
      "Account \(id) was never seen; PUT /v1/accounts/{account_id} creates it."
    case .erasedAccount(let id): "Account \(id) is that of a person who was erased."
    case .mergedAccount(let id, let other): "Account \(id) was merged into account \(other)."
    case .mergesIntoItself(let id): "Account \(id) can't be merged into itself."
    case .unknownTransaction(let id): "Transaction \(id) was never recorded."
    case .revokedCharge(let id): "Transaction \(id.transactionID) is revoked."
    case .unknownGrant(let id): "There is no grant \(id.uuidString.lowercased())."
    case .differentGrant(let id, let member):
      "A grant \(id.uuidString.lowercased()) exists, with another `\(member)`."
    case .unreadableEntry(let line, let number):
      "Entry \(number) of \(line) can't be read by this version of Tenure."
    case .schemaVersion(nil, _):
      "The database holds no schema of Tenure's: run `tenure migrate` first."
    case .schemaVersion(let found?, let needed) where found < needed:
      "The database's schema is version \(found), this Tenure needs \(needed): "
        + "run `tenure migrate`."
    case .schemaVersion(let found?, let needed):
      "The database's schema is version \(found), newer than the \(needed) that this Tenure knows: "
        + "update Tenure."
    case .schemaInUse(let version):
      "Others use the tables that the step to version \(version) changes: end long transactions "
        + "(pg_stat_activity), and run `tenure migrate` again."
    }
  }
}

extension String {
  /// This text as the columns for sentences take it: up to a thousand characters, as PostgreSQL
  /// counts them, none of them a control character.
  ///
  /// What happened is told in the words of networks, libraries and Apple, which can be of any
  /// length and contain anything; that must never be a reason why it can't be stored.
  var storedSentence: String {
    let scalars = unicodeScalars.lazy.filter { $0.properties.generalCategory != .control }
    let text = String(String.UnicodeScalarView(scalars.prefix(1000)))
    return text.isEmpty ? "No reason was given." : text
  }
}
