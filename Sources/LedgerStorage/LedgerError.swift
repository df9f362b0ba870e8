package import Foundation
import JSONText
package import Subscriptions

package enum LedgerError: Error, Hashable, Sendable, CustomStringConvertible {
  case unknownProduct(ProductID)
  case unknownSubmission(UUID)
  case unknownAccount(String)
  /// The account was erased and can't be changed.
  case erasedAccount(String)
  /// The account was merged; use the account that it was merged into.
  case mergedAccount(String, into: String)
  case mergesIntoItself(String)
  case unknownTransaction(TransactionID)
  /// The charge was refunded or revoked, so it can't be acknowledged as delivered.
  case revokedCharge(Charge.ID)
  case unknownGrant(UUID)
  /// A grant with this ID exists and differs in `member`.
  case differentGrant(UUID, member: String)
  /// An entry's format is unknown: written by a newer Tenure, or tampered with.
  case unreadableEntry(line: OriginalTransactionKey, number: Int)
  /// A stored body is damaged.
  case unreadableBody(sha256: [UInt8])
  case schemaVersion(found: Int?, needed: Int)
  /// A lock on the tables that this step changes could not be acquired.
  case schemaInUse(version: Int)

  package var description: String {
    switch self {
    case .unknownProduct(let id): "Product \(id) is not in the catalogue."
    case .unknownSubmission(let id): "Submission \(id) does not exist."
    case .unknownAccount(let id):
      "Account \(id) does not exist; PUT /v1/accounts/{account_id} creates it."
    case .erasedAccount(let id): "Account \(id) was erased."
    case .mergedAccount(let id, let other): "Account \(id) was merged into account \(other)."
    case .mergesIntoItself(let id): "Account \(id) can't be merged into itself."
    case .unknownTransaction(let id): "Transaction \(id) is not recorded."
    case .revokedCharge(let id): "Transaction \(id.transactionID) is revoked."
    case .unknownGrant(let id): "Grant \(id.text) does not exist."
    case .differentGrant(let id, let member):
      "Grant \(id.text) already exists with a different `\(member)`."
    case .unreadableEntry(let line, let number):
      "Entry \(number) of \(line) can't be read by this version of Tenure."
    case .unreadableBody(let digest): "The body with the SHA-256 \(digest.hexadecimal) is damaged."
    case .schemaVersion(nil, _): "The database has no Tenure schema: run `tenure migrate` first."
    case .schemaVersion(let found?, let needed) where found < needed:
      "The database schema is version \(found), this Tenure needs \(needed): "
        + "run `tenure migrate`."
    case .schemaVersion(let found?, let needed):
      "The database schema is version \(found), newer than \(needed), the latest that this Tenure "
        + "supports: update Tenure."
    case .schemaInUse(let version):
      "The tables that the step to version \(version) changes are in use: end long transactions "
        + "(pg_stat_activity) and run `tenure migrate` again."
    }
  }
}

extension String {
  /// Text for a sentence column: at most 1000 characters, without control characters.
  ///
  /// Texts of networks and Apple can be anything, which must never prevent storing them.
  var storedSentence: String {
    let scalars = unicodeScalars.lazy.filter { $0.properties.generalCategory != .control }
    let text = String(String.UnicodeScalarView(scalars.prefix(1000)))
    return text.isEmpty ? "No reason given." : text
  }
}
