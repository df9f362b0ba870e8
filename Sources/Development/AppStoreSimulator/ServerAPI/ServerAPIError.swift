import AppStore
import Crypto
import Foundation
import JSONText
import Subscriptions

/// An error of the App Store Server API, with Apple's code and message.
///
/// https://developer.apple.com/documentation/appstoreserverapi/error-codes
struct ServerAPIError: Error, Hashable, Sendable {
  let code: Int64
  let message: String

  var httpStatus: Int { Int(code / 10_000) }

  var answer: SimulatedAnswer {
    var answer = SimulatedAnswer(["errorCode": .integer(code), "errorMessage": .string(message)])
    answer.httpStatus = httpStatus
    return answer
  }

  static let badRequest = Self(code: 4_000_000, message: "Bad request.")
  static let invalidRevision = Self(code: 4_000_005, message: "Invalid request revision.")
  static let invalidTransactionID = Self(code: 4_000_006, message: "Invalid transaction id.")
  static let invalidOriginalTransactionID = Self(
    code: 4_000_008, message: "Invalid original transaction id.")
  static let invalidExtendByDays = Self(code: 4_000_009, message: "Invalid extend by days value.")
  static let invalidExtendReasonCode = Self(
    code: 4_000_010, message: "Invalid extend reason code.")
  static let invalidRequestIdentifier = Self(
    code: 4_000_011, message: "Invalid request identifier.")
  static let startDateTooFarInPast = Self(
    code: 4_000_012, message: "The start date is too far in the past.")
  static let startDateAfterEndDate = Self(
    code: 4_000_013, message: "Invalid start date or end date.")
  static let invalidPaginationToken = Self(
    code: 4_000_014, message: "Invalid pagination token.")
  static let invalidStartDate = Self(code: 4_000_015, message: "Invalid start date.")
  static let invalidEndDate = Self(code: 4_000_016, message: "Invalid end date.")
  static let paginationTokenExpired = Self(
    code: 4_000_017, message: "The pagination token is expired.")
  static let invalidNotificationType = Self(
    code: 4_000_018, message: "Invalid notification type or subtype.")
  static let multipleFilters = Self(
    code: 4_000_019, message: "Invalid request. Multiple filters supplied.")
  static let invalidSort = Self(code: 4_000_021, message: "Invalid sort value.")
  static let invalidProductType = Self(code: 4_000_022, message: "Invalid product type.")
  static let invalidProductID = Self(code: 4_000_023, message: "Invalid product id.")
  static let invalidGroup = Self(
    code: 4_000_024, message: "Invalid subscription group identifier.")
  static let invalidOwnershipType = Self(
    code: 4_000_026, message: "Invalid in-app ownership type.")
  static let invalidRevoked = Self(code: 4_000_030, message: "Invalid revoked value.")
  static let invalidStatus = Self(code: 4_000_031, message: "Invalid status value.")
  static let invalidCustomerConsented = Self(
    code: 4_000_035, message: "Invalid request. The customer consented field must be true.")
  static let invalidDeliveryStatus = Self(
    code: 4_000_036, message: "Invalid request. The delivery status field is invalid.")
  static let invalidSampleContentProvided = Self(
    code: 4_000_041, message: "Invalid request. The sample content provided field is invalid.")
  static let invalidAccountToken = Self(
    code: 4_000_183,
    message: "Invalid request. The app account token field must be a valid UUID.")
  static let familyNotSupported = Self(
    code: 4_000_185,
    message: "Invalid request. Family Sharing transactions aren't supported by this endpoint.")
  static let notOriginalTransactionID = Self(
    code: 4_000_187,
    message:
      "Invalid request. The transaction ID provided is not an original transaction ID.")
  static let extensionIneligible = Self(
    code: 4_030_004, message: "Forbidden - subscription state ineligible for extension.")
  static let maxExtensions = Self(
    code: 4_030_005, message: "Forbidden - subscription has reached maximum extension count.")
  static let familySharedExtensionIneligible = Self(
    code: 4_030_007,
    message: "Subscriptions that users obtain through Family Sharing can't get a renewal date "
      + "extension directly.")
  static let accountNotFound = Self(code: 4_040_001, message: "Account not found.")
  static let accountNotFoundRetryable = Self(
    code: 4_040_002, message: "Account not found. Please try again.")
  static let appNotFoundRetryable = Self(
    code: 4_040_004, message: "App not found. Please try again.")
  static let originalTransactionIDNotFound = Self(
    code: 4_040_005, message: "Original transaction id not found.")
  static let originalTransactionIDNotFoundRetryable = Self(
    code: 4_040_006, message: "Original transaction id not found. Please try again.")
  static let noStorefronts = Self(
    code: 4_000_027, message: "Invalid request. Empty storefront country code list provided.")
  static let invalidStorefront = Self(
    code: 4_000_028, message: "Invalid request. A storefront country code was invalid.")
  static let statusRequestNotFound = Self(
    code: 4_040_009,
    message: "Either there is no request with this identifier or it is for another product.")
  static let noNotificationURL = Self(
    code: 4_040_007, message: "No App Store Server Notification URL found for provided app.")
  static let testNotFound = Self(
    code: 4_040_008,
    message: "Either the test notification token is expired or the notification and status are "
      + "not yet available.")
  static let transactionIDNotFound = Self(
    code: 4_040_010, message: "Transaction id not found.")
  static let rateLimitExceeded = Self(code: 4_290_000, message: "Rate limit exceeded.")
  static let internalError = Self(code: 5_000_000, message: "An unknown error occurred.")
  static let internalErrorRetryable = Self(
    code: 5_000_001, message: "An unknown error occurred. Please try again.")
}

extension ServerAPIError {
  /// The errors available as faults: those that say nothing about the request, an expired page
  /// token, and an app without a notification URL.
  static let ofFaults = [
    accountNotFoundRetryable, appNotFoundRetryable, originalTransactionIDNotFoundRetryable,
    internalError, internalErrorRetryable, paginationTokenExpired, noNotificationURL,
  ]
}

/// The only key for the simulated App Store Server API, valid for all its apps.
package struct SimulatedAPIKey: Sendable {
  /// The `iss` claim.
  package let issuerID: String
  /// The `kid` header.
  package let keyID: String
  /// The contents of the `.p8` file.
  package let privateKeyPEM: String

  private let publicKey: P256.Signing.PublicKey

  package init() {
    let key = P256.Signing.PrivateKey()
    issuerID = UUID().text
    keyID = String((0..<Self.keyIDLength).compactMap { _ in Self.keyIDCharacters.randomElement() })
    privateKeyPEM = key.pemRepresentation + "\n"
    publicKey = key.publicKey
  }

  private static let keyIDLength = 10
  private static let keyIDCharacters = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"

  // MARK: Checking

  /// App Store Server API documentation, "Generating JSON Web Tokens for API requests".
  private static let audience = "appstoreconnect-v1"
  private static let longestLife = Duration.minutes(60)

  /// The bundle ID of a token; nil if Apple would respond 401.
  ///
  /// The token must be valid by one of the clocks, because clients may use real or simulated time.
  func bundleID(in token: String, at clocks: [Timestamp]) -> String? {
    let parts = token.split(separator: ".", omittingEmptySubsequences: false)
    guard parts.count == 3, let header = Self.json(parts[0]), let claims = Self.json(parts[1]),
      header["alg"] == "ES256", header["kid"]?.string == keyID, header["typ"] == "JWT",
      let bytes = Base64URL.bytes(parts[2]),
      let signature = try? P256.Signing.ECDSASignature(rawRepresentation: bytes),
      publicKey.isValidSignature(signature, for: Data("\(parts[0]).\(parts[1])".utf8)),
      claims["iss"]?.string == issuerID, claims["aud"]?.string == Self.audience,
      let issued = claims["iat"]?.integer, let expires = claims["exp"]?.integer,
      clocks.contains(where: { Self.isInTime($0, issued: issued, expires: expires) })
    else { return nil }
    return claims["bid"]?.string
  }

  private static func json(_ part: Substring) -> JSONValue? {
    Base64URL.bytes(part).flatMap { try? JSONValue(parsing: $0) }
  }

  private static func isInTime(_ now: Timestamp, issued: Int64, expires: Int64) -> Bool {
    guard let issuedAt = moment(issued), let expiresAt = moment(expires) else { return false }
    return issuedAt <= now + .clockTolerance && now < expiresAt && issuedAt < expiresAt
      && expiresAt - issuedAt <= longestLife
  }

  private static func moment(_ seconds: Int64) -> Timestamp? {
    let (milliseconds, overflows) = seconds.multipliedReportingOverflow(by: 1000)
    let moment = Timestamp(milliseconds: milliseconds)
    return !overflows && Timestamp.writable.contains(moment) ? moment : nil
  }
}

/// Counts requests by endpoint and hour.
struct RateLimits: Sendable {
  private struct Key: Hashable, Sendable {
    let endpoint: SimulatedEndpoint
    let app: Int
    let environment: Environment
  }

  private struct Window: Sendable {
    var end: Timestamp
    var count: Int
  }

  /// Scales Apple's limits; nil: unlimited.
  var scale: Double?
  private var windows: [Key: Window] = [:]

  private static let window = Duration.hours(1)
  private static let secondsOfWindow = 3_600
  /// The sandbox accepts a tenth.
  private static let sandboxShare = 0.1

  init(scale: Double?) {
    self.scale = scale
  }

  /// Counts a request; if the limit is exceeded, returns the end of the hour.
  mutating func take(
    _ endpoint: SimulatedEndpoint, app: Int, environment: Environment, at now: Timestamp
  ) -> Timestamp? {
    guard let scale else { return nil }
    let share = environment == .sandbox ? scale * Self.sandboxShare : scale
    let most = Int(Double(endpoint.requestsPerSecond * Self.secondsOfWindow) * share)
    let key = Key(endpoint: endpoint, app: app, environment: environment)
    var window = windows[key] ?? Window(end: now + Self.window, count: 0)
    if window.end <= now { window = Window(end: now + Self.window, count: 0) }
    defer { windows[key] = window }
    guard window.count < most else { return window.end }
    window.count += 1
    return nil
  }
}
