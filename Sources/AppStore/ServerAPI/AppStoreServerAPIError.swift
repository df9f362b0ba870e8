package import Subscriptions

/// The reason why a call failed; it never affects entitlements, not even ``Kind/notFound``.
package struct AppStoreServerAPIError: Error, Hashable, Sendable, CustomStringConvertible {
  package enum Kind: String, Sendable {
    case invalidRequest
    /// Apple has no such item, in this environment or in either.
    case notFound
    /// Apple does not permit the request, such as a third extension.
    case forbidden
    /// Apple does not accept the key, or not for this app.
    case unauthorized
    case rateLimited
    case unavailable
    case unreachable
    /// The response is not as documented, or for another request.
    case unexpectedAnswer
    /// The address does not belong to an App Store Server API.
    case misconfigured
  }

  package var kind: Kind
  package var endpoint: ServerAPIEndpoint
  /// Nil: production, and then the sandbox.
  package var environment: Environment?
  /// Nil without a response.
  package var httpStatus: Int?
  package var code: ServerAPIErrorCode?
  /// Apple's message, or that of the failure, on one line and without contents.
  package var message: String
  package var isRetryable: Bool
  /// A retry before this time is useless.
  package var notBefore: Timestamp?

  init(
    _ kind: Kind, _ endpoint: ServerAPIEndpoint, _ environment: Environment?,
    httpStatus: Int? = nil, code: ServerAPIErrorCode? = nil, message: String,
    isRetryable: Bool? = nil, notBefore: Timestamp? = nil
  ) {
    self.kind = kind
    self.endpoint = endpoint
    self.environment = environment
    self.httpStatus = httpStatus
    self.code = code
    self.message = message
    self.isRetryable = isRetryable ?? [.rateLimited, .unavailable, .unreachable].contains(kind)
    self.notBefore = notBefore
  }

  package var description: String {
    let place = environment.map { "in \($0.rawValue)" } ?? "in either environment"
    let call = "\(endpoint.rawValue) \(place)"
    let status = httpStatus.map { status in
      " (HTTP \(status)" + (code.map { ", code \($0.rawValue)" } ?? "") + ")"
    }
    let words = (message.isEmpty ? "" : ": \(message)") + (status ?? "") + "."
    return switch kind {
    case .invalidRequest: "Apple rejected the request \(call)\(words)"
    case .notFound: "Apple found nothing for \(call)\(words)"
    case .forbidden: "Apple does not allow \(call)\(words)"
    case .unauthorized: "Apple does not accept the key for \(call)\(words)" + Self.keyAdvice
    case .rateLimited:
      "The request limit is reached for \(call)\(words)"
        + (notBefore.map { " Not before \($0)." } ?? "")
    case .unavailable: "Apple is unavailable for \(call)\(words) Try again later."
    case .unreachable: "No response to \(call)\(words) Try again later."
    case .unexpectedAnswer: "Unusable response to \(call)\(words)"
    case .misconfigured:
      "There is no App Store Server API at the address for \(call)\(words)"
        + " Check TENURE_APPSTORE_API_URL and TENURE_APPSTORE_SANDBOX_API_URL."
    }
  }

  /// Apple rejects all production calls for unreleased apps
  /// (https://developer.apple.com/forums/thread/806452).
  private static let keyAdvice =
    " Check TENURE_APPSTORE_ISSUER_ID, TENURE_APPSTORE_KEY_ID and TENURE_APPSTORE_PRIVATE_KEY, "
    + "that the key is an In-App Purchase key of this app's team, and this machine's clock; "
    + "production also rejects apps that were never released."

  private static let messageLimit = 300

  init(
    _ response: AppStoreResponse, _ endpoint: ServerAPIEndpoint, _ environment: Environment,
    now: Timestamp
  ) {
    let body = try? ServerAPIErrorBody(parsing: response.body)
    let code = body?.errorCode
    let words = (body?.errorMessage ?? "").unicodeScalars.split {
      $0.properties.isWhitespace || $0.properties.generalCategory == .control
    }
    var message = words.map { String($0) }.joined(separator: " ").prefix(Self.messageLimit)
    if message.hasSuffix(".") { message = message.dropLast() }
    if response.status == 401, let words = Self.clockFault(response.header("Date"), now: now) {
      message = Substring(words)
    }
    self.init(
      Kind(status: response.status, code: code), endpoint, environment,
      httpStatus: response.status, code: code, message: String(message),
      notBefore: RetryAfter.moment(response.header("Retry-After"), now: now))
  }

  /// Tokens expire by Apple's clock, so a clock difference is the likeliest reason for a 401.
  private static func clockFault(_ date: String?, now: Timestamp) -> String? {
    guard let date, let theirs = Timestamp(httpDate: date), !(theirs - now).isWithin(.minutes(1))
    else { return nil }
    let seconds = (theirs - now).inMilliseconds / 1000
    return "this machine's clock is \(abs(seconds)) seconds \(seconds < 0 ? "ahead" : "behind")"
  }
}

extension AppStoreServerAPIError.Kind {
  init(status: Int, code: ServerAPIErrorCode?) {
    self =
      switch (status, code) {
      case (_, .rateLimitExceeded?), (429, _): .rateLimited
      case (_, let code?) where ServerAPIErrorCode.retryable.contains(code): .unavailable
      case (500...599, _), (408, _): .unavailable
      case (401, _): .unauthorized
      case (403, _): .forbidden
      case (404, .some): .notFound
      case (400, _), (405...499, .some): .invalidRequest
      default: .misconfigured
      }
  }
}

/// The body of an error response, except of a 401
/// (https://developer.apple.com/documentation/appstoreserverapi/error-codes).
package typealias ServerAPIErrorBody = JSONPayload<ServerAPIErrorBodyFields>

package struct ServerAPIErrorBodyFields: JSONFields {
  package let errorCode = JSONField<ServerAPIErrorCode>("errorCode")
  package let errorMessage = JSONField<String>("errorMessage")
  package static let schema = JSONSchema(Self())
}

/// Apple's `errorCode`: the HTTP status and four digits; those that matter have names.
package struct ServerAPIErrorCode: OpenEnumeration {
  package var rawValue: Int64
  package init(rawValue: Int64) { self.rawValue = rawValue }

  /// The revision belongs to another query.
  package static let invalidRequestRevision = Self(rawValue: 4_000_005)
  package static let invalidTransactionID = Self(rawValue: 4_000_006)
  package static let paginationTokenExpired = Self(rawValue: 4_000_017)
  package static let accountNotFound = Self(rawValue: 4_040_001)
  package static let accountNotFoundRetryable = Self(rawValue: 4_040_002)
  package static let appNotFoundRetryable = Self(rawValue: 4_040_004)
  package static let originalTransactionIDNotFound = Self(rawValue: 4_040_005)
  package static let originalTransactionIDNotFoundRetryable = Self(rawValue: 4_040_006)
  package static let serverNotificationURLNotFound = Self(rawValue: 4_040_007)
  /// Also returned if it has not been sent yet.
  package static let testNotificationNotFound = Self(rawValue: 4_040_008)
  package static let transactionIDNotFound = Self(rawValue: 4_040_010)
  package static let rateLimitExceeded = Self(rawValue: 4_290_000)
  package static let generalInternalRetryable = Self(rawValue: 5_000_001)

  /// Apple documents these with "but you can try again".
  static let retryable: Set<ServerAPIErrorCode> = [
    .accountNotFoundRetryable, .appNotFoundRetryable, .originalTransactionIDNotFoundRetryable,
    .rateLimitExceeded, .generalInternalRetryable,
  ]

  /// Returned for an ID of the other environment.
  static let perhapsElsewhere: Set<ServerAPIErrorCode> = [
    .accountNotFound, .originalTransactionIDNotFound, .transactionIDNotFound,
  ]
}
