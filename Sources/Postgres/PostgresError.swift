/// Why PostgreSQL did not do what was asked: what the server said, or what went wrong on the way to
/// it.
///
/// Never holds a parameter's value: the server's DETAIL, HINT and CONTEXT can quote values and are
/// not taken over, nor is what a message of class 22 (bad data) quotes.
package struct PostgresError: Error, Sendable {
  /// Where the failure lies.
  package enum Code: String, Sendable {
    /// The server refused the statement; see ``PostgresError/sqlState``.
    case server
    /// No connection could be made.
    case connectionFailed
    /// The connection broke while the statement was under way: it may or may not have been carried
    /// out.
    case connectionLost
    /// The statement's deadline passed: it may or may not have been carried out.
    case timedOut
    /// No connection became free in time; nothing was sent.
    case poolTimeout
    /// The result is not of the types asked for.
    case decoding
    /// The pool or the transaction was closed; nothing was sent.
    case closed
    /// The statement cannot be sent this way, such as one with more than 65,535 parameters; nothing
    /// was sent.
    case invalidRequest
  }

  package let code: Code
  package let message: String
  package internal(set) var sqlState: SQLState?
  /// `ERROR`, `FATAL` or `PANIC`, in English whatever the server's language.
  package internal(set) var severity: String?
  package internal(set) var constraint: String?
  package internal(set) var schema: String?
  package internal(set) var table: String?
  package internal(set) var column: String?
  /// The statement's text, with `$1` where values were bound.
  package internal(set) var statement: String?
  /// Whether the statement was hit by a request to cancel its neighbour on the connection; it is
  /// repeated.
  var wasCancelledByMistake = false
  /// Whether the connection was known to be lost before anything of the request was sent.
  var wasNotSent = false
  /// Whether the server has found that a prepared statement's result would have other columns now.
  var isRefusedPlan = false

  init(_ code: Code, _ message: String, statement: String? = nil) {
    self.code = code
    self.message = message
    self.statement = statement
  }

  func during(_ statement: String?) -> PostgresError {
    var error = self
    error.statement = error.statement ?? statement
    return error
  }
}

extension PostgresError {
  /// What the body of a transaction throws when what it has read holds no longer, because of
  /// others: it is run again from its beginning.
  package static func overtaken(_ message: String) -> PostgresError {
    var error = PostgresError(.server, message)
    error.sqlState = .serializationFailure
    return error
  }

  /// What was committed is not confirmed: the wait for the synchronous standbys was cut short, and
  /// without them it can be lost.
  static let unreplicatedCommit = PostgresError(
    .timedOut, "the commit did not wait until the synchronous standbys had it")

  /// Whether the same work may well succeed when it is repeated, a little later.
  ///
  /// After ``Code/connectionLost`` and ``Code/timedOut`` it may already have been done: repeat only
  /// what is harmless twice.
  package var isTransient: Bool {
    switch code {
    case .connectionFailed, .connectionLost, .timedOut, .poolTimeout: true
    case .decoding, .closed, .invalidRequest: false
    case .server: isRetryableTransaction || isServerUnavailable || sqlState == .lockNotAvailable
    }
  }

  /// Whether the transaction was rolled back only because of others and should be run again from
  /// its beginning.
  package var isRetryableTransaction: Bool {
    sqlState == .serializationFailure || sqlState == .deadlockDetected || wasCancelledByMistake
      || isStalePlan
  }

  /// Whether the server is stopping, starting, out of a resource (classes 53 and 57P), or a standby
  /// that takes no writes.
  package var isServerUnavailable: Bool {
    guard let sqlState else { return false }
    guard sqlState != .databaseDropped else { return false }
    return sqlState.errorClass == "53" || sqlState.rawValue.hasPrefix("57P")
      || sqlState.errorClass == "08" || sqlState == .readOnlyTransaction
  }

  /// Whether a statement prepared earlier has gone or no longer fits the tables; preparing it anew
  /// helps.
  ///
  /// "cached plan must not change result type" has no code of its own, only the one of its class.
  var isStalePlan: Bool {
    sqlState == .invalidStatementName || (sqlState == .featureNotSupported && isRefusedPlan)
  }

  /// Whether the server ends the connection with it.
  var isFatal: Bool { severity == "FATAL" || severity == "PANIC" }

  /// Whether the statement took longer than `statement_timeout`.
  ///
  /// Nothing but the message tells it from a cancellation, so it is known in English only.
  var isStatementTimeout: Bool {
    sqlState == .queryCanceled && message.hasSuffix("statement timeout")
  }
}

extension PostgresError.Code {
  /// For people who have never seen this program's text.
  fileprivate var words: String {
    switch self {
    case .server, .poolTimeout: "PostgreSQL"
    case .connectionFailed: "PostgreSQL can't be reached"
    case .connectionLost: "the connection to PostgreSQL was lost"
    case .timedOut: "PostgreSQL took too long"
    case .decoding: "PostgreSQL's answer is another than expected"
    case .closed: "PostgreSQL is not asked any more"
    case .invalidRequest: "PostgreSQL can't be asked in this way"
    }
  }
}

extension PostgresError: CustomStringConvertible {
  /// All that is safe to log, on one line.
  package var description: String {
    var text = sqlState.map { "PostgreSQL \(severity ?? "ERROR") \($0)" } ?? code.words
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
