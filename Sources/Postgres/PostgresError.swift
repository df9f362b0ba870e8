/// An error reported by PostgreSQL, or a failure to reach it, never with a parameter's value: the
/// server's DETAIL, HINT and CONTEXT, and the quoted part of messages of class 22 (bad data), can
/// have some and are left out.
package struct PostgresError: Error, Sendable {
  package enum Code: String, Sendable {
    /// The server rejected the statement; see ``PostgresError/sqlState``.
    case server
    case connectionFailed
    /// The connection broke while the statement was in flight. It may or may not have taken effect.
    case connectionLost
    /// The statement's deadline passed. It may or may not have taken effect.
    case timedOut
    /// No connection became free in time; nothing was sent.
    case poolTimeout
    case decoding
    /// The pool or the transaction was closed; nothing was sent.
    case closed
    /// Not sent: the statement is unsuitable, such as one with more than 65,535 parameters.
    case invalidRequest
  }

  package let code: Code
  package let message: String
  package internal(set) var sqlState: SQLState?
  /// `ERROR`, `FATAL` or `PANIC`, in English whatever the server's language.
  package internal(set) var severity: String?
  package internal(set) var constraint: String?
  package internal(set) var table: String?
  package internal(set) var column: String?
  /// The statement's text, with `$1` in place of values.
  package internal(set) var statement: String?
  /// Whether a cancellation meant for another statement hit this one, which is then repeated.
  var wasCancelledByMistake = false
  /// Whether the connection was known to be lost before the request was sent.
  var wasNotSent = false
  /// Whether the server rejected a prepared statement whose result would have new columns.
  var isRefusedPlan = false

  init(_ code: Code, _ message: String, statement: String? = nil) {
    (self.code, self.message, self.statement) = (code, message, statement)
  }

  func during(_ statement: String?) -> PostgresError {
    var error = self
    error.statement = error.statement ?? statement
    return error
  }

  /// The error of a transaction's body whose reads concurrent changes have outdated: it runs again.
  package static func overtaken(_ message: String) -> PostgresError {
    var error = PostgresError(.server, message)
    error.sqlState = .serializationFailure
    return error
  }

  /// The wait for the synchronous standbys was cut short: without them, the commit can be lost.
  static let unreplicatedCommit = PostgresError(
    .timedOut, "the commit was not confirmed by the synchronous standbys")

  /// Whether repeating the same work a little later may succeed; after ``Code/connectionLost`` and
  /// ``Code/timedOut`` it may be done, so repeat it only if idempotent.
  package var isTransient: Bool {
    switch code {
    case .connectionFailed, .connectionLost, .timedOut, .poolTimeout: true
    case .decoding, .closed, .invalidRequest: false
    case .server: isRetryableTransaction || isServerUnavailable || sqlState == .lockNotAvailable
    }
  }

  /// Whether concurrent work caused the rollback: run the transaction again from its beginning.
  package var isRetryableTransaction: Bool {
    sqlState == .serializationFailure || sqlState == .deadlockDetected || wasCancelledByMistake
      || isStalePlan
  }

  /// Whether the server stops, starts, lacks a resource (classes 53 and 57P) or is a standby.
  package var isServerUnavailable: Bool {
    guard let sqlState else { return false }
    guard sqlState != .databaseDropped else { return false }
    return sqlState.errorClass == "53" || sqlState.rawValue.hasPrefix("57P")
      || sqlState.errorClass == "08" || sqlState == .readOnlyTransaction
  }

  /// Whether a prepared statement is gone or no longer matches the tables.
  ///
  /// Preparing it again helps.
  ///
  /// "cached plan must not change result type" has no specific error code, only its class's.
  var isStalePlan: Bool {
    sqlState == .invalidStatementName || (sqlState == .featureNotSupported && isRefusedPlan)
  }

  /// Whether the server closes the connection after this error.
  var isFatal: Bool { severity == "FATAL" || severity == "PANIC" }

  /// Whether the statement took longer than `statement_timeout`; only the message distinguishes it
  /// from a cancellation, so it is detected in English only.
  var isStatementTimeout: Bool {
    sqlState == .queryCanceled && message.hasSuffix("statement timeout")
  }
}

extension PostgresError.Code {
  fileprivate var summary: String {
    switch self {
    case .server, .poolTimeout: "PostgreSQL"
    case .connectionFailed: "PostgreSQL can't be reached"
    case .connectionLost: "the connection to PostgreSQL was lost"
    case .timedOut: "PostgreSQL took too long"
    case .decoding: "PostgreSQL returned an unexpected result"
    case .closed: "the PostgreSQL client is closed"
    case .invalidRequest: "PostgreSQL can't run this request"
    }
  }
}

extension PostgresError: CustomStringConvertible {
  /// Everything that is safe to log, on one line.
  package var description: String {
    var text = sqlState.map { "PostgreSQL \(severity ?? "ERROR") \($0)" } ?? code.summary
    text += ": " + message
    let places = [("constraint", constraint), ("table", table), ("column", column)]
    let named = places.compactMap { name, value in value.map { "\(name) \($0)" } }
    if !named.isEmpty { text += " (\(named.joined(separator: ", ")))" }
    if let statement {
      text += " in: \(statement.split(whereSeparator: \.isWhitespace).joined(separator: " "))"
    }
    return text
  }
}

/// A five-character error code: https://www.postgresql.org/docs/current/errcodes-appendix.html.
package struct SQLState: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
  package let rawValue: String

  package init(rawValue: String) { self.rawValue = rawValue }

  package var description: String { rawValue }

  package var errorClass: Substring { rawValue.prefix(2) }

  package static let featureNotSupported = SQLState(rawValue: "0A000")
  package static let uniqueViolation = SQLState(rawValue: "23505")
  package static let readOnlyTransaction = SQLState(rawValue: "25006")
  package static let inFailedTransaction = SQLState(rawValue: "25P02")
  package static let invalidStatementName = SQLState(rawValue: "26000")
  package static let serializationFailure = SQLState(rawValue: "40001")
  package static let deadlockDetected = SQLState(rawValue: "40P01")
  package static let undefinedSchema = SQLState(rawValue: "3F000")
  package static let undefinedTable = SQLState(rawValue: "42P01")
  package static let duplicateSchema = SQLState(rawValue: "42P06")
  package static let insufficientPrivilege = SQLState(rawValue: "42501")
  package static let lockNotAvailable = SQLState(rawValue: "55P03")
  package static let queryCanceled = SQLState(rawValue: "57014")
  package static let adminShutdown = SQLState(rawValue: "57P01")
  package static let databaseDropped = SQLState(rawValue: "57P04")
  package static let internalError = SQLState(rawValue: "XX000")
}
