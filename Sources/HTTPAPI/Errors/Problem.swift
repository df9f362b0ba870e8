import HTTPTypes
import Hummingbird
import Intake
import JSONText
import LedgerStorage

/// Why a request was not carried out, as `application/problem+json` (RFC 9457) says it.
struct Problem: Error, Sendable {
  let code: ProblemCode
  /// What happened this time, in a sentence for the caller's developer.
  let detail: String
  /// The code's own, but for notifications.
  var status: HTTPResponse.Status
  /// The field, query parameter or part of the path that is at fault.
  var field: String?
  var submission: RejectedSubmission?
  var headers: HTTPFields = [:]

  /// What a rejected submission adds.
  struct RejectedSubmission: Sendable {
    var id: String
    var appleStatus: Int?
    /// For administrators.
    var exchanges: [SubmissionExchange]?
  }

  init(_ code: ProblemCode, _ detail: String, field: String? = nil) {
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
  static func invalid(_ field: String, _ fault: String) -> Problem {
    Problem(.invalidRequest, "`\(field)` \(fault).", field: field)
  }

  static var unauthorized: Problem {
    var problem = Problem(
      .unauthorized, "Send the header field `Authorization: Bearer SECRET` with a configured key.")
    problem.headers[.wwwAuthenticate] = "Bearer"
    return problem
  }

  static func forbidden(needed role: APIKeys.Role) -> Problem {
    Problem(.forbidden, "This needs a key of role \(role.rawValue).")
  }

  static func methodNotAllowed(_ allowed: Set<HTTPRequest.Method>) -> Problem {
    let list = allowed.map(\.rawValue).sorted().joined(separator: ", ")
    var problem = Problem(.methodNotAllowed, "This path has \(list).")
    problem.headers[.allow] = list
    return problem
  }

  static func contentTooLarge(limit: Int) -> Problem {
    Problem(.contentTooLarge, "The body may have up to \(limit) bytes.")
  }

  /// How long a caller should wait before trying again, in seconds: databases that restart or fail
  /// over take a few.
  static let retryAfterSeconds = 2

  static func unavailable(_ detail: String) -> Problem {
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
  init(_ problem: Problem) {
    self.init(
      problem, status: problem.status, mediaType: "application/problem+json",
      headers: problem.headers)
  }
}
