import AppStore
import JSONText
import Reports
import Subscriptions

/// The output of a command: a JSON object, or a text with the same contents.
struct AppStoreReport {
  private var members: [JSONValue.Member] = []
  private let remark: String?
  var failure: (any Error)?

  /// - Parameters:
  ///   - object: An object whose members are added, except those that are there already.
  ///   - remark: A sentence at the end of the text.
  ///   - failure: The error that cut a list short, or that Apple did not do what was requested.
  init(
    _ environment: Environment, _ members: KeyValuePairs<String, JSONValue?> = [:],
    membersOf object: JSONValue = [:], remark: String? = nil, failure: (any Error)? = nil
  ) {
    (self.remark, self.failure) = (remark, failure)
    add("environment", .string(environment.rawValue))
    for (name, value) in members { add(name, value) }
    for name in object.keys where !self.members.contains(where: { $0.key.rawValue == name }) {
      add(name, object[name])
    }
  }

  mutating func add(_ name: String, _ value: JSONValue?) {
    guard let value else { return }
    members.append(JSONValue.Member(key: name, value: value))
  }

  func text(_ format: OutputFormat) -> String {
    switch format {
    case .json: String(decoding: JSONValue.object(members).bytes, as: UTF8.self)
    case .text: text
    }
  }

  /// Throws if a part failed verification, or for the report's failure.
  func check() throws {
    if let failure { throw failure }
    let parts = members.flatMap { $0.value.signedParts }
    let refused = parts.count { $0["verified"] == false }
    guard refused == 0 else {
      throw CommandFailure(description: "\(refused) of \(parts.count) signed parts were refused")
    }
  }

  /// The members as fields, signed parts and tables, and then the remark.
  private var text: String {
    var blocks: [[String]] = []
    var fields: [[String]] = []
    func endBlock(_ lines: [String] = []) {
      blocks.append(fields.aligned())
      blocks.append(lines)
      fields = []
    }
    for member in members {
      let (name, value) = (member.key.rawValue, member.value)
      if let table = Self.tables[name], let elements = value.array {
        let elements = name == "groups" ? elements.flatMap(Self.subscriptions) : elements
        let rows = elements.map { element in table.map { $0.cell(element) } }
          .filter { $0.contains { !$0.isEmpty } }
        endBlock(rows.isEmpty ? [] : ([table.map(\.head)] + rows).aligned())
        blocks.append(
          elements.enumerated().flatMap { index, element in
            element.signedParts.compactMap(\.refusal).map { "\(index + 1). \($0)" }
          })
        fields.append([name == "groups" ? "subscriptions" : name, "\(elements.count)"])
      } else if value["signed"] != nil {
        fields.append(["signature", value.refusal ?? "verified"])
        endBlock()
        fields = AppStoreText.fields(value["payload"] ?? [:]).map { [$0.name, $0.value] }
      } else {
        fields += AppStoreText.fields(value, within: name).map { [$0.name, $0.value] }
      }
    }
    endBlock(remark.map { [$0] } ?? [])
    return blocks.filter { !$0.isEmpty }.map { $0.joined(separator: "\n") }
      .joined(separator: "\n\n")
  }

  // MARK: Tables

  private struct Column: Sendable {
    let head: String
    let cell: @Sendable (JSONValue) -> String

    init(_ head: String, _ cell: @escaping @Sendable (JSONValue) -> String) {
      (self.head, self.cell) = (head, cell)
    }

    init(_ head: String, _ path: String) {
      self.init(head) { AppStoreText.text($0.member(path) ?? "", of: path) }
    }
  }

  private static let tables: [String: [Column]] = [
    "transactions": [
      Column("PURCHASED", "payload.purchaseDate"), Column("TRANSACTION", "payload.transactionId"),
      Column("ORIGINAL", "payload.originalTransactionId"), Column("PRODUCT", "payload.productId"),
      Column("EXPIRES", "payload.expiresDate"), Column("REASON", "payload.transactionReason"),
      Column("PRICE") {
        AppStoreText.price(
          $0.member("payload.price")?.integer, $0.member("payload.currency")?.string)
      },
      Column("NOTES") { notes($0["payload"]).joined(separator: ", ") },
    ],
    "groups": [
      Column("GROUP", "group"), Column("ORIGINAL", "originalTransactionId"),
      Column("STATUS") { $0["status"]?.integer.map { statuses[$0] ?? "\($0)" } ?? "" },
      Column("PRODUCT", "transaction.payload.productId"),
      Column("EXPIRES", "transaction.payload.expiresDate"),
      Column("RENEWS") { line in
        line.member("renewalInfo.payload.autoRenewStatus").map { $0 == 1 ? "yes" : "no" } ?? ""
      },
      Column("NEXT PRODUCT", "renewalInfo.payload.autoRenewProductId"),
      Column("NOTES") { line in
        let renewal = line.member("renewalInfo.payload")
        let others = [
          note("grace period until", renewal, "gracePeriodExpiresDate"),
          note("expiration intent", renewal, "expirationIntent"),
        ]
        return (notes(line.member("transaction.payload")) + others.compactMap(\.self))
          .joined(separator: ", ")
      },
    ],
    "notifications": [
      Column("SIGNED", "notification.payload.signedDate"),
      Column("TYPE", "notification.payload.notificationType"),
      Column("SUBTYPE", "notification.payload.subtype"),
      Column("TRANSACTION", "transaction.transactionId"),
      Column("ORIGINAL", "transaction.originalTransactionId"),
      Column("ATTEMPTS") { "\($0["sendAttempts"]?.array?.count ?? 0)" },
      Column("LAST RESULT") { sent in
        sent["sendAttempts"]?.array?.max {
          ($0["attemptDate"]?.integer ?? 0) < ($1["attemptDate"]?.integer ?? 0)
        }?["sendAttemptResult"]?.string ?? ""
      },
      Column("UUID", "notification.payload.notificationUUID"),
    ],
    "sendAttempts": [Column("ATTEMPT", "attemptDate"), Column("RESULT", "sendAttemptResult")],
  ]

  private static let statuses: [Int64: String] = [
    1: "active", 2: "expired", 3: "billing retry", 4: "grace period", 5: "revoked",
  ]

  /// The subscriptions of a group, each with the group's identifier.
  private static func subscriptions(of group: JSONValue) -> [JSONValue] {
    (group["lines"]?.array ?? []).map { line in
      guard case .object(let members) = line else { return line }
      let identifier = group["subscriptionGroupIdentifier"] ?? ""
      return .object(members + [JSONValue.Member(key: "group", value: identifier)])
    }
  }

  /// Revocation, upgrade, ownership and offers of a transaction.
  private static func notes(_ payload: JSONValue?) -> [String] {
    let ownership = note("", payload, "inAppOwnershipType")
    return [
      note("revoked", payload, "revocationDate"),
      payload?["isUpgraded"] == true ? "upgraded" : nil,
      ownership == InAppOwnershipType.purchased.rawValue ? nil : ownership,
      note("", payload, "offerDiscountType"), note("offer", payload, "offerIdentifier"),
    ].compactMap(\.self)
  }

  private static func note(_ words: String, _ payload: JSONValue?, _ name: String) -> String? {
    payload?[name].map { (words.isEmpty ? "" : words + " ") + AppStoreText.text($0, of: name) }
  }
}

extension JSONValue {
  static func object(_ members: KeyValuePairs<String, JSONValue?>) -> JSONValue {
    .object(members.compactMap { name, value in value.map { Member(key: name, value: $0) } })
  }

  /// A member of nested objects; the names in `path` are separated by dots.
  fileprivate func member(_ path: String) -> JSONValue? {
    path.split(separator: ".").reduce(self as JSONValue?) { $0?[String($1)] }
  }

  fileprivate var signedParts: [JSONValue] {
    switch self {
    case .object where self["signed"] != nil: [self]
    case .object(let members): members.flatMap(\.value.signedParts)
    case .array(let elements): elements.flatMap(\.signedParts)
    default: []
    }
  }

  /// Why a signed part was refused; nil if it was verified.
  fileprivate var refusal: String? { self["detail"]?.string.map { "refused: \($0)" } }
}

extension SignedPart {
  func json(_ payload: (Value) -> JSONValue) -> JSONValue {
    .object([
      "signed": .string(jws), "verified": .bool(refusal == nil), "payload": value.map(payload),
      "reason": refusal.map { .string($0.reason.rawValue) },
      "detail": refusal.map { .string($0.description) },
    ])
  }
}

extension [SignedPart<SignedTransaction>] {
  var json: JSONValue { .array(map { $0.json(\.payload.json) }) }
}

extension SubscriptionStatuses {
  var json: JSONValue {
    .array(
      groups.map { group in
        .object([
          "subscriptionGroupIdentifier": group.identifier.map { .string($0) },
          "lines": .array(
            group.lines.map { line in
              .object([
                "originalTransactionId": line.originalTransactionID.map { .string($0.rawValue) },
                "status": line.status?.json,
                "transaction": line.transaction?.json(\.payload.json),
                "renewalInfo": line.renewalInfo?.json(\.payload.json),
              ])
            }),
        ])
      })
  }
}

extension SentNotification {
  var json: JSONValue {
    .object([
      "notification": notification?.json(\.payload.json),
      "transaction": notification?.value?.transaction?.payload.json,
      "renewalInfo": notification?.value?.renewalInfo?.payload.json,
      "sendAttempts": .array(attempts.map(\.json)),
    ])
  }
}

enum AppStoreText {
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
