package import HTTPTypes
import Hummingbird
import Intake
import JSONText
import LedgerStorage
import NIOCore
import Reports

/// Why a request was not carried out, as `application/problem+json` (RFC 9457) says it.
package struct Problem: Error, Sendable {
  package let code: ProblemCode
  /// What happened this time, in a sentence for the caller's developer.
  package let detail: String
  /// The code's own, but for notifications.
  package var status: HTTPResponse.Status
  /// The field, query parameter or part of the path that is at fault.
  package var field: String?
  package var submission: RejectedSubmission?
  package var headers: HTTPFields = [:]

  /// What a rejected submission adds.
  package struct RejectedSubmission: Sendable {
    var id: String
    var appleStatus: Int?
    /// For administrators.
    var exchanges: [SubmissionExchange]?
  }

  package init(_ code: ProblemCode, _ detail: String, field: String? = nil) {
    self.code = code
    self.detail = detail
    status = code.status
    self.field = field
  }
}

extension Problem {
  /// A field that is missing, of the wrong type, or beyond its limits.
  ///
  /// - Parameters:
  ///   - field: The field's name.
  ///   - fault: What is wrong with it, after its name: "is missing".
  /// - Returns: The problem.
  package static func invalid(_ field: String, _ fault: String) -> Problem {
    Problem(.invalidRequest, "`\(field)` \(fault).", field: field)
  }

  package static var unauthorized: Problem {
    var problem = Problem(
      .unauthorized, "Send the header field `Authorization: Bearer SECRET` with a configured key.")
    problem.headers[.wwwAuthenticate] = "Bearer"
    return problem
  }

  package static func forbidden(needed role: APIKeys.Role) -> Problem {
    Problem(.forbidden, "This needs a key of role \(role.rawValue).")
  }

  package static func methodNotAllowed(_ allowed: Set<HTTPRequest.Method>) -> Problem {
    let list = allowed.map(\.rawValue).sorted().joined(separator: ", ")
    var problem = Problem(.methodNotAllowed, "This path has \(list).")
    problem.headers[.allow] = list
    return problem
  }

  package static func contentTooLarge(limit: Int) -> Problem {
    Problem(.contentTooLarge, "The body may have up to \(limit) bytes.")
  }

  /// How long a caller should wait before trying again, in seconds: databases that restart or fail
  /// over take a few.
  package static let retryAfterSeconds = 2

  package static func unavailable(_ detail: String) -> Problem {
    var problem = Problem(.unavailable, detail)
    problem.headers[.retryAfter] = "\(retryAfterSeconds)"
    return problem
  }
}

extension Problem: JSONWritable {
  func write(to json: inout JSONWriter) {
    json.object { json in
      json.member("type", "urn:tenure:problem:\(code.rawValue)")
      json.member("title", code.title)
      json.member("status", status.code)
      json.member("detail", detail)
      json.member("code", code.rawValue)
      json.memberIfPresent("field", field)
      json.memberIfPresent("request_id", Occasion.current?.requestID)
      if let submission {
        json.member("submission_id", submission.id)
        json.memberIfPresent("apple_status", submission.appleStatus)
        json.memberIfPresent("exchanges", submission.exchanges)
      }
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
  /// Says what an error means to the caller: the one place where errors become answers.
  ///
  /// What the caller can do nothing about is not told in detail: the log has it.
  package init(_ error: any Error) {
    switch error {
    case let problem as Problem:
      self = problem
    case let error as LedgerError:
      self.init(error)
    case let error as DecodingError:
      self.init(error)
    case let error as JSONError:
      self.init(.invalidRequest, "The body is not JSON that is accepted: it \(error).")
    case is NIOTooManyBytesError:
      self.init(.contentTooLarge, "The body is too large.")
    case let error as any HTTPResponseError:
      self.init(error)
    case is CancellationError:
      self = .unavailable("The server is stopping. Try again.")
    case is NotificationQueueFull:
      self = .unavailable("Too many notifications are being verified. Send it again.")
    case is TooManyFiles:
      self = .unavailable("Too many files are being sent. Try again.")
    case _ where Ledger.isUnavailable(error):
      self = .unavailable("The database can't be reached, or is too slow. Try again.")
    default:
      self.init(.internalError, "This is not the request's fault; the log has the reason.")
    }
  }

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
    case .mergesIntoItself: self = .invalid(TextField.into.name, "must be another account")
    case .differentGrant: self.init(.grantDiffers, error.description)
    case .schemaVersion: self = .unavailable(error.description)
    default: self.init(.internalError, error.description)
    }
  }

  /// The body is not the JSON that is expected.
  private init(_ error: DecodingError) {
    switch error {
    case .keyNotFound(let key, let context):
      self = .invalid((context.codingPath + [key]).fieldName, "is missing")
    case .valueNotFound(_, let context) where !context.codingPath.isEmpty:
      self = .invalid(context.codingPath.fieldName, "must not be null")
    case .typeMismatch(let type, let context) where !context.codingPath.isEmpty:
      self = .invalid(context.codingPath.fieldName, "must be \(Self.name(of: type))")
    case .typeMismatch, .valueNotFound:
      self.init(.invalidRequest, "The body must be a JSON object.")
    default:
      self.init(.invalidRequest, "The body is not valid JSON.")
    }
  }

  private static func name(of type: any Any.Type) -> String {
    switch type {
    case is String.Type: "a string"
    case is Bool.Type: "true or false"
    case is Int.Type, is Int64.Type: "a whole number"
    case is [Any].Type: "an array"
    default: "an object"
    }
  }

  /// What Hummingbird itself refuses.
  private init(_ error: any HTTPResponseError) {
    switch error.status {
    case .notFound: self.init(.notFound, "GET /openapi.yaml tells what there is.")
    case .contentTooLarge: self.init(.contentTooLarge, "The body is too large.")
    case .unsupportedMediaType:
      self.init(.unsupportedMediaType, "Send JSON, as `Content-Type: application/json`.")
    case let status where status.kind == .clientError:
      self.init(.invalidRequest, "The request can't be understood: \(status.reasonPhrase).")
    default:
      self.init(.internalError, "This is not the request's fault; the log has the reason.")
    }
  }
}

extension [any CodingKey] {
  /// The way to a field, as in `account_ids[3]`.
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

/// The stable names of what can go wrong; the OpenAPI document lists the same.
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

  var status: HTTPResponse.Status {
    switch self {
    case .invalidRequest: .badRequest
    case .unauthorized, .wrongSecret: .unauthorized
    case .forbidden: .forbidden
    case .notFound, .unknownProduct, .unknownOrder, .unknownAccount, .unknownSubmission,
      .unknownTransaction, .unknownOriginalTransaction, .unknownGrant, .unknownEvent,
      .unknownReport:
      .notFound
    case .methodNotAllowed: .methodNotAllowed
    case .ambiguous, .notTheOwner, .revoked, .accountErased, .accountMerged, .grantDiffers,
      .webhooksOff:
      .conflict
    case .cursorExpired, .cursorUnknown: .gone
    case .contentTooLarge: .contentTooLarge
    case .unsupportedMediaType: .unsupportedMediaType
    case .receiptRejected, .wrongBundleID, .invalidSignature: .unprocessableContent
    case .internalError: .internalServerError
    case .unavailable: .serviceUnavailable
    }
  }

  /// What the code means, the same for every occurrence.
  package var title: String {
    switch self {
    case .invalidRequest: "The request is not valid"
    case .unauthorized: "A valid API key is needed"
    case .forbidden: "The API key's role does not suffice"
    case .notFound: "There is nothing at this path"
    case .unknownProduct: "The product is not in the catalogue"
    case .unknownOrder: "There is no such order"
    case .unknownAccount: "The account was never seen"
    case .unknownSubmission: "There is no such submission"
    case .unknownTransaction: "The transaction was never recorded"
    case .unknownOriginalTransaction: "The original transaction was never recorded"
    case .unknownGrant: "There is no such grant"
    case .unknownEvent: "There is no such event"
    case .unknownReport: "There is no such report"
    case .methodNotAllowed: "The path does not have this method"
    case .ambiguous: "More than one thing goes by this id"
    case .notTheOwner: "The account does not own the transaction"
    case .revoked: "The transaction is revoked"
    case .accountErased: "The account's person was erased"
    case .accountMerged: "The account was merged into another"
    case .grantDiffers: "A grant of this id exists, and is another one"
    case .webhooksOff: "Events are not pushed"
    case .cursorExpired: "The feed can't be read on from there"
    case .cursorUnknown: "Unknown cursor"
    case .contentTooLarge: "The request's body is too large"
    case .unsupportedMediaType: "The request's body is not JSON"
    case .receiptRejected: "The receipt was rejected"
    case .wrongBundleID: "What was submitted is of another app"
    case .invalidSignature: "The signed data can't be trusted"
    case .wrongSecret: "The shared secret is not the app's"
    case .internalError: "Something went wrong here"
    case .unavailable: "Not available now"
    }
  }
}
