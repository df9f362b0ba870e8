/// The five characters with which PostgreSQL classifies an error.
///
/// https://www.postgresql.org/docs/current/errcodes-appendix.html
package struct SQLState: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
  package let rawValue: String

  package init(rawValue: String) {
    self.rawValue = rawValue
  }

  package var description: String { rawValue }

  /// The first two characters, which name the class of the error.
  package var errorClass: Substring { rawValue.prefix(2) }

  package static let featureNotSupported = SQLState(rawValue: "0A000")
  package static let invalidTextRepresentation = SQLState(rawValue: "22P02")
  package static let notNullViolation = SQLState(rawValue: "23502")
  package static let foreignKeyViolation = SQLState(rawValue: "23503")
  package static let uniqueViolation = SQLState(rawValue: "23505")
  package static let checkViolation = SQLState(rawValue: "23514")
  package static let readOnlyTransaction = SQLState(rawValue: "25006")
  package static let inFailedTransaction = SQLState(rawValue: "25P02")
  package static let invalidStatementName = SQLState(rawValue: "26000")
  package static let serializationFailure = SQLState(rawValue: "40001")
  package static let deadlockDetected = SQLState(rawValue: "40P01")
  package static let duplicateSchema = SQLState(rawValue: "42P06")
  package static let insufficientPrivilege = SQLState(rawValue: "42501")
  package static let syntaxError = SQLState(rawValue: "42601")
  package static let undefinedColumn = SQLState(rawValue: "42703")
  package static let undefinedTable = SQLState(rawValue: "42P01")
  package static let lockNotAvailable = SQLState(rawValue: "55P03")
  package static let queryCanceled = SQLState(rawValue: "57014")
  package static let adminShutdown = SQLState(rawValue: "57P01")
  package static let databaseDropped = SQLState(rawValue: "57P04")
  package static let internalError = SQLState(rawValue: "XX000")
}
