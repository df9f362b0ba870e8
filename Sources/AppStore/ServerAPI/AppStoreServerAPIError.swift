package import JSONText
package import Subscriptions

/// Why a call of the App Store Server API has no answer.
///
/// Never a statement about what somebody may use, ``Kind/notFound`` included.
package struct AppStoreServerAPIError: Error, Hashable, Sendable, CustomStringConvertible {
  /// What is to be done about it.
  package enum Kind: String, Sendable {
    /// Apple finds the request wrong.
    case invalidRequest
    /// Apple knows no such thing, in this environment or in either.
    case notFound
    /// Apple does not allow it: a third extension, say.
    case forbidden
    /// Apple does not accept the key, or not for this app.
    case unauthorized
    /// An hour's requests are used up.
    case rateLimited
    /// Apple's own trouble.
    case unavailable
    /// No whole answer came.
    case unreachable
    /// The answer is none that the documentation describes, or about something else.
    case unexpectedAnswer
    /// Something that is no App Store Server API answers at the address.
    case misconfigured
  }

  package var kind: Kind
  package var endpoint: ServerAPIEndpoint
  /// Nil: production was asked, and then the sandbox.
  package var environment: Environment?
  /// Nil where no answer came.
  package var httpStatus: Int?
  /// Nil where Apple named none.
  package var code: ServerAPIErrorCode?
  /// Apple's words, or those of what failed: one line without contents.
  package var message: String
  /// Whether asking the same again may help.
  package var isRetryable: Bool
  /// The moment before which asking again is no use.
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

  /// One sentence, or two where there is something to be done.
  package var description: String {
    let place = environment.map { "in the environment \($0.rawValue)" } ?? "in either environment"
    let call = "\(endpoint.rawValue) \(place)"
    let status = httpStatus.map { status in
      " (HTTP \(status)" + (code.map { ", code \($0.rawValue)" } ?? "") + ")"
    }
    let words = (message.isEmpty ? "" : ": \(message)") + (status ?? "") + "."
    switch kind {
    case .invalidRequest: return "Apple finds the request wrong, \(call)\(words)"
    case .notFound: return "Apple does not know it, \(call)\(words)"
    case .forbidden: return "Apple does not allow it, \(call)\(words)"
    case .unauthorized: return "Apple does not accept the key, \(call)\(words)" + Self.keyAdvice
    case .rateLimited:
      let moment = notBefore.map { " Not before \($0)." } ?? ""
      return "The limit of requests is reached, \(call)\(words)\(moment)"
    case .unavailable: return "Apple is in trouble, \(call)\(words) Try again later."
    case .unreachable: return "There is no answer to \(call)\(words) Try again later."
    case .unexpectedAnswer: return "The answer is not to be used, \(call)\(words)"
    case .misconfigured:
      return "No App Store Server API answers at the address, \(call)\(words)"
        + " Check TENURE_APPSTORE_API_URL and TENURE_APPSTORE_SANDBOX_API_URL."
    }
  }

  /// Apple refuses every call to production for an app that has not been released
  /// (https://developer.apple.com/forums/thread/806452).
  private static let keyAdvice =
    " Check TENURE_APPSTORE_ISSUER_ID, TENURE_APPSTORE_KEY_ID and TENURE_APPSTORE_PRIVATE_KEY, "
    + "that the key is one for in-app purchases of this app's team, and this machine's clock; "
    + "production also refuses apps that were never released."
}

extension AppStoreServerAPIError {
  /// How much of Apple's own words is told.
  private static let messageLimit = 300

  /// Reads an answer that is none of 200 to 299.
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

  /// A token is good by Apple's clock: one that differs is the likeliest reason of a refusal.
  private static func clockFault(_ date: String?, now: Timestamp) -> String? {
    guard let date, let theirs = Timestamp(httpDate: date), !(theirs - now).isWithin(.minutes(1))
    else { return nil }
    let seconds = (theirs - now).inMilliseconds / 1000
    return "this machine's clock is \(abs(seconds)) seconds \(seconds < 0 ? "ahead" : "behind")"
  }
}

extension AppStoreServerAPIError.Kind {
  /// What an answer means that is none of 200 to 299.
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

/// What Apple says where it answers no.
///
/// https://developer.apple.com/documentation/appstoreserverapi/error-codes. A 401 has no such body.
package struct ServerAPIErrorBody: JSONPayload {
  package var errorCode: ServerAPIErrorCode?
  package var errorMessage: String?
  package var unknownFields: [JSONValue.Member] = []

  package init() {}

  package static let fields = JSONFields<Self>([
    JSONField("errorCode", \.errorCode),
    JSONField("errorMessage", \.errorMessage),
  ])
}

/// Apple's `errorCode`: the HTTP status, and four digits more.
///
/// Those that somebody may want to act on have names; the others are kept as they come.
package struct ServerAPIErrorCode: OpenEnumeration {
  package var rawValue: Int64
  package init(rawValue: Int64) { self.rawValue = rawValue }

  /// The revision is of another query.
  package static let invalidRequestRevision = ServerAPIErrorCode(rawValue: 4_000_005)
  package static let invalidTransactionID = ServerAPIErrorCode(rawValue: 4_000_006)
  package static let paginationTokenExpired = ServerAPIErrorCode(rawValue: 4_000_017)
  package static let familyTransactionNotSupported = ServerAPIErrorCode(rawValue: 4_000_185)
  package static let transactionIDIsNotOriginal = ServerAPIErrorCode(rawValue: 4_000_187)
  package static let subscriptionExtensionIneligible = ServerAPIErrorCode(rawValue: 4_030_004)
  package static let subscriptionMaxExtension = ServerAPIErrorCode(rawValue: 4_030_005)
  package static let accountNotFound = ServerAPIErrorCode(rawValue: 4_040_001)
  package static let accountNotFoundRetryable = ServerAPIErrorCode(rawValue: 4_040_002)
  package static let appNotFound = ServerAPIErrorCode(rawValue: 4_040_003)
  package static let appNotFoundRetryable = ServerAPIErrorCode(rawValue: 4_040_004)
  package static let originalTransactionIDNotFound = ServerAPIErrorCode(rawValue: 4_040_005)
  package static let originalTransactionIDNotFoundRetryable = ServerAPIErrorCode(
    rawValue: 4_040_006)
  package static let serverNotificationURLNotFound = ServerAPIErrorCode(rawValue: 4_040_007)
  /// Also: not sent yet.
  package static let testNotificationNotFound = ServerAPIErrorCode(rawValue: 4_040_008)
  package static let transactionIDNotFound = ServerAPIErrorCode(rawValue: 4_040_010)
  package static let appTransactionDoesNotExist = ServerAPIErrorCode(rawValue: 4_040_019)
  package static let rateLimitExceeded = ServerAPIErrorCode(rawValue: 4_290_000)
  package static let generalInternal = ServerAPIErrorCode(rawValue: 5_000_000)
  package static let generalInternalRetryable = ServerAPIErrorCode(rawValue: 5_000_001)

  /// Apple's "but you can try again".
  static let retryable: Set<ServerAPIErrorCode> = [
    .accountNotFoundRetryable, .appNotFoundRetryable, .originalTransactionIDNotFoundRetryable,
    .rateLimitExceeded, .generalInternalRetryable,
  ]

  /// What an id of the other environment is answered with.
  static let perhapsElsewhere: Set<ServerAPIErrorCode> = [
    .accountNotFound, .originalTransactionIDNotFound, .transactionIDNotFound,
  ]
}
