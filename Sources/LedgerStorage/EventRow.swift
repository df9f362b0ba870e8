import Postgres
import Subscriptions

/// How events are stored: what they tell as JSON, in the names and forms of the HTTP API.
enum EventRow {
  /// Appends events in their order in one statement; none if there are none.
  static func insert(_ events: [LedgerEvent]) -> [SQL] {
    guard !events.isEmpty else { return [] }
    return [
      """
      INSERT INTO tenure.event (type, occurred_at, account_key, data)
      SELECT type, occurred_at, account_key, data
      FROM unnest(\(events.map(\.kind.rawValue)), \(events.map(\.occurredAt)),
        \(events.map(\.account)), \(events.map { text($0.data) }))
        WITH ORDINALITY AS event (type, occurred_at, account_key, data, number)
      ORDER BY number
      """
    ]
  }

  /// What an event tells, without what does not concern it.
  static func text(_ data: EventData) -> String {
    var json = EventText()
    json.object { json in
      json.present("environment", data.line?.environment.rawValue)
      json.present("original_transaction_id", data.line?.originalTransactionID.rawValue)
      json.present("transaction_id", data.transactionID?.rawValue)
      json.present("product_id", data.productID?.rawValue)
      json.present("previous_product_id", data.previousProductID?.rawValue)
      json.present("order_id", data.orderID)
      json.present("purchased_at", data.purchasedAt?.description)
      json.present("expires_at", data.expiresAt?.description)
      json.present("revoked_at", data.revokedAt?.description)
      json.present("grace_ends_at", data.graceEndsAt?.description)
      if let isOn = data.autoRenewing { json.member("auto_renewing", isOn) }
      json.present("auto_renew_product_id", data.autoRenewProductID?.rawValue)
      if let isOwner = data.isOwner { json.member("owned", isOwner) }
      json.present("rule", data.rule?.rawValue)
      json.present("because", data.because)
      json.present("counterpart", data.counterpart?.rawValue)
      if let entitlement = data.entitlement {
        json.key("entitlement")
        json.write(entitlement)
      }
      if let entitlements = data.entitlements {
        json.key("entitlements")
        json.array(entitlements) { $0.write($1) }
      }
    }
    return json.text
  }
}

/// Writes JSON as text, in the order in which it is told.
private struct EventText {
  private(set) var text = ""
  private var needsComma = false

  mutating func object(_ members: (inout EventText) -> Void) {
    enclose("{", "}", members)
  }

  mutating func array<Element>(_ elements: [Element], _ write: (inout EventText, Element) -> Void) {
    enclose("[", "]") { json in
      for element in elements {
        json.separate()
        write(&json, element)
      }
    }
  }

  private mutating func enclose(
    _ opening: Character, _ closing: Character, _ body: (inout EventText) -> Void
  ) {
    text.append(opening)
    needsComma = false
    body(&self)
    text.append(closing)
    needsComma = true
  }

  /// Writes the comma that belongs before what follows the first in an object or array.
  private mutating func separate() {
    if needsComma { text.append(",") }
    needsComma = true
  }

  /// Writes a member's name; its value follows.
  mutating func key(_ name: String) {
    separate()
    write(name)
    text.append(":")
  }

  mutating func member(_ name: String, _ value: Bool) {
    key(name)
    text.append(value ? "true" : "false")
  }

  /// Writes a member; a value of nil is `null`.
  mutating func member(_ name: String, _ value: String?) {
    key(name)
    if let value { write(value) } else { text.append("null") }
  }

  /// Writes a member unless its value is nil.
  mutating func present(_ name: String, _ value: String?) {
    if let value { member(name, value) }
  }

  /// Writes an entitlement as the answers of the HTTP API have it.
  mutating func write(_ entitlement: Entitlement) {
    object { json in
      json.member("entitlement", entitlement.name)
      json.member("active", entitlement.isActive)
      json.member("state", entitlement.state.rawValue)
      json.member("product_id", entitlement.productID?.rawValue)
      json.member("expires_at", entitlement.expiresAt?.description)
      json.member("access_ends_at", entitlement.accessEndsAt?.description)
      json.member("will_renew", entitlement.willRenew)
      json.member("period_type", entitlement.periodType.rawValue)
      json.member("environment", entitlement.environment?.rawValue)
      json.member("original_transaction_id", entitlement.originalTransactionID?.rawValue)
      json.member("transaction_id", entitlement.transactionID?.rawValue)
      json.member("source", entitlement.source.rawValue)
    }
  }

  /// Writes a string, with the escapes that RFC 8259 asks for and no others.
  private mutating func write(_ string: String) {
    text.append("\"")
    for scalar in string.unicodeScalars {
      switch scalar {
      case "\"": text.append("\\\"")
      case "\\": text.append("\\\\")
      case "\n": text.append("\\n")
      case "\r": text.append("\\r")
      case "\t": text.append("\\t")
      case "\u{0}"..<"\u{20}":
        let digits = String(scalar.value, radix: 16)
        text.append("\\u" + String(repeating: "0", count: 4 - digits.count) + digits)
      default: text.unicodeScalars.append(scalar)
      }
    }
    text.append("\"")
  }
}
