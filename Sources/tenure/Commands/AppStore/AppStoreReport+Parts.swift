import AppStore
import JSONText
import Subscriptions

extension AppStoreReport {
  /// One signed part, field by field.
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

  /// A list of transactions, one in a row.
  mutating func show(_ transactions: [SignedPart<SignedTransaction>]) {
    add("transactions", .array(transactions.map { json($0) { $0.payload.json } }))
    let rows = transactions.compactMap { $0.value.map(Self.row) }
    if !rows.isEmpty { blocks.append(.table(Self.transactionHead, rows)) }
    showRefusals(transactions)
    blocks.append(.fields([("transactions", "\(transactions.count)")]))
  }

  /// The lines of every subscription group, one in a row.
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

  /// A list of notifications, one in a row.
  mutating func show(_ notifications: [SentNotification]) {
    add("notifications", .array(notifications.map { json($0) }))
    let rows = notifications.compactMap { sent in
      sent.notification?.value.map { Self.row($0, sent.attempts) }
    }
    if !rows.isEmpty { blocks.append(.table(Self.notificationHead, rows)) }
    showRefusals(notifications.compactMap(\.notification))
    blocks.append(.fields([("notifications", "\(notifications.count)")]))
  }

  /// One notification with every attempt to deliver it.
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

  private mutating func json(_ line: SubscriptionStatuses.Line) -> JSONValue {
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

  /// What makes a transaction unlike others.
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

  private static func row(_ line: SubscriptionStatuses.Line) -> [String] {
    let transaction = line.transaction?.value?.payload
    let renewal = line.renewalInfo?.value?.payload
    var notes = transaction.map(notes).map { $0.isEmpty ? [] : [$0] } ?? []
    if let date = renewal?.gracePeriodExpiresDate { notes.append("grace period until \(date)") }
    if let intent = renewal?.expirationIntent { notes.append("expiration intent \(intent)") }
    return [
      line.originalTransactionID?.rawValue ?? "", line.status.map(word) ?? "",
      transaction?.productID ?? "", transaction?.expiresDate?.description ?? "",
      renewal?.autoRenewStatus.map { $0 == 1 ? "yes" : "no" } ?? "",
      renewal?.autoRenewProductID ?? "", notes.joined(separator: ", "),
    ]
  }

  private static func word(_ status: SubscriptionStatus) -> String {
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
