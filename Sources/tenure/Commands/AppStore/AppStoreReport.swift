import AppStore
import JSONText
import Reports
import Subscriptions

/// The output of a command, as JSON and as text with the same content.
struct AppStoreReport {
  enum Block {
    /// Names and values, with the values aligned.
    case fields([(name: String, value: String)])
    /// Column names and rows, each column as wide as its widest cell.
    case table([String], [[String]])
    case line(String)
  }

  var members: [JSONValue.Member] = []
  var blocks: [Block] = []
  /// The number of signed parts, and of those that failed verification.
  var parts = 0
  var refused = 0
  /// The error that cut a list short.
  var failure: (any Error)?

  init(_ environment: Environment) {
    add("environment", .string(environment.rawValue))
    blocks.append(.fields([("environment", environment.rawValue)]))
  }

  mutating func add(_ name: String, _ value: JSONValue?) {
    guard let value else { return }
    members.append(JSONValue.Member(key: name, value: value))
  }

  mutating func show(_ name: String, _ value: JSONValue?) {
    guard let value else { return }
    add(name, value)
    blocks.append(.fields([(name, AppStoreText.text(value, of: name))]))
  }

  func text(_ format: OutputFormat) -> String {
    switch format {
    case .json: String(decoding: JSONValue.object(members).bytes, as: UTF8.self)
    case .text: AppStoreText.text(blocks)
    }
  }

  /// Throws if a part failed verification or a list was cut short.
  func check() throws {
    if let failure { throw failure }
    guard refused == 0 else {
      throw CommandFailure(description: "\(refused) of \(parts) signed parts were refused")
    }
  }
}

enum AppStoreText {
  static func text(_ blocks: [AppStoreReport.Block]) -> String {
    var lines: [String] = []
    var pending: [(name: String, value: String)] = []
    func flush() {
      lines += columns(pending.map { [$0.name, $0.value] })
      pending = []
    }
    for block in blocks {
      switch block {
      case .fields(let fields): pending += fields
      case .table(let head, let rows):
        flush()
        lines += [""] + columns([head] + rows) + [""]
      case .line(let text):
        flush()
        lines.append(text)
      }
    }
    flush()
    // Keeps empty lines only between other lines.
    return lines.enumerated().filter { index, line in
      !line.isEmpty || (index > 0 && index < lines.count - 1 && !lines[index - 1].isEmpty)
    }.map(\.element).joined(separator: "\n")
  }

  /// Aligns the cells of each column.
  static func columns(_ rows: [[String]]) -> [String] {
    let count = rows.map(\.count).max() ?? 0
    let widths = (0..<count).map { column in
      rows.map { column < $0.count ? $0[column].count : 0 }.max() ?? 0
    }
    return rows.map { row in
      let cells = zip(row, widths).map { cell, width in
        cell + String(repeating: " ", count: width - cell.count)
      }
      return String(cells.joined(separator: "  ").reversed().drop { $0 == " " }.reversed())
    }
  }

  /// The members of an object; nested members have dotted names.
  static func fields(_ json: JSONValue, within path: String = "") -> [(name: String, value: String)]
  {
    switch json {
    case .object(let members):
      return members.flatMap { member in
        fields(member.value, within: path.isEmpty ? "\(member.key)" : "\(path).\(member.key)")
      }
    case .array(let elements) where elements.contains { !$0.keys.isEmpty || $0.array != nil }:
      return elements.enumerated().flatMap { fields($1, within: "\(path).\($0 + 1)") }
    default: return [(path, text(json, of: path))]
    }
  }

  /// Formats a value; integers of members whose name ends in `Date` are times.
  static func text(_ json: JSONValue, of name: String) -> String {
    switch json {
    case .string(let text): text
    case .integer(let number):
      name.hasSuffix("Date") ? "\(Timestamp(milliseconds: number))" : "\(number)"
    case .number(let number): "\(number)"
    case .bool(let flag): flag ? "true" : "false"
    case .null: "null"
    case .array(let elements): elements.map { text($0, of: name) }.joined(separator: ", ")
    case .object: String(decoding: json.bytes, as: UTF8.self)
    }
  }

  /// Formats an amount in thousandths of the currency's unit, as in `9.99 USD`.
  static func price(_ milliunits: Int64?, _ currency: String?) -> String {
    milliunits.map { ReportValue.words(milliunits: $0, currency) } ?? ""
  }
}

extension AppStoreReport {
  /// Shows one signed part, field by field.
  mutating func show<Value>(
    _ part: SignedPart<Value>, as name: String, payload: (Value) -> JSONValue
  ) {
    add(name, json(part, payload: payload))
    guard let value = part.value else {
      blocks.append(.line("\(part)"))
      return
    }
    blocks.append(.fields([("signature", "\(part)")]))
    blocks.append(.line(""))
    blocks.append(.fields(AppStoreText.fields(payload(value))))
  }

  mutating func show(_ transactions: [SignedPart<SignedTransaction>]) {
    add("transactions", .array(transactions.map { json($0) { $0.payload.json } }))
    let rows = transactions.compactMap { $0.value.map(Self.row) }
    if !rows.isEmpty { blocks.append(.table(Self.transactionHead, rows)) }
    showRefusals(transactions)
    blocks.append(.fields([("transactions", "\(transactions.count)")]))
  }

  /// Shows the subscriptions of all groups.
  mutating func show(_ statuses: SubscriptionStatuses) {
    add(
      "groups",
      .array(
        statuses.groups.map { group in
          .object(
            Self.members([
              ("subscriptionGroupIdentifier", group.identifier.map { .string($0) }),
              ("lines", .array(group.lines.map { json($0) })),
            ]))
        }))
    let rows = statuses.groups.flatMap { group in
      group.lines.map { [group.identifier ?? ""] + Self.row($0) }
    }
    if !rows.isEmpty { blocks.append(.table(Self.statusHead, rows)) }
    let lines = statuses.groups.flatMap(\.lines)
    showRefusals(lines.compactMap(\.transaction))
    showRefusals(lines.compactMap(\.renewalInfo))
    blocks.append(.fields([("subscriptions", "\(lines.count)")]))
  }

  mutating func show(_ notifications: [SentNotification]) {
    add("notifications", .array(notifications.map { json($0) }))
    let rows = notifications.compactMap { sent in
      sent.notification?.value.map { Self.row($0, sent.attempts) }
    }
    if !rows.isEmpty { blocks.append(.table(Self.notificationHead, rows)) }
    showRefusals(notifications.compactMap(\.notification))
    blocks.append(.fields([("notifications", "\(notifications.count)")]))
  }

  /// Shows a notification and Apple's attempts to deliver it.
  mutating func show(_ sent: SentNotification) {
    if let notification = sent.notification {
      show(notification, as: "notification") { $0.payload.json }
    }
    add("sendAttempts", .array(sent.attempts.map(\.json)))
    guard !sent.attempts.isEmpty else {
      blocks.append(.fields([("sendAttempts", "none yet")]))
      return
    }
    let rows = sent.attempts.map {
      [$0.attemptDate?.description ?? "", $0.sendAttemptResult?.rawValue ?? ""]
    }
    blocks.append(.table(["ATTEMPT", "RESULT"], rows))
  }

  // MARK: JSON

  private mutating func json<Value>(
    _ part: SignedPart<Value>, payload: (Value) -> JSONValue
  ) -> JSONValue {
    parts += 1
    if part.refusal != nil { refused += 1 }
    return .object(
      Self.members([
        ("signed", .string(part.jws)), ("verified", .bool(part.refusal == nil)),
        ("payload", part.value.map(payload)),
        ("reason", part.refusal.map { .string($0.reason.rawValue) }),
        ("detail", part.refusal.map { .string($0.description) }),
      ]))
  }

  private mutating func json(_ line: SubscriptionStatuses.Entry) -> JSONValue {
    .object(
      Self.members([
        ("originalTransactionId", line.originalTransactionID.map { .string($0.rawValue) }),
        ("status", line.status?.json),
        ("transaction", line.transaction.map { json($0) { $0.payload.json } }),
        ("renewalInfo", line.renewalInfo.map { json($0) { $0.payload.json } }),
      ]))
  }

  private mutating func json(_ sent: SentNotification) -> JSONValue {
    .object(
      Self.members([
        ("notification", sent.notification.map { json($0) { $0.payload.json } }),
        ("transaction", sent.notification?.value?.transaction?.payload.json),
        ("renewalInfo", sent.notification?.value?.renewalInfo?.payload.json),
        ("sendAttempts", .array(sent.attempts.map(\.json))),
      ]))
  }

  private static func members(_ members: [(String, JSONValue?)]) -> [JSONValue.Member] {
    members.compactMap { name, value in value.map { JSONValue.Member(key: name, value: $0) } }
  }

  // MARK: Rows

  private mutating func showRefusals<Value>(_ parts: [SignedPart<Value>]) {
    for (index, part) in parts.enumerated() where part.refusal != nil {
      blocks.append(.line("\(index + 1). \(part)"))
    }
  }

  private static let transactionHead = [
    "PURCHASED", "TRANSACTION", "ORIGINAL", "PRODUCT", "EXPIRES", "REASON", "PRICE", "NOTES",
  ]

  private static func row(_ transaction: SignedTransaction) -> [String] {
    let payload = transaction.payload
    return [
      payload.purchaseDate?.description ?? "", payload.transactionID ?? "",
      payload.originalTransactionID ?? "", payload.productID ?? "",
      payload.expiresDate?.description ?? "", payload.transactionReason?.rawValue ?? "",
      AppStoreText.price(payload.price, payload.currency), notes(payload),
    ]
  }

  /// Revocation, upgrade, ownership and offers.
  private static func notes(_ payload: JWSTransactionDecodedPayload) -> String {
    var notes: [String] = []
    if let date = payload.revocationDate { notes.append("revoked \(date)") }
    if payload.isUpgraded == true { notes.append("upgraded") }
    if let type = payload.inAppOwnershipType, type != .purchased { notes.append(type.rawValue) }
    if let discount = payload.offerDiscountType { notes.append(discount.rawValue) }
    if let offer = payload.offerIdentifier { notes.append("offer \(offer)") }
    return notes.joined(separator: ", ")
  }

  private static let statusHead = [
    "GROUP", "ORIGINAL", "STATUS", "PRODUCT", "EXPIRES", "RENEWS", "NEXT PRODUCT", "NOTES",
  ]

  private static func row(_ line: SubscriptionStatuses.Entry) -> [String] {
    let transaction = line.transaction?.value?.payload
    let renewal = line.renewalInfo?.value?.payload
    var notes = transaction.map(notes).map { $0.isEmpty ? [] : [$0] } ?? []
    if let date = renewal?.gracePeriodExpiresDate { notes.append("grace period until \(date)") }
    if let intent = renewal?.expirationIntent { notes.append("expiration intent \(intent)") }
    return [
      line.originalTransactionID?.rawValue ?? "", line.status.map(name) ?? "",
      transaction?.productID ?? "", transaction?.expiresDate?.description ?? "",
      renewal?.autoRenewStatus.map { $0 == 1 ? "yes" : "no" } ?? "",
      renewal?.autoRenewProductID ?? "", notes.joined(separator: ", "),
    ]
  }

  private static func name(_ status: SubscriptionStatus) -> String {
    switch status {
    case .active: "active"
    case .expired: "expired"
    case .billingRetry: "billing retry"
    case .gracePeriod: "grace period"
    case .revoked: "revoked"
    default: "\(status.rawValue)"
    }
  }

  private static let notificationHead = [
    "SIGNED", "TYPE", "SUBTYPE", "TRANSACTION", "ORIGINAL", "ATTEMPTS", "LAST RESULT", "UUID",
  ]

  private static func row(
    _ notification: SignedNotification, _ attempts: [SendAttemptItem]
  ) -> [String] {
    let payload = notification.payload
    let transaction = notification.transaction?.payload
    let last = attempts.max {
      ($0.attemptDate?.milliseconds ?? 0) < ($1.attemptDate?.milliseconds ?? 0)
    }
    return [
      payload.signedDate?.description ?? "", payload.notificationType?.rawValue ?? "",
      payload.subtype?.rawValue ?? "", transaction?.transactionID ?? "",
      transaction?.originalTransactionID ?? "", "\(attempts.count)",
      last?.sendAttemptResult?.rawValue ?? "", payload.notificationUUID ?? "",
    ]
  }
}
