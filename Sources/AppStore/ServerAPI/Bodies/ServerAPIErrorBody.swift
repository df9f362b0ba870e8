package import JSONText

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
