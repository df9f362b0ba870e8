import AppStore
import Crypto
import Foundation
import struct Foundation.UUID
import JSONText
import Subscriptions

// The App Store Server API's paged lists.
extension AppStoreState {
  /// The number of items on Apple's pages.
  ///
  /// https://developer.apple.com/documentation/appstoreserverapi/get-transaction-history
  static let pageSize = 20

  // MARK: Transactions

  /// All charges of an Apple ID in the app, in the order of their last change, so that charges that
  /// change later appear again at the end.
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

  /// Refunds, oldest first.
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

  /// How long Apple keeps notifications.
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
  fileprivate var testToken: String {
    "\(uuid.text)_\(at.milliseconds)"
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

/// The filter and order of a transaction history.
struct HistoryFilter {
  let isDescending: Bool
  private let start: Timestamp?
  private let end: Timestamp?
  private let products: Set<String>
  private let types: Set<String>
  private let groups: Set<String>
  private let ownership: String?
  private let isRevoked: Bool?
  /// Identical for equal queries in any order; excludes the revision.
  let canonical: String

  /// Parses the parameters as strictly as Apple.
  init(_ request: ServerAPIRequest) throws {
    start = try request.date("startDate", or: .invalidStartDate)
    end = try request.date("endDate", or: .invalidEndDate)
    if let start, let end, start >= end { throw ServerAPIError.startDateAfterEndDate }
    let sort = request.value("sort") ?? "ASCENDING"
    guard ["ASCENDING", "DESCENDING"].contains(sort) else { throw ServerAPIError.invalidSort }
    isDescending = sort == "DESCENDING"
    products = Set(request.values("productId"))
    guard !products.contains("") else { throw ServerAPIError.invalidProductID }
    types = Set(request.values("productType"))
    guard types.isSubset(of: Set(ProductType.allCases.map(Self.name))) else {
      throw ServerAPIError.invalidProductType
    }
    groups = Set(request.values("subscriptionGroupIdentifier"))
    guard !groups.contains("") else { throw ServerAPIError.invalidGroup }
    ownership = request.value("inAppOwnershipType")
    guard ["PURCHASED", "FAMILY_SHARED", nil].contains(ownership) else {
      throw ServerAPIError.invalidOwnershipType
    }
    let revoked = request.value("revoked")
    guard ["true", "false", nil].contains(revoked) else { throw ServerAPIError.invalidRevoked }
    isRevoked = revoked.map { $0 == "true" }
    canonical = request.query.filter { $0.name != "revision" }
      .map { "\($0.name)=\($0.value)" }.sorted().joined(separator: "&")
  }

  private static func name(_ type: ProductType) -> String {
    switch type {
    case .autoRenewable: "AUTO_RENEWABLE"
    case .nonRenewing: "NON_RENEWABLE"
    case .nonConsumable: "NON_CONSUMABLE"
    case .consumable: "CONSUMABLE"
    }
  }

  func accepts(_ charge: Charge, _ line: SimulatedSubscription, asOf now: Timestamp) -> Bool {
    (start.map { $0 <= charge.purchaseDate } ?? true)
      && (end.map { charge.purchaseDate < $0 } ?? true)
      && (products.isEmpty || products.contains(charge.product.id.rawValue))
      && (types.isEmpty || types.contains(Self.name(charge.product.type)))
      && (groups.isEmpty || line.group.map(groups.contains) ?? false)
      && (ownership.map { $0 == (line.ownership == .purchased ? "PURCHASED" : "FAMILY_SHARED") }
        ?? true)
      && (isRevoked.map { $0 == (charge.revocation(asOf: now) != nil) } ?? true)
  }
}

/// A position in a paged list, tied to its query: Apple's `revision` and `paginationToken`.
struct PageToken {
  /// In the list's own unit.
  let position: Int64
  let second: Int64

  init(_ position: Int64, _ second: Int64 = 0) {
    self.position = position
    self.second = second
  }

  /// Nil for a token of another query.
  init?(_ text: String, of query: String) {
    guard let data = Base64URL.bytes(text) else { return nil }
    let parts = String(decoding: data, as: UTF8.self).split(
      separator: "_", omittingEmptySubsequences: false)
    guard parts.count == 3, let position = Int64(parts[0]), let second = Int64(parts[1]),
      parts[2] == Self.mark(query)
    else { return nil }
    self.init(position, second)
  }

  func text(of query: String) -> String {
    Base64URL.text("\(position)_\(second)_\(Self.mark(query))".utf8)
  }

  private static func mark(_ query: String) -> String {
    Base64URL.text(Array(SHA256.hash(data: Data(query.utf8)).prefix(9)))
      .replacing("_", with: "-")
  }
}
