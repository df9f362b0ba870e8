package import CoreMetrics
import Foundation
import JSONText
package import Logging
package import Subscriptions

/// Asks Apple by way of the App Store Server API.
///
/// https://developer.apple.com/documentation/appstoreserverapi. It keeps nothing but its bearer
/// tokens and its count of requests. Whatever of an answer is signed is verified; a part that is
/// refused stands beside the others with its reason. A call without an answer throws
/// ``AppStoreServerAPIError``, and `CancellationError` when the task is cancelled.
///
/// Every call names the app, by its bundle id. Where its environment is nil, production is asked,
/// and the sandbox if the id is not known there. An id that is said to be a customer's can be that
/// of any of the customer's transactions, original transactions, or downloads of the app.
package struct AppStoreServerAPI: Sendable {
  /// How long a request may wait for its turn here; a longer wait is the caller's.
  package static let patience: Duration = .seconds(10)

  /// Far above twenty notifications with everything that may be in them.
  static let answerLimitBytes = 8 * 1024 * 1024

  /// How often one request is sent: again with a new token, and again after a short 429.
  private static let attemptLimit = 4

  let verifier: SignedDataVerifier
  let now: @Sendable () -> Timestamp
  private let transport: any AppStoreTransport
  private let addresses: ServerAPIAddresses
  private let tokens: BearerTokens
  private let limits: ServerAPIRateLimits
  private let timeout: Duration
  private let patience: Duration
  private let logger: Logger
  private let metrics: ServerAPIMetrics

  /// - Parameters:
  ///   - transport: The way to Apple.
  ///   - addresses: Where Apple is.
  ///   - key: With which Apple is asked.
  ///   - verifier: Of what Apple signs.
  ///   - timeout: For each request.
  ///   - patience: How long a request may wait for its turn.
  ///   - logger: Told of every request, without ids.
  ///   - metrics: Where requests are counted.
  ///   - now: The clock.
  ///   - sleep: Waits for a turn; cancellable.
  package init(
    transport: any AppStoreTransport, addresses: ServerAPIAddresses = .apple, key: ServerAPIKey,
    verifier: SignedDataVerifier, timeout: Duration, patience: Duration = Self.patience,
    logger: Logger, metrics: any MetricsFactory = MetricsSystem.factory,
    now: @escaping @Sendable () -> Timestamp,
    sleep: @escaping @Sendable (Duration) async throws -> Void = { try await Task.sleep(for: $0) }
  ) {
    self.transport = transport
    self.addresses = addresses
    tokens = BearerTokens(key: key)
    limits = ServerAPIRateLimits(now: now, sleep: sleep)
    self.verifier = verifier
    self.timeout = timeout
    self.patience = patience
    self.logger = logger
    self.metrics = ServerAPIMetrics(metrics)
    self.now = now
  }

  /// Makes a call whose answer has a body.
  ///
  /// - Parameters:
  ///   - call: The request.
  ///   - environment: Which of Apple's two to ask; nil: production, then the sandbox.
  ///   - body: What the answer is.
  /// - Returns: Which environment spoke, and what it said.
  /// - Throws: ``AppStoreServerAPIError``, or `CancellationError`.
  func answer<Body: JSONPayload>(
    to call: ServerAPICall, in environment: Environment?, as body: Body.Type
  ) async throws -> ServerAPIAnswer<Body> {
    let (spoken, response) = try await route(call, in: environment)
    let json: JSONValue
    do {
      json = try JSONValue(parsing: response.body)
    } catch {
      // Something on the way answered, or broke the answer.
      throw unexpected(call, spoken, response, "as JSON it \(error)", isRetryable: true)
    }
    do {
      return ServerAPIAnswer(environment: spoken, content: try Body(json: json))
    } catch {
      throw unexpected(call, spoken, response, "it \(error)", isRetryable: false)
    }
  }

  /// Makes a call whose answer has none.
  func acknowledgement(
    of call: ServerAPICall, in environment: Environment?
  ) async throws -> ServerAPIAnswer<ServerAPIAcknowledgement> {
    let (spoken, _) = try await route(call, in: environment)
    return ServerAPIAnswer(environment: spoken, content: ServerAPIAcknowledgement())
  }

  /// An answer that is about another app or environment than was asked is none.
  func check(
    _ call: ServerAPICall, _ asked: Environment, bundleID: String?, environment: SignedEnvironment?
  ) throws {
    if let bundleID, bundleID != call.bundleID {
      throw unexpected(
        call, asked, nil, "it is about another app than was asked for", isRetryable: false)
    }
    if let environment, environment.environment != asked {
      throw unexpected(
        call, asked, nil, "it is about another environment than was asked", isRetryable: false)
    }
  }

  func unexpected(
    _ call: ServerAPICall, _ environment: Environment?, _ response: AppStoreResponse?,
    _ message: String, isRetryable: Bool
  ) -> AppStoreServerAPIError {
    AppStoreServerAPIError(
      .unexpectedAnswer, call.endpoint, environment, httpStatus: response?.status,
      message: message, isRetryable: isRetryable)
  }

  // MARK: The way to Apple

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
        metrics.holdsBack(in: environment)
        throw AppStoreServerAPIError(
          .rateLimited, call.endpoint, environment, message: "nothing was sent",
          notBefore: notBefore)
      }
      let token = try tokens.token(of: call.bundleID, now: now())
      let response = try await ask(call, environment, token: token)
      guard !(200...299).contains(response.status) else { return response }
      var error = AppStoreServerAPIError(response, call.endpoint, environment, now: now())
      switch error.kind {
      case .unauthorized where !hasNewToken && attempt < Self.attemptLimit:
        metrics.newTokens.increment()
        tokens.discard(token, of: call.bundleID)
        hasNewToken = true
      case .rateLimited:
        let notBefore = error.notBefore ?? now() + ServerAPIRateLimits.closureWithoutWord
        error.notBefore = notBefore
        limits.close(key, until: notBefore)
        guard notBefore <= deadline, attempt < Self.attemptLimit else { throw error }
        metrics.waits.increment()
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
    let start = ContinuousClock.now
    do {
      let response = try await transport.send(request)
      finished(call, environment, ContinuousClock.now - start, response: response)
      guard response.body.count <= Self.answerLimitBytes else {
        throw unexpected(
          call, environment, response,
          "it has \(response.body.count) bytes, of which there may be \(Self.answerLimitBytes)",
          isRetryable: false)
      }
      return response
    } catch let error as AppStoreTransportError {
      finished(call, environment, ContinuousClock.now - start, fault: error)
      let isMisconfigured = error.kind == .invalidURL
      throw AppStoreServerAPIError(
        isMisconfigured ? .misconfigured : .unreachable, call.endpoint, environment,
        httpStatus: error.partial?.status, message: error.clause)
    }
  }

  /// Counts and logs a request.
  private func finished(
    _ call: ServerAPICall, _ environment: Environment, _ duration: Duration,
    response: AppStoreResponse? = nil, fault: AppStoreTransportError? = nil
  ) {
    let outcome =
      response.map { AppleMetrics.Outcome(httpStatus: $0.status) }
      ?? fault.map { AppleMetrics.Outcome($0) }
    if let outcome {
      metrics.requests.count(call.endpoint.rawValue, in: environment, outcome, after: duration)
    }
    logger.debug(
      "Asked the App Store Server API",
      metadata: [
        "appstore.call": "\(call.endpoint.rawValue)",
        "appstore.endpoint": "\(environment.rawValue)",
        "appstore.http_status": "\(response.map { "\($0.status)" } ?? "none")",
        "appstore.bytes": "\(response?.body.count ?? 0)",
        "appstore.milliseconds": "\(duration.inMilliseconds)",
        "appstore.fault": "\(fault.map { "\($0)" } ?? "none")",
      ])
  }
}

extension AppStoreServerAPIError {
  /// Whether the sandbox may know what production does not.
  ///
  /// Production knows no app that was never released, and says 401 to whoever asks for one; App
  /// Review and TestFlight buy in the sandbox then.
  fileprivate var mayBeElsewhere: Bool {
    kind == .unauthorized || code.map(ServerAPIErrorCode.perhapsElsewhere.contains) == true
  }

  /// What is to be told after the sandbox did not answer either.
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
  /// The description without its full stop, for the middle of a sentence.
  fileprivate var clause: String {
    let words = description.prefix(300)
    return String(words.hasSuffix(".") ? words.dropLast() : words)
  }
}

/// One request, before it is known which environment is asked and with which token.
struct ServerAPICall: Sendable {
  var endpoint: ServerAPIEndpoint
  var bundleID: String
  /// As in `GET`.
  var method: String
  /// Behind the environment's address, escaped.
  var path: String
  /// Names and values, not escaped, in the order in which they are sent.
  var query: [(name: String, value: String)] = []
  var body: JSONValue?

  /// The path and the query, escaped.
  var target: String {
    let items = query.map { "\(Self.escaped($0.name))=\(Self.escaped($0.value))" }
    return items.isEmpty ? path : path + "?" + items.joined(separator: "&")
  }

  /// The longest identifier that is sent: Apple's have some twenty digits, product ids a hundred.
  private static let longestIdentifier = 255

  /// A path whose last parts are identifiers of somebody else's.
  ///
  /// - Throws: ``AppStoreServerAPIError`` for an identifier that would lead elsewhere.
  static func path(_ path: String, _ identifiers: String..., to endpoint: ServerAPIEndpoint) throws
    -> String
  {
    try identifiers.reduce(path) { path, identifier in
      guard !identifier.isEmpty, identifier.utf8.count <= longestIdentifier,
        identifier.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }),
        !identifier.allSatisfy({ $0 == "." })
      else {
        throw AppStoreServerAPIError(
          .invalidRequest, endpoint, nil,
          message: "an identifier is empty, too long, or has characters that no identifier has")
      }
      return path + "/" + escaped(identifier)
    }
  }

  /// Leaves what RFC 3986 calls unreserved, and nothing else.
  private static func escaped(_ text: String) -> String {
    text.addingPercentEncoding(withAllowedCharacters: unreserved) ?? ""
  }

  private static let unreserved = CharacterSet(
    charactersIn: "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
}

/// One call of the App Store Server API, under Apple's name for it.
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

  /// How many requests an app may make in an hour.
  ///
  /// Apple's table names a number per second, enforced by the hour, and a tenth of it in the
  /// sandbox (https://developer.apple.com/documentation/appstoreserverapi/identifying-rate-limits).
  func requestsPerHour(in environment: Environment) -> Int {
    switch environment {
    case .production: requestsPerSecond * 3600
    case .sandbox: requestsPerSecond * 360
    }
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

/// Where the App Store Server API is asked, for each of Apple's two environments.
package struct ServerAPIAddresses: Hashable, Sendable {
  /// Without a slash at the end.
  package let production: String
  /// Without a slash at the end.
  package let sandbox: String

  /// Apple's own, under their names since May 2026.
  package static let apple = ServerAPIAddresses(
    unchecked: "https://api.storekit.apple.com",
    sandbox: "https://api.storekit-sandbox.apple.com")

  /// The longest address, so that a whole URL is one that servers accept.
  private static let longest = 255

  /// Throws `AppStoreSettingError` for an address that is not HTTP, names no host, has more than a
  /// path behind it, or is too long.
  package init(production: String, sandbox: String) throws {
    for url in [production, sandbox] {
      let parts = URLComponents(string: url)
      guard ["http", "https"].contains(parts?.scheme?.lowercased()), parts?.host?.isEmpty == false,
        parts?.query == nil, parts?.fragment == nil, parts?.user == nil
      else {
        throw AppStoreSettingError(
          "\"\(url)\" is not the address of an App Store Server API: write it without the calls' "
            + "own paths, for example \(ServerAPIAddresses.apple.production)")
      }
      guard url.unicodeScalars.count <= Self.longest else {
        throw AppStoreSettingError(
          "the address has \(url.unicodeScalars.count) characters, of which there may be "
            + "\(Self.longest)")
      }
    }
    self.init(unchecked: Self.withoutSlash(production), sandbox: Self.withoutSlash(sandbox))
  }

  private init(unchecked production: String, sandbox: String) {
    self.production = production
    self.sandbox = sandbox
  }

  private static func withoutSlash(_ url: String) -> String {
    String(url.reversed().drop { $0 == "/" }.reversed())
  }

  /// The address of that environment.
  package subscript(environment: Environment) -> String {
    switch environment {
    case .production: production
    case .sandbox: sandbox
    }
  }
}
