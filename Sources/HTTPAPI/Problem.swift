package import HTTPTypes
import Hummingbird
import Intake
package import JSONText
import LedgerStorage
import NIOCore
import Reports

/// The error of a request, as `application/problem+json` (RFC 9457).
package struct Problem: Error, Sendable {
  package let code: ProblemCode
  /// One sentence about this occurrence, for the caller's developer.
  package let detail: String
  /// The code's status, except in answers to notifications.
  package var status: HTTPResponse.Status
  /// The invalid field, query parameter or part of the path.
  package var field: String?
  package var submission: RejectedSubmission?
  package var headers: HTTPFields

  /// The additional members for a rejected submission.
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

extension Problem {
  /// A field that is missing, of the wrong type, or out of range.
  ///
  /// `fault` continues a sentence that begins with the field's name: "is missing".
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
    case let error as DecodingError: self.init(error)
    case let error as JSONError:
      self.init(.invalidRequest, "Invalid JSON: the body \(error), at byte \(error.offset ?? 0).")
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

  private init(_ error: DecodingError) {
    switch error {
    case .keyNotFound(let key, let context):
      self = .invalid((context.codingPath + [key]).fieldName, "is missing")
    case .valueNotFound(_, let context) where !context.codingPath.isEmpty:
      self = .invalid(context.codingPath.fieldName, "must not be null")
    case .typeMismatch(let type, let context) where !context.codingPath.isEmpty:
      self = .invalid(context.codingPath.fieldName, "must be \(Self.name(of: type))")
    default: self.init(.invalidRequest, "The body must be a JSON object.")
    }
  }

  private static func name(of type: any Any.Type) -> String {
    switch type {
    case is String.Type: "a string"
    case is Bool.Type: "true or false"
    case is Double.Type: "a whole number"
    case is [Any].Type: "an array"
    default: "an object"
    }
  }

  /// The errors that Hummingbird throws.
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

extension [any CodingKey] {
  /// The path of a field, as in `account_ids[3]`.
  fileprivate var fieldName: String {
    reduce(into: "") { name, key in
      if let index = key.intValue {
        name += "[\(index)]"
      } else {
        name += name.isEmpty ? key.stringValue : ".\(key.stringValue)"
      }
    }
  }
}

/// The stable error codes, which the OpenAPI document lists as well.
package enum ProblemCode: String, CaseIterable, Sendable {
  case invalidRequest = "invalid_request"
  case unauthorized
  case forbidden
  case notFound = "not_found"
  case unknownProduct = "unknown_product"
  case unknownOrder = "unknown_order"
  case unknownAccount = "unknown_account"
  case unknownSubmission = "unknown_submission"
  case unknownTransaction = "unknown_transaction"
  case unknownOriginalTransaction = "unknown_original_transaction"
  case unknownGrant = "unknown_grant"
  case unknownEvent = "unknown_event"
  case unknownReport = "unknown_report"
  case methodNotAllowed = "method_not_allowed"
  case ambiguous
  case notTheOwner = "not_the_owner"
  case revoked
  case accountErased = "account_erased"
  case accountMerged = "account_merged"
  case grantDiffers = "grant_differs"
  case webhooksOff = "webhooks_off"
  case cursorExpired = "cursor_expired"
  case cursorUnknown = "cursor_unknown"
  case contentTooLarge = "content_too_large"
  case unsupportedMediaType = "unsupported_media_type"
  case receiptRejected = "receipt_rejected"
  case wrongBundleID = "wrong_bundle_id"
  case invalidSignature = "invalid_signature"
  case wrongSecret = "wrong_secret"
  case internalError = "internal_error"
  case unavailable

  package var status: HTTPResponse.Status { entry.status }

  /// The code's meaning, the same for every occurrence.
  package var title: String { entry.title }

  private var entry: (status: HTTPResponse.Status, title: String) {
    switch self {
    case .invalidRequest: (.badRequest, "Invalid request")
    case .unauthorized: (.unauthorized, "Missing or invalid API key")
    case .forbidden: (.forbidden, "Insufficient permissions")
    case .notFound: (.notFound, "Not found")
    case .unknownProduct: (.notFound, "Unknown product")
    case .unknownOrder: (.notFound, "Unknown order")
    case .unknownAccount: (.notFound, "Unknown account")
    case .unknownSubmission: (.notFound, "Unknown submission")
    case .unknownTransaction: (.notFound, "Unknown transaction")
    case .unknownOriginalTransaction: (.notFound, "Unknown original transaction")
    case .unknownGrant: (.notFound, "Unknown grant")
    case .unknownEvent: (.notFound, "Unknown event")
    case .unknownReport: (.notFound, "Unknown report")
    case .methodNotAllowed: (.methodNotAllowed, "Method not allowed")
    case .ambiguous: (.conflict, "Ambiguous ID")
    case .notTheOwner: (.conflict, "Account does not own the transaction")
    case .revoked: (.conflict, "Transaction revoked")
    case .accountErased: (.conflict, "Account erased")
    case .accountMerged: (.conflict, "Account merged into another")
    case .grantDiffers: (.conflict, "Grant ID already in use")
    case .webhooksOff: (.conflict, "Webhooks not configured")
    case .cursorExpired: (.gone, "Cursor expired")
    case .cursorUnknown: (.gone, "Unknown cursor")
    case .contentTooLarge: (.contentTooLarge, "Request body too large")
    case .unsupportedMediaType: (.unsupportedMediaType, "Unsupported media type")
    case .receiptRejected: (.unprocessableContent, "Receipt rejected")
    case .wrongBundleID: (.unprocessableContent, "Wrong bundle ID")
    case .invalidSignature: (.unprocessableContent, "Invalid signature")
    case .wrongSecret: (.unauthorized, "Wrong shared secret")
    case .internalError: (.internalServerError, "Internal error")
    case .unavailable: (.serviceUnavailable, "Temporarily unavailable")
    }
  }
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

  /// A response with one piece of text or data.
  init(_ body: ByteBuffer, as mediaType: String) {
    self.init(status: .ok, headers: [.contentType: mediaType], body: ResponseBody(byteBuffer: body))
  }
}

/// An object, whose members the closure writes.
struct JSONMembers: JSONObjectWritable {
  let write: (inout JSONWriter) -> Void

  func writeMembers(to json: inout JSONWriter) { write(&json) }
}
