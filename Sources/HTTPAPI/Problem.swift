package import HTTPTypes
import Hummingbird
import Intake
package import JSONText
import LedgerStorage
import NIOCore
import Reports

package struct Problem: Error, Sendable {
  package let code: ProblemCode
  package let detail: String
  /// The code's status, except in answers to notifications.
  package var status: HTTPResponse.Status
  /// The invalid field, query parameter or part of the path.
  package var field: String?
  package var submission: RejectedSubmission?
  package var headers: HTTPFields

  package struct RejectedSubmission: Sendable {
    var id: String
    var appleStatus: Int?
    /// For role `admin` only.
    var exchanges: [SubmissionExchange]?
  }

  package init(
    _ code: ProblemCode, _ detail: String, field: String? = nil, headers: HTTPFields = [:]
  ) {
    self.code = code
    self.detail = detail
    status = code.status
    self.field = field
    self.headers = headers
  }
}

/// Several problems of one form; never empty.
package struct Problems: Error {
  package let all: [Problem]

  package init(all: [Problem]) { self.all = all }
}

extension [Problem] {
  /// Appends the problem that is thrown, and returns nil instead.
  package mutating func note<Value>(_ read: () throws -> Value) throws -> Value? {
    do {
      return try read()
    } catch let problem as Problem {
      append(problem)
      return nil
    }
  }
}

extension Problem {
  /// A wrong field; `fault` ends a sentence that begins with its name, as in "is missing".
  package static func invalid(_ field: String, _ fault: String) -> Problem {
    Problem(.invalidRequest, "`\(field)` \(fault).", field: field)
  }

  package static func unauthorized(hasKey: Bool) -> Problem {
    let fault = hasKey ? "`Authorization` has no configured API key" : "`Authorization` is missing"
    return Problem(
      .unauthorized, "\(fault): send `Authorization: Bearer SECRET` with the secret of an API key.",
      headers: [.wwwAuthenticate: "Bearer"])
  }

  package static func forbidden(needed role: APIKeys.Role) -> Problem {
    Problem(.forbidden, "This route needs an API key with the role `\(role.rawValue)`.")
  }

  package static func methodNotAllowed(_ allowed: Set<HTTPRequest.Method>) -> Problem {
    let list = allowed.map(\.rawValue).sorted().joined(separator: ", ")
    return Problem(.methodNotAllowed, "Allowed methods: \(list).", headers: [.allow: list])
  }

  package static func contentTooLarge(limit: Int) -> Problem {
    Problem(.contentTooLarge, "The body must have at most \(limit) bytes.")
  }

  /// A few seconds, which is how long a database takes to restart or fail over.
  package static let retryAfterSeconds = 2

  package static func unavailable(_ detail: String) -> Problem {
    Problem(.unavailable, detail, headers: [.retryAfter: "\(retryAfterSeconds)"])
  }
}

extension Problem: JSONObjectWritable {
  package func writeMembers(to json: inout JSONWriter) {
    json.member("type", "urn:tenure:problem:\(code.rawValue)")
    json.member("title", code.title)
    json.member("status", status.code)
    json.member("detail", detail)
    json.member("code", code.rawValue)
    json.memberIfPresent("field", field)
    json.memberIfPresent("request_id", LogContext.current?.requestID)
    if let submission {
      json.member("submission_id", submission.id)
      json.memberIfPresent("apple_status", submission.appleStatus)
      json.memberIfPresent("exchanges", submission.exchanges)
    }
  }
}

extension Response {
  package init(_ problem: Problem) {
    self.init(
      problem, status: problem.status, mediaType: "application/problem+json",
      headers: problem.headers)
  }
}

extension Problem {
  /// Maps any error to the caller's answer, without an internal error's details, which the log has.
  package init(_ error: any Error) {
    switch error {
    case let problem as Problem: self = problem
    case let error as LedgerError: self.init(error)
    case let fault as ReportFault: self = .invalid(fault.parameter.rawValue, fault.text)
    case let error as JSONError:
      let position = error.offset.map { ", at byte \($0)" } ?? ""
      self.init(.invalidRequest, "Invalid JSON: the body \(error)\(position).")
    case is NIOTooManyBytesError: self.init(.contentTooLarge, "The body is too large.")
    case let error as any HTTPResponseError: self.init(error)
    case is CancellationError: self = .unavailable("The server is shutting down. Try again.")
    case is NotificationQueueFull:
      self = .unavailable("Too many notifications are being verified. Try again.")
    case is TooManyFiles:
      self = .unavailable("Too many report files are being downloaded. Try again.")
    case _ where Ledger.isUnavailable(error):
      self = .unavailable("The database is unreachable or too slow. Try again.")
    default: self.init(.internalError, Self.internalErrorDetail)
    }
  }

  private static let internalErrorDetail = "Internal error; see the log for this request ID."

  private init(_ error: LedgerError) {
    switch error {
    case .unknownProduct: self.init(.unknownProduct, error.description)
    case .unknownSubmission: self.init(.unknownSubmission, error.description)
    case .unknownAccount: self.init(.unknownAccount, error.description)
    case .unknownTransaction: self.init(.unknownTransaction, error.description)
    case .revokedCharge: self.init(.revoked, error.description)
    case .unknownGrant: self.init(.unknownGrant, error.description)
    case .erasedAccount: self.init(.accountErased, error.description)
    case .mergedAccount: self.init(.accountMerged, error.description)
    case .mergesIntoItself: self = .invalid(TextField.into.name, "must name a different account")
    case .differentGrant: self.init(.grantDiffers, error.description)
    case .schemaVersion: self = .unavailable(error.description)
    default: self.init(.internalError, error.description)
    }
  }

  private init(_ error: any HTTPResponseError) {
    switch error.status {
    case .notFound: self.init(.notFound, "See /openapi.yaml for the available routes.")
    case .contentTooLarge: self.init(.contentTooLarge, "The body is too large.")
    case .unsupportedMediaType:
      self.init(.unsupportedMediaType, "Send JSON, as `Content-Type: application/json`.")
    case let status where status.kind == .clientError:
      self.init(.invalidRequest, "The request is malformed: \(status.reasonPhrase).")
    default: self.init(.internalError, Self.internalErrorDetail)
    }
  }
}

/// The stable error codes, which the OpenAPI document lists as well.
package struct ProblemCode: Hashable, CaseIterable, Sendable {
  package let rawValue: String
  package let status: HTTPResponse.Status
  /// The code's meaning, the same for every occurrence.
  package let title: String

  /// Without a title, the code's own words are the title.
  private init(_ rawValue: String, _ status: HTTPResponse.Status, _ title: String? = nil) {
    self.rawValue = rawValue
    self.status = status
    let words = rawValue.replacing("_", with: " ")
    self.title = title ?? words.prefix(1).uppercased() + words.dropFirst()
  }

  static func named(_ name: String) -> ProblemCode? { allCases.first { $0.rawValue == name } }

  package static let invalidRequest = Self("invalid_request", .badRequest)
  package static let unauthorized = Self(
    "unauthorized", .unauthorized, "Missing or invalid API key")
  package static let forbidden = Self("forbidden", .forbidden, "Insufficient permissions")
  package static let notFound = Self("not_found", .notFound)
  package static let unknownProduct = Self("unknown_product", .notFound)
  package static let unknownOrder = Self("unknown_order", .notFound)
  package static let unknownAccount = Self("unknown_account", .notFound)
  package static let unknownSubmission = Self("unknown_submission", .notFound)
  package static let unknownTransaction = Self("unknown_transaction", .notFound)
  package static let unknownOriginalTransaction = Self("unknown_original_transaction", .notFound)
  package static let unknownGrant = Self("unknown_grant", .notFound)
  package static let unknownEvent = Self("unknown_event", .notFound)
  package static let unknownReport = Self("unknown_report", .notFound)
  package static let methodNotAllowed = Self("method_not_allowed", .methodNotAllowed)
  package static let ambiguous = Self("ambiguous", .conflict, "Ambiguous ID")
  package static let notTheOwner = Self(
    "not_the_owner", .conflict, "Account does not own the transaction")
  package static let revoked = Self("revoked", .conflict, "Transaction revoked")
  package static let accountErased = Self("account_erased", .conflict)
  package static let accountMerged = Self(
    "account_merged", .conflict, "Account merged into another")
  package static let grantDiffers = Self("grant_differs", .conflict, "Grant ID already in use")
  package static let webhooksOff = Self("webhooks_off", .conflict, "Webhooks not configured")
  package static let cursorExpired = Self("cursor_expired", .gone)
  package static let cursorUnknown = Self("cursor_unknown", .gone, "Unknown cursor")
  package static let contentTooLarge = Self(
    "content_too_large", .contentTooLarge, "Request body too large")
  package static let unsupportedMediaType = Self("unsupported_media_type", .unsupportedMediaType)
  package static let receiptRejected = Self("receipt_rejected", .unprocessableContent)
  package static let wrongBundleID = Self(
    "wrong_bundle_id", .unprocessableContent, "Wrong bundle ID")
  package static let invalidSignature = Self("invalid_signature", .unprocessableContent)
  package static let wrongSecret = Self("wrong_secret", .unauthorized, "Wrong shared secret")
  package static let internalError = Self("internal_error", .internalServerError)
  package static let unavailable = Self(
    "unavailable", .serviceUnavailable, "Temporarily unavailable")

  package static let allCases: [ProblemCode] = [
    .invalidRequest, .unauthorized, .forbidden, .notFound, .unknownProduct, .unknownOrder,
    .unknownAccount, .unknownSubmission, .unknownTransaction, .unknownOriginalTransaction,
    .unknownGrant, .unknownEvent, .unknownReport, .methodNotAllowed, .ambiguous, .notTheOwner,
    .revoked, .accountErased, .accountMerged, .grantDiffers, .webhooksOff, .cursorExpired,
    .cursorUnknown, .contentTooLarge, .unsupportedMediaType, .receiptRejected, .wrongBundleID,
    .invalidSignature, .wrongSecret, .internalError, .unavailable,
  ]
}

extension Response {
  /// A JSON response; `capacity` is its estimated size in bytes.
  package init(
    _ json: some JSONWritable, status: HTTPResponse.Status = .ok,
    mediaType: String = "application/json", headers: HTTPFields = [:], capacity: Int = 512
  ) {
    var writer = JSONWriter(capacity: capacity)
    json.write(to: &writer)
    var headers = headers
    headers.append(HTTPField(name: .contentType, value: mediaType))
    self.init(
      status: status, headers: headers,
      body: ResponseBody(byteBuffer: ByteBuffer(bytes: writer.bytes)))
  }

  /// A response with a JSON object, whose members the closure writes.
  init(
    status: HTTPResponse.Status = .ok, headers: HTTPFields = [:], capacity: Int = 512,
    _ members: @escaping (inout JSONWriter) -> Void
  ) {
    self.init(JSONMembers(write: members), status: status, headers: headers, capacity: capacity)
  }

  init(_ body: ByteBuffer, as mediaType: String) {
    self.init(status: .ok, headers: [.contentType: mediaType], body: ResponseBody(byteBuffer: body))
  }
}

struct JSONMembers: JSONObjectWritable {
  let write: (inout JSONWriter) -> Void

  func writeMembers(to json: inout JSONWriter) { write(&json) }
}
