import AppStore
import JSONText
import Subscriptions

import struct Foundation.UUID

/// What the App Store Server API answers in pages.
extension AppStoreState {
  /// How many items Apple puts into an answer.
  ///
  /// https://developer.apple.com/documentation/appstoreserverapi/get-transaction-history
  static let pageSize = 20

  // MARK: Transactions

  /// Everything of one Apple ID in the app, in the order of the last changes: what changes after
  /// it was seen comes again, at the end.
  func transactionHistory(_ id: String, _ request: ServerAPIRequest, _ caller: Caller) throws
    -> JSONValue
  {
    let customer = try customer(id, caller)
    let filter = try HistoryFilter(request)
    let query = filter.canonical + "/\(customer)/\(caller.app)"
    var start: PageToken?
    if let revision = request.value("revision") {
      start = PageToken(revision, of: query)
      guard start != nil else { throw ServerAPIError.invalidRevision }
    }
    let all = customers[customer].lines.filter { lines[$0].app == caller.app }
      .flatMap { lines[$0].charges }
      .filter { filter.accepts(charges[$0], lines[charges[$0].line], asOf: now) }
      .sorted { charges[$0].modification < charges[$1].modification }
    let rest: [Int]
    if filter.isDescending {
      let last = start?.position ?? .max
      rest = all.reversed().filter { charges[$0].modification < last }
    } else {
      let first = start?.position ?? 0
      rest = all.filter { charges[$0].modification > first }
    }
    let page = rest.prefix(Self.pageSize)
    let end = page.last.map { PageToken(Int64(charges[$0].modification)) }
    var members: [JSONValue.Member] = []
    members.append("revision", (end ?? start ?? PageToken(0)).text(of: query))
    members.append("hasMore", .bool(page.count < rest.count))
    members += identity(caller)
    members.append("signedTransactions", .array(page.map(signed)))
    return .object(members)
  }

  /// What was given back, the oldest refund first.
  func refundHistory(_ id: String, _ request: ServerAPIRequest, _ caller: Caller) throws
    -> JSONValue
  {
    let customer = try customer(id, caller)
    let query = "refunds/\(customer)/\(caller.app)"
    var start: PageToken?
    if let revision = request.value("revision") {
      start = PageToken(revision, of: query)
      guard start != nil else { throw ServerAPIError.invalidRevision }
    }
    let rest = customers[customer].lines
      .filter { lines[$0].app == caller.app && lines[$0].ownership == .purchased }
      .flatMap { lines[$0].charges }
      .compactMap { number in
        charges[number].revocation(asOf: now).map { (at: $0.at.milliseconds, charge: number) }
      }
      .filter { refund in
        start.map { ($0.position, $0.second) < (refund.at, Int64(refund.charge)) } ?? true
      }
      .sorted { ($0.at, $0.charge) < ($1.at, $1.charge) }
    let page = rest.prefix(Self.pageSize)
    let end = page.last.map { PageToken($0.at, Int64($0.charge)) }
    return [
      "signedTransactions": .array(page.map { signed($0.charge) }),
      "revision": .string((end ?? start ?? PageToken(0)).text(of: query)),
      "hasMore": .bool(page.count < rest.count),
    ]
  }

  // MARK: Notifications

  /// How far back Apple remembers its notifications.
  ///
  /// https://developer.apple.com/documentation/appstoreserverapi/get-notification-history
  private static func historyLength(_ environment: Environment) -> Duration {
    environment == .production ? .days(180) : .days(30)
  }

  func notificationHistory(_ request: ServerAPIRequest, _ caller: Caller) throws -> JSONValue {
    let body = try request.json()
    func date(_ key: String, or error: ServerAPIError) throws -> Timestamp {
      guard let moment = body[key]?.integer.map(Timestamp.init(milliseconds:)),
        Timestamp.writable.contains(moment)
      else { throw error }
      return moment
    }
    let start = try date("startDate", or: .invalidStartDate)
    let end = try date("endDate", or: .invalidEndDate)
    guard start < end else { throw ServerAPIError.startDateAfterEndDate }
    guard start >= now - Self.historyLength(caller.environment) else {
      throw ServerAPIError.startDateTooFarInPast
    }
    let type = body["notificationType"]?.string
    let subtype = body["notificationSubtype"]?.string
    let transaction = body["transactionId"]?.string
    guard type == nil || transaction == nil else { throw ServerAPIError.multipleFilters }
    guard subtype == nil || type != nil else { throw ServerAPIError.invalidNotificationType }
    let onlyFailures = body["onlyFailures"]?.bool ?? false
    let query = [
      "notifications", "\(caller.app)", caller.environment.rawValue, "\(start.milliseconds)",
      "\(end.milliseconds)", type ?? "", subtype ?? "", transaction ?? "", "\(onlyFailures)",
    ].joined(separator: "/")
    var position: Int64 = 0
    if let token = request.value("paginationToken") {
      guard let page = PageToken(token, of: query) else {
        throw ServerAPIError.invalidPaginationToken
      }
      position = page.position
    }
    let rest = mail.notifications.filter { notification in
      notification.number > position && notification.version == .v2
        && notification.bundleID == apps[caller.app].bundleID
        && notification.environment == caller.environment
        && start <= notification.at && notification.at < end
        && (type == nil || type == notification.type)
        && (subtype == nil || subtype == notification.subtype)
        && (transaction.map(notification.concerns) ?? true)
        && !(onlyFailures && notification.hasArrived)
    }
    let page = rest.prefix(Self.pageSize)
    var members: [JSONValue.Member] = []
    if page.count < rest.count, let last = page.last {
      members.append("paginationToken", PageToken(Int64(last.number)).text(of: query))
    }
    members.append("hasMore", .bool(page.count < rest.count))
    members.append(
      "notificationHistory", .array(page.map { .object($0.historyMembers) }))
    return .object(members)
  }

  // MARK: Tests

  mutating func requestTest(_ caller: Caller) throws -> JSONValue {
    guard let test = writeTest(app: caller.app, environment: caller.environment) else {
      throw ServerAPIError.noNotificationURL
    }
    return ["testNotificationToken": .string(test.testToken)]
  }

  func testStatus(_ token: String, _ caller: Caller) throws -> JSONValue {
    guard
      let test = mail.notifications.first(where: {
        $0.type == "TEST" && $0.testToken == token && $0.environment == caller.environment
          && $0.bundleID == apps[caller.app].bundleID
      })
    else { throw ServerAPIError.testNotFound }
    return .object(test.historyMembers)
  }
}

extension SimulatedNotification {
  /// Names a test notification.
  fileprivate var testToken: String {
    "\(uuid.uuidString.lowercased())_\(at.milliseconds)"
  }

  fileprivate func concerns(_ transaction: String) -> Bool {
    transactionID?.rawValue == transaction || originalTransactionID?.rawValue == transaction
  }

  fileprivate var historyMembers: [JSONValue.Member] {
    var members: [JSONValue.Member] = []
    if let signedPayload { members.append("signedPayload", signedPayload) }
    members.append(
      "sendAttempts",
      .array(
        attempts.map {
          [
            "attemptDate": .integer($0.at.milliseconds),
            "sendAttemptResult": .string($0.result.rawValue),
          ]
        }))
    return members
  }
}
