import Foundation
import JSONText
package import Logging
package import Subscriptions

/// A client for the [App Store Server
/// API](https://developer.apple.com/documentation/appstoreserverapi); see <doc:AskingTheServerAPI>.
///
/// ```swift
/// let api = AppStoreServerAPI(
///   transport: transport, key: key, verifier: verifier, timeout: .seconds(30), logger: logger,
///   now: now)
/// let response = try await api.transactionInfo(id, of: "com.example.app")
/// let transaction = response.content.value  // nil if its signature was refused
/// for try await page in api.transactionHistoryPages(of: id.rawValue, in: "com.example.app") {
///   evidence += page.content.evidence
/// }
/// ```
///
/// Its only state are bearer tokens and request counts. Signed parts of responses are verified, and
/// each carries its own result. Calls throw ``AppStoreServerAPIError``, or `CancellationError` if
/// the task is cancelled.
///
/// If a call's environment is nil, production is asked first, then the sandbox if production does
/// not know the ID. Where a customer's ID is expected, the ID of any of the customer's
/// transactions, original transactions or app transactions is accepted.
package struct AppStoreServerAPI: Sendable {
  /// How long a request may wait for its turn by default; longer waits are left to the caller.
  package static let patience: Duration = .seconds(10)

  /// Far above a page of twenty notifications with all optional parts.
  static let answerLimitBytes = 8 * 1024 * 1024

  /// Attempts per request: repeated with a new token, and after a short 429.
  private static let attemptLimit = 4

  let verifier: SignedDataVerifier
  let now: @Sendable () -> Timestamp
  private let addresses: AppleURLs
  private let tokens: BearerTokens
  private let limits: ServerAPIRateLimits
  private let timeout: Duration
  private let patience: Duration
  private let requests: AppleRequests
  private let retries = CounterTable(
    "tenure_apple_retries_total", by: "reason", of: [["new_token"], ["rate_limited"]])
  /// Requests that are not sent because their turn would come too late.
  private let heldBack = CounterTable(
    "tenure_apple_held_back_total", by: "environment",
    of: Environment.allCases.map { [$0.rawValue] })

  package init(
    transport: any AppStoreTransport, addresses: AppleURLs = .serverAPI, key: ServerAPIKey,
    verifier: SignedDataVerifier, timeout: Duration, patience: Duration = Self.patience,
    logger: Logger, now: @escaping @Sendable () -> Timestamp,
    sleep: @escaping @Sendable (Duration) async throws -> Void = { try await Task.sleep(for: $0) }
  ) {
    requests = AppleRequests(
      transport: transport, metrics: AppleMetrics(api: "server_api"), logger: logger,
      message: "Asked the App Store Server API")
    self.addresses = addresses
    tokens = BearerTokens(key: key)
    limits = ServerAPIRateLimits(now: now, sleep: sleep)
    (self.verifier, self.timeout, self.patience, self.now) = (verifier, timeout, patience, now)
  }

  func answer<Fields>(
    to call: ServerAPICall, in environment: Environment?, as body: JSONPayload<Fields>.Type
  ) async throws -> ServerAPIAnswer<JSONPayload<Fields>> {
    let (spoken, response) = try await route(call, in: environment)
    let json: JSONValue
    do {
      json = try JSONValue(parsing: response.body)
    } catch {
      // The response was replaced or damaged on its way.
      throw unexpected(call, spoken, response, "the JSON \(error)", isRetryable: true)
    }
    let (bundleID, name) = (json["bundleId"]?.string, json["environment"]?.string)
    let other: String? =
      if let bundleID, bundleID != call.bundleID {
        "app"
      } else if let name, SignedEnvironment(rawValue: name).environment != spoken {
        "environment"
      } else { nil }
    if let other {
      throw unexpected(
        call, spoken, nil, "it is for a different \(other) than the request", isRetryable: false)
    }
    do {
      return ServerAPIAnswer(environment: spoken, content: try JSONPayload(json: json))
    } catch {
      throw unexpected(call, spoken, response, "it \(error)", isRetryable: false)
    }
  }

  func text(
    _ field: KeyPath<SingleTextFields, JSONField<String>>, from call: ServerAPICall,
    in environment: Environment?, isRetryable: Bool = false
  ) async throws -> ServerAPIAnswer<String> {
    let answer = try await answer(to: call, in: environment, as: SingleTextResponse.self)
    guard let text = answer.content[dynamicMember: field] else {
      throw unexpected(
        call, answer.environment, nil, "it has no \(SingleTextFields.schema.name(field))",
        isRetryable: isRetryable)
    }
    return await answer.map { _ in text }
  }

  func acknowledgement(
    of call: ServerAPICall, in environment: Environment?
  ) async throws -> ServerAPIAnswer<Void> {
    let (spoken, _) = try await route(call, in: environment)
    return ServerAPIAnswer(environment: spoken, content: ())
  }

  func unexpected(
    _ call: ServerAPICall, _ environment: Environment?, _ response: AppStoreResponse?,
    _ message: String, isRetryable: Bool
  ) -> AppStoreServerAPIError {
    AppStoreServerAPIError(
      .unexpectedAnswer, call.endpoint, environment, httpStatus: response?.status,
      message: message, isRetryable: isRetryable)
  }

  // MARK: Sending

  private func route(
    _ call: ServerAPICall, in environment: Environment?
  ) async throws -> (Environment, AppStoreResponse) {
    if let environment { return (environment, try await send(call, to: environment)) }
    do {
      return (.production, try await send(call, to: .production))
    } catch let production as AppStoreServerAPIError where production.mayBeElsewhere {
      do {
        return (.sandbox, try await send(call, to: .sandbox))
      } catch let sandbox as AppStoreServerAPIError {
        throw production.afterSandbox(sandbox)
      }
    }
  }

  private func send(
    _ call: ServerAPICall, to environment: Environment
  ) async throws -> AppStoreResponse {
    let key = ServerAPIRateLimits.Key(
      endpoint: call.endpoint, environment: environment, bundleID: call.bundleID)
    let deadline = now() + patience
    var hasNewToken = false
    var attempt = 1
    while true {
      if let notBefore = try await limits.turn(key, deadline: deadline) {
        heldBack.increment(environment.rawValue)
        throw AppStoreServerAPIError(
          .rateLimited, call.endpoint, environment, message: "no request was sent",
          notBefore: notBefore)
      }
      let token = try tokens.token(of: call.bundleID, now: now())
      let response = try await ask(call, environment, token: token)
      guard !(200...299).contains(response.status) else { return response }
      var error = AppStoreServerAPIError(response, call.endpoint, environment, now: now())
      switch error.kind {
      case .unauthorized where !hasNewToken && attempt < Self.attemptLimit:
        retries.increment("new_token")
        tokens.discard(token, of: call.bundleID)
        hasNewToken = true
      case .rateLimited:
        let notBefore = error.notBefore ?? now() + ServerAPIRateLimits.closureWithoutWord
        error.notBefore = notBefore
        limits.close(key, until: notBefore)
        guard notBefore <= deadline, attempt < Self.attemptLimit else { throw error }
        retries.increment("rate_limited")
      default: throw error
      }
      attempt += 1
    }
  }

  private func ask(
    _ call: ServerAPICall, _ environment: Environment, token: String
  ) async throws -> AppStoreResponse {
    var headers = [
      HTTPHeader("Authorization", "Bearer \(token)"), HTTPHeader("Accept", "application/json"),
    ]
    if call.body != nil { headers.append(HTTPHeader("Content-Type", "application/json")) }
    let request = AppStoreRequest(
      method: call.method, url: addresses[environment] + call.target, headers: headers,
      body: call.body?.bytes ?? [], timeout: timeout)
    switch await requests.send(request, call.endpoint.rawValue, to: environment).outcome {
    case .success(let response):
      guard response.body.count <= Self.answerLimitBytes else {
        throw unexpected(
          call, environment, response,
          "it has \(response.body.count) bytes, more than \(Self.answerLimitBytes)",
          isRetryable: false)
      }
      return response
    case .failure(let error as AppStoreTransportError):
      throw AppStoreServerAPIError(
        error.kind == .invalidURL ? .misconfigured : .unreachable, call.endpoint, environment,
        httpStatus: error.partial?.status, message: error.clause)
    case .failure(let error): throw error
    }
  }
}

extension AppStoreServerAPIError {
  /// Whether the sandbox may know what production does not, which responds 401 for an app that was
  /// never released; App Review and TestFlight then buy in the sandbox.
  fileprivate var mayBeElsewhere: Bool {
    kind == .unauthorized || code.map(ServerAPIErrorCode.perhapsElsewhere.contains) == true
  }

  fileprivate func afterSandbox(_ sandbox: AppStoreServerAPIError) -> AppStoreServerAPIError {
    guard sandbox.mayBeElsewhere else { return sandbox }
    guard kind == .notFound, sandbox.kind == .notFound else {
      return kind == .unauthorized ? self : sandbox
    }
    var both = self
    both.environment = nil
    return both
  }
}

extension AppStoreTransportError {
  /// The description without its full stop, for use within a sentence.
  fileprivate var clause: String {
    let words = description.prefix(300)
    return String(words.hasSuffix(".") ? words.dropLast() : words)
  }
}

/// A request, before its environment and token are chosen.
struct ServerAPICall: Sendable {
  let endpoint: ServerAPIEndpoint
  let bundleID: String
  let method: String
  /// Relative to the environment's address, percent-encoded.
  private let path: String
  /// Unencoded, in the order in which they are sent.
  private let query: [(name: String, value: String)]
  let body: JSONValue?

  /// Appends external identifiers to the path; fails if one could change the request's target.
  init(
    _ endpoint: ServerAPIEndpoint, _ bundleID: String, _ method: String, _ path: String,
    _ identifiers: String..., query: [(name: String, value: String)] = [], body: JSONValue? = nil
  ) throws {
    self.endpoint = endpoint
    self.bundleID = bundleID
    self.method = method
    self.query = query
    self.body = body
    self.path = try identifiers.reduce(path) { path, identifier in
      guard !identifier.isEmpty, identifier.utf8.count <= Self.longestIdentifier,
        identifier.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }),
        !identifier.allSatisfy({ $0 == "." })
      else {
        throw AppStoreServerAPIError(
          .invalidRequest, endpoint, nil,
          message: "an identifier is empty, too long, or contains invalid characters")
      }
      return path + "/" + Self.escaped(identifier)
    }
  }

  var target: String {
    let items = query.map { "\(Self.escaped($0.name))=\(Self.escaped($0.value))" }
    return items.isEmpty ? path : path + "?" + items.joined(separator: "&")
  }

  /// The longest identifier sent: Apple's have twenty digits, product IDs a hundred characters.
  private static let longestIdentifier = 255

  /// Encodes everything except RFC 3986's unreserved characters.
  private static func escaped(_ text: String) -> String {
    text.addingPercentEncoding(withAllowedCharacters: unreserved) ?? ""
  }

  private static let unreserved = CharacterSet(
    charactersIn: "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
}

package enum ServerAPIEndpoint: String, CaseIterable, Sendable {
  case transactionInfo = "Get Transaction Info"
  case transactionHistory = "Get Transaction History"
  case subscriptionStatuses = "Get All Subscription Statuses"
  case appTransactionInfo = "Get App Transaction Info"
  case consumptionInformation = "Send Consumption Information"
  case notificationHistory = "Get Notification History"
  case renewalDateExtension = "Extend a Subscription Renewal Date"
  case appAccountToken = "Set App Account Token"
  case orderLookup = "Look Up Order ID"
  case refundHistory = "Get Refund History"
  case massExtension = "Extend Subscription Renewal Dates for All Active Subscribers"
  case massExtensionStatus = "Get Status of Subscription Renewal Date Extensions"
  case testNotification = "Request a Test Notification"
  case testNotificationStatus = "Get Test Notification Status"

  /// An app's hourly limit: a limit per second, enforced by the hour, and a tenth of it in the
  /// sandbox (https://developer.apple.com/documentation/appstoreserverapi/identifying-rate-limits).
  func requestsPerHour(in environment: Environment) -> Int {
    requestsPerSecond * (environment == .production ? 3600 : 360)
  }

  private var requestsPerSecond: Int {
    switch self {
    case .transactionInfo, .transactionHistory, .subscriptionStatuses, .appTransactionInfo,
      .consumptionInformation, .notificationHistory:
      50
    case .renewalDateExtension, .appAccountToken: 20
    case .orderLookup, .refundHistory: 10
    case .massExtension, .massExtensionStatus, .testNotification, .testNotificationStatus: 1
    }
  }
}
