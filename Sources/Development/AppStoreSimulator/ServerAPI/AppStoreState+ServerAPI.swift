import AppStore
import struct Foundation.Date
package import JSONText
package import Subscriptions

// The App Store Server API, from a request to its response.
extension AppStoreState {
  /// The authenticated app and the environment.
  struct Caller {
    let app: Int
    let environment: Environment
  }

  /// Responds to the app with the bundle ID of a valid token; nil if there is no valid token.
  mutating func serverAPI(
    _ request: ServerAPIRequest, of bundleID: String?, at environment: Environment
  ) -> SimulatedAnswer {
    guard let bundleID, let app = apps.firstIndex(where: { $0.bundleID == bundleID }) else {
      return Self.unauthenticated
    }
    guard let (endpoint, ids) = SimulatedEndpoint.route(request.method, request.path) else {
      return SimulatedAnswer(httpStatus: 404, contentType: "text/plain", body: [])
    }
    if let moment = limits.take(endpoint, app: app, environment: environment, at: now) {
      return Self.tooMany(until: moment)
    }
    let caller = Caller(app: app, environment: environment)
    do {
      return try answer(endpoint, ids, request, caller)
    } catch let error as ServerAPIError {
      return error.answer
    } catch {
      return ServerAPIError.internalError.answer
    }
  }

  /// The only response without a code.
  private static let unauthenticated = SimulatedAnswer(
    httpStatus: 401, contentType: "text/plain", body: Array("Unauthenticated\n".utf8))

  /// `Retry-After` is in milliseconds since 1970 here, not a number of seconds.
  ///
  /// https://developer.apple.com/documentation/appstoreserverapi/identifying-rate-limits
  static func tooMany(until moment: Timestamp) -> SimulatedAnswer {
    var answer = ServerAPIError.rateLimitExceeded.answer
    answer.retryAfter = String(moment.milliseconds)
    return answer
  }

  private mutating func answer(
    _ endpoint: SimulatedEndpoint, _ ids: [String], _ request: ServerAPIRequest, _ caller: Caller
  ) throws -> SimulatedAnswer {
    let id = ids.first ?? ""
    return switch endpoint {
    case .transactionInfo: SimulatedAnswer(try transactionInfo(id, caller))
    case .transactionHistory: SimulatedAnswer(try transactionHistory(id, request, caller))
    case .subscriptionStatuses: SimulatedAnswer(try statuses(id, request, caller))
    case .appTransactionInfo: SimulatedAnswer(try appTransactionInfo(id, caller))
    case .consumption: try takeConsumption(id, request, caller)
    case .notificationHistory: SimulatedAnswer(try notificationHistory(request, caller))
    case .extendRenewalDate: SimulatedAnswer(try extendRenewalDate(id, request, caller))
    case .setAppAccountToken: try setAppAccountToken(id, request, caller)
    case .orderLookup: SimulatedAnswer(order(id, caller))
    case .refundHistory: SimulatedAnswer(try refundHistory(id, request, caller))
    case .massExtension: SimulatedAnswer(try extendAll(request, caller))
    case .massExtensionStatus:
      SimulatedAnswer(try extensionStatus(id, ids.last ?? "", caller))
    case .requestTest: SimulatedAnswer(try requestTest(caller))
    case .testStatus: SimulatedAnswer(try testStatus(id, caller))
    }
  }

  // MARK: Lookup

  /// A charge by its transaction ID or its original transaction ID.
  func charge(_ id: String, _ caller: Caller) throws -> Int {
    guard !id.isEmpty, id.allSatisfy({ ("0"..."9").contains($0) }) else {
      throw ServerAPIError.invalidTransactionID
    }
    let number =
      chargeNumbers[TransactionID(id)]
      ?? lineNumbers[OriginalTransactionID(id)].flatMap { lines[$0].charges.first }
    guard let number, isVisible(lines[charges[number].line], caller) else {
      throw ServerAPIError.transactionIDNotFound
    }
    guard !customers[lines[charges[number].line].customer].isDeleted else {
      throw ServerAPIError.accountNotFound
    }
    return number
  }

  /// The customer of a transaction, an original transaction or a download.
  func customer(_ id: String, _ caller: Caller) throws -> Int {
    if let (customer, app) = appTransaction(id) {
      guard app == caller.app, customers[customer].environment == caller.environment else {
        throw ServerAPIError.transactionIDNotFound
      }
      guard !customers[customer].isDeleted else { throw ServerAPIError.accountNotFound }
      return customer
    }
    return lines[charges[try charge(id, caller)].line].customer
  }

  private func isVisible(_ line: SimulatedSubscription, _ caller: Caller) -> Bool {
    line.app == caller.app && line.environment == caller.environment
  }

  func signed(_ charge: Int) -> JSONValue {
    .string(signer.sign(transactionPayload(of: charge).json))
  }

  /// The app and the environment, as named in responses.
  func identity(_ caller: Caller) -> [JSONValue.Member] {
    var members: [JSONValue.Member] = []
    members.append("bundleId", apps[caller.app].bundleID)
    if caller.environment == .production {
      members.append("appAppleId", .integer(Int64(apps[caller.app].appAppleID)))
    }
    members.append("environment", SignedEnvironment(caller.environment).rawValue)
    return members
  }

  // MARK: Short responses

  private func transactionInfo(_ id: String, _ caller: Caller) throws -> JSONValue {
    ["signedTransactionInfo": signed(try charge(id, caller))]
  }

  private func appTransactionInfo(_ id: String, _ caller: Caller) throws -> JSONValue {
    let payload = appTransactionPayload(customer: try customer(id, caller), app: caller.app)
    return ["signedAppTransactionInfo": .string(signer.sign(payload.json))]
  }

  /// 0: a valid order ID, 1: not this app's.
  private func order(_ id: String, _ caller: Caller) -> JSONValue {
    let found = customers.lazy.flatMap(\.lines).filter { isVisible(lines[$0], caller) }
      .flatMap { lines[$0].charges }
      .filter { charges[$0].orderID == id && lines[charges[$0].line].ownership == .purchased }
    return [
      "status": found.isEmpty ? 1 : 0, "signedTransactions": .array(found.map(signed)),
    ]
  }

  private func statuses(_ id: String, _ request: ServerAPIRequest, _ caller: Caller) throws
    -> JSONValue
  {
    let wanted = try request.values("status").map { text in
      guard let status = Int64(text), (1...5).contains(status) else {
        throw ServerAPIError.invalidStatus
      }
      return status
    }
    var groups: [(group: String, items: [JSONValue])] = []
    for number in customers[try customer(id, caller)].lines
    where lines[number].app == caller.app {
      guard let group = lines[number].group, let status = subscriptionStatus(of: number),
        let current = currentCharge(of: number), let renewal = renewalPayload(of: number),
        wanted.isEmpty || wanted.contains(status)
      else { continue }
      let item: JSONValue = [
        "originalTransactionId": .string(lines[number].id.rawValue), "status": .integer(status),
        "signedTransactionInfo": signed(current),
        "signedRenewalInfo": .string(signer.sign(renewal.json)),
      ]
      if let index = groups.firstIndex(where: { $0.group == group }) {
        groups[index].items.append(item)
      } else {
        groups.append((group, [item]))
      }
    }
    var members = identity(caller)
    members.append(
      "data",
      .array(
        groups.map { group, items in
          ["subscriptionGroupIdentifier": .string(group), "lastTransactions": .array(items)]
        }))
    return .object(members)
  }
}

extension Charge {
  /// The order ID on the customer's invoice.
  var orderID: String { "M" + String(transactionNumber, radix: 36).uppercased() }
}

// The App Store Server API.
extension AppStoreSimulation {
  /// Responds to a request at one of Apple's two endpoints, including faults.
  package func serverAPI(_ request: ServerAPIRequest, at endpoint: Environment) -> SimulatedAnswer {
    let clocks = [clock.now, Self.realNow]
    let bundleID = token(in: request.authorization).flatMap {
      apiKey.bundleID(in: $0, at: clocks)
    }
    return act { state in
      let fault = state.serverFaults.takeFault(at: state.now)
      let answer = state.serverAPI(request, of: bundleID, at: endpoint)
      guard let fault else { return answer }
      if case .tooManyRequests(let seconds) = fault {
        return AppStoreState.tooMany(until: state.now + .seconds(seconds))
      }
      return answer.with(fault)
    }
  }

  private static var realNow: Timestamp {
    Timestamp(milliseconds: Int64(Date.now.timeIntervalSince1970 * 1000))
  }

  private func token(in authorization: String?) -> String? {
    guard let authorization, authorization.lowercased().hasPrefix("bearer ") else { return nil }
    return String(authorization.dropFirst("bearer ".count))
  }

  package func setServerFaults(_ change: @Sendable (inout FaultPlan) -> Void) {
    act { change(&$0.serverFaults) }
  }

  /// Scales Apple's request limits; nil: unlimited.
  package func setRateLimitScale(_ scale: Double?) {
    act { $0.limits.scale = scale }
  }

  /// The consumption information that the app's server sent about a charge.
  package func consumptionReports(of transaction: TransactionID) throws -> [JSONValue] {
    try act { $0.charges[try $0.chargeNumber(transaction)].consumptionReports }
  }
}

package struct ServerAPIRequest: Sendable {
  package struct QueryItem: Hashable, Sendable {
    package var name: String
    package var value: String

    package init(_ name: String, _ value: String) {
      self.name = name
      self.value = value
    }
  }

  package var method: String
  package var path: String  // Such as `/inApps/v1/transactions/1`
  package var query: [QueryItem]
  package var authorization: String?
  package var body: [UInt8]

  package init(
    method: String = "GET", path: String, query: [QueryItem] = [], authorization: String?,
    body: [UInt8] = []
  ) {
    self.method = method
    self.path = path
    self.query = query
    self.authorization = authorization
    self.body = body
  }

  // MARK: Reading

  func values(_ name: String) -> [String] {
    query.filter { $0.name == name }.map(\.value)
  }

  func value(_ name: String) -> String? { values(name).last }

  /// A date in milliseconds since 1970.
  func date(_ name: String, or error: ServerAPIError) throws -> Timestamp? {
    guard let text = value(name) else { return nil }
    guard let moment = Int64(text).map(Timestamp.init(milliseconds:)),
      Timestamp.writable.contains(moment)
    else { throw error }
    return moment
  }

  /// The body, which must be a JSON object.
  func json() throws -> JSONValue {
    guard let json = try? JSONValue(parsing: body), case .object = json else {
      throw ServerAPIError.badRequest
    }
    return json
  }
}

/// The endpoints of the [App Store Server
/// API](https://developer.apple.com/documentation/appstoreserverapi).
enum SimulatedEndpoint: Hashable, CaseIterable, Sendable {
  case transactionInfo, transactionHistory, subscriptionStatuses, appTransactionInfo
  case consumption, notificationHistory, extendRenewalDate, setAppAccountToken
  case orderLookup, refundHistory, massExtension, massExtensionStatus, requestTest, testStatus

  /// The path, with `*` for each ID.
  private var pattern: (method: String, path: String) {
    switch self {
    case .transactionInfo: ("GET", "/inApps/v1/transactions/*")
    case .transactionHistory: ("GET", "/inApps/v2/history/*")
    case .subscriptionStatuses: ("GET", "/inApps/v1/subscriptions/*")
    case .appTransactionInfo: ("GET", "/inApps/v1/transactions/appTransactions/*")
    case .consumption: ("PUT", "/inApps/v2/transactions/consumption/*")
    case .notificationHistory: ("POST", "/inApps/v1/notifications/history")
    case .extendRenewalDate: ("PUT", "/inApps/v1/subscriptions/extend/*")
    case .setAppAccountToken: ("PUT", "/inApps/v1/transactions/*/appAccountToken")
    case .orderLookup: ("GET", "/inApps/v1/lookup/*")
    case .refundHistory: ("GET", "/inApps/v2/refund/lookup/*")
    case .massExtension: ("POST", "/inApps/v1/subscriptions/extend/mass")
    case .massExtensionStatus: ("GET", "/inApps/v1/subscriptions/extend/mass/*/*")
    case .requestTest: ("POST", "/inApps/v1/notifications/test")
    case .testStatus: ("GET", "/inApps/v1/notifications/test/*")
    }
  }

  /// Requests per second that Apple accepts from an app in production, enforced by the hour; a
  /// tenth in the sandbox.
  ///
  /// https://developer.apple.com/documentation/appstoreserverapi/identifying-rate-limits
  var requestsPerSecond: Int {
    switch self {
    case .transactionInfo, .transactionHistory, .subscriptionStatuses, .appTransactionInfo,
      .consumption, .notificationHistory:
      50
    case .extendRenewalDate, .setAppAccountToken: 20
    case .orderLookup, .refundHistory: 10
    case .massExtension, .massExtensionStatus, .requestTest, .testStatus: 1
    }
  }

  /// The endpoint at a path and the IDs in it; nil if Apple has none.
  static func route(_ method: String, _ path: String) -> (endpoint: Self, ids: [String])? {
    let parts = path.split(separator: "/", omittingEmptySubsequences: true)
    for endpoint in allCases where endpoint.pattern.method == method {
      let pattern = endpoint.pattern.path.split(separator: "/")
      guard pattern.count == parts.count else { continue }
      let pairs = zip(pattern, parts)
      guard pairs.allSatisfy({ $0 == "*" || $0 == $1 }) else { continue }
      return (endpoint, pairs.filter { $0.0 == "*" }.map { String($0.1) })
    }
    return nil
  }
}
