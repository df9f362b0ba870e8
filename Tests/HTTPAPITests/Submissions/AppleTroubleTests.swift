import AppStore
import AppStoreSimulator
import Foundation
import Intake
import JSONText
import Logging
import Postgres
import Subscriptions
import Testing

@testable import HTTPAPI

/// Submissions during faults of Apple's servers or of the network.
struct AppleTroubleTests {
  private static let receipt = "e3JlY2VpcHR9"

  /// A month of a subscription, bought on the simulation's first day.
  private static let month: JSONValue = [
    "quantity": "1", "product_id": "monthly", "transaction_id": "11",
    "original_transaction_id": "10", "web_order_line_item_id": "900",
    "purchase_date_ms": "1767225600000", "expires_date_ms": "1769904000000",
  ]

  private static func answer(
    _ items: JSONValue, renewals: JSONValue = [], receipt: JSONValue = [:], more: JSONValue = [:]
  ) -> [UInt8] {
    let body: JSONValue = [
      "bundle_id": .string(SimulatedApp.sample.bundleID), "in_app": [],
      "request_date_ms": "1767225601000",
    ]
    let answer: JSONValue = [
      "status": 0, "environment": "Production", "latest_receipt_info": items,
      "pending_renewal_info": renewals, "receipt": body.with(receipt),
    ]
    return answer.with(more).bytes
  }

  // MARK: Values of any size

  private static let long = JSONValue.string(String(repeating: "1", count: 129))
  private static let longer = JSONValue.string(String(repeating: "1", count: 256))
  private static let endless = JSONValue.string(String(repeating: "é", count: 100_000))
  private static let nul: JSONValue = "a\u{0}b"

  static let answers: [(String, [UInt8])] =
    [
      "transaction_id", "original_transaction_id", "web_order_line_item_id", "product_id",
      "cancellation_reason", "subscription_group_identifier", "promotional_offer_id",
      "offer_code_ref_name", "in_app_ownership_type", "app_account_token", "bid", "quantity",
      "expires_date", "purchase_date_ms", "cancellation_date_ms",
    ].flatMap { name in
      [long, longer, endless, nul, .integer(.max), .integer(.min), "-62167219200001"].enumerated()
        .map { index, value in
          ("\(name) \(index)", answer([month.with([.init(key: name, value: value)]), month]))
        }
    }
    + [
      "expiration_intent", "auto_renew_product_id", "original_transaction_id", "product_id",
      "grace_period_expires_date_ms",
    ].flatMap { name in
      [long, longer, endless, nul, .integer(40_000), .integer(.min)].enumerated()
        .map { index, value in
          let renewal: JSONValue = ["original_transaction_id": "10", "auto_renew_status": "1"]
          return (
            "renewal \(name) \(index)",
            answer([month], renewals: [renewal.with([.init(key: name, value: value)])])
          )
        }
    } + [
      ("bundle id", answer([month], receipt: ["bundle_id": endless])),
      ("bundle id with NUL", answer([month], receipt: ["bundle_id": nul])),
      ("bid", answer([month], receipt: ["bundle_id": .null, "bid": endless])),
      ("environment", answer([month], more: ["environment": endless])),
      ("status", answer([month], more: ["status": .integer(.max)])),
      ("status that is none", answer([month], more: ["status": .integer(21_002_000_000)])),
      (
        "cancellation",
        answer(
          [month],
          more: ["cancellation_date_ms": "1767225600000", "cancellation_reason": endless])
      ),
      (
        "no transaction id",
        answer([
          month.with([
            "transaction_id": .null,
            "original_transaction_id": .string(String(repeating: "1", count: 120)),
          ])
        ])
      ),
    ]

  @Test func `no value of Apple's is too large for us`() async throws {
    try await TestAPI.run { api in
      for (name, answer) in Self.answers {
        api.apple.answer(Self.receipt, with: answer)
        let submitted = try await api.submit("4711", receipt: Self.receipt)
        #expect([200, 202, 422].contains(submitted.status), "\(name): \(submitted)")
        let id = try #require(submitted["submission_id"]?.string)
        let state = try await api.get("/v1/receipts/\(id)", as: .admin)
        #expect(state.status == submitted.status, "\(name)")
        #expect(state["exchanges"]?.array?.count == 1, "\(name)")
      }
    }
  }

  @Test func `a cancellation whose reason can't be read is a cancellation`() async throws {
    try await TestAPI.run { api in
      let cancelled = Self.month.with([
        "cancellation_date_ms": "1767225700000", "cancellation_reason": Self.longer,
      ])
      api.apple.answer(Self.receipt, with: Self.answer([cancelled]))
      let answer = try await api.submit("4711", receipt: Self.receipt)
      #expect(answer["transactions"]?[0]["revoked_at"] == "2026-01-01T00:01:40.000Z")
    }
  }

  @Test(arguments: [
    ("0000-01-01T00:00:00+01:00", 200, 0), ("9999-12-31T23:59:59-01:00", 200, 0),
    ("9999-12-31T23:59:59Z", 200, 1), ("1970-01-01T00:00:00Z", 200, 1),
    ("0000-01-01T00:00:00Z", 200, 0), ("1969-12-31 23:59:59 Etc/GMT", 200, 0),
  ])
  func `dates that can't be written are not read`(
    text: String, status: Int, readable: Int
  ) async throws {
    try await TestAPI.run { api in
      try await api.describe("season", "season", type: .nonRenewing, period: "P100Y")
      let item = Self.month.with([
        "product_id": "season", "purchase_date_ms": .null, "expires_date_ms": .null,
        "original_purchase_date": .string(text), "purchase_date": .string(text),
      ])
      api.apple.answer(Self.receipt, with: Self.answer([item]))
      let answer = try await api.submit("4711", receipt: Self.receipt)
      #expect(answer.status == status, "\(answer)")
      let line = try await api.get("/v1/original-transactions/10")
      #expect(line.status == (readable == 0 ? 404 : 200), "\(line)")
    }
  }

  // MARK: Unreadable responses

  @Test func `unreadable data is verified again and not reported as empty`()
    async throws
  {
    let log = RecordedLog()
    try await TestAPI.run(logger: log.logger) { api in
      let unreadable = Self.month.with(["quantity": "many"])
      api.apple.answer(Self.receipt, with: Self.answer([unreadable]))
      let answer = try await api.submit("4711", receipt: Self.receipt)
      #expect(answer.status == 200)
      #expect(answer["warnings"] == ["unreadable_transaction"])
      #expect(log.lines.contains { $0.level == .error && $0.message.contains("Unreadable record") })

      let id = try #require(answer["submission_id"]?.string)
      let uuid = try #require(UUID(uuidString: id))
      #expect(try await api.intake.resume(uuid) != nil)
      api.apple.answer(Self.receipt, with: Self.answer([Self.month]))
      #expect(try await api.intake.resume(uuid) != nil)
      let decided = try await api.get("/v1/receipts/\(id)")
      #expect(decided["transactions"]?[0]["newly_owned"] == true)
      #expect(try await api.intake.resume(uuid) == nil)
    }
  }

  @Test func `an unreadable purchase is looked at again beside older ones that can be read`()
    async throws
  {
    try await TestAPI.run { api in
      let newer = Self.month.with([
        "transaction_id": "12", "web_order_line_item_id": "901",
        "purchase_date_ms": "1767225660000", "expires_date_ms": "1769904060000",
      ])
      api.apple.answer(
        Self.receipt, with: Self.answer([Self.month, newer.with(["quantity": "0"])]))
      let answer = try await api.submit("4711", receipt: Self.receipt)
      #expect(answer["warnings"] == ["unreadable_transaction", "unknown_product"])
      #expect(answer["transactions"]?[0]["newly_owned"] == true)

      let id = try #require(answer["submission_id"]?.string)
      api.apple.answer(Self.receipt, with: Self.answer([Self.month, newer]))
      #expect(try await api.intake.resume(try #require(UUID(uuidString: id))) != nil)
      let decided = try await api.get("/v1/receipts/\(id)")
      #expect(decided["warnings"] == ["unknown_product"])
      #expect(try await api.get("/v1/transactions/12")["owner_account_id"] == "4711")
      #expect(try await api.intake.resume(try #require(UUID(uuidString: id))) == nil)

      // An old one has been unreadable all along.
      api.apple.answer(
        Self.receipt, with: Self.answer([newer, Self.month.with(["quantity": "0"])]))
      let other = try await api.submit("4711", receipt: Self.receipt)
      #expect(other["warnings"] == ["unknown_product"])
      let old = try #require(other["submission_id"]?.string.flatMap(UUID.init(uuidString:)))
      #expect(try await api.intake.resume(old) == nil)
    }
  }

  @Test(arguments: ["latest_receipt_info", "latest_expired_receipt_info", "pending_renewal_info"])
  func `a text where a list should be is no answer`(list: String) async throws {
    try await TestAPI.run { api in
      let answer = Self.answer([Self.month], more: .object([.init(key: list, value: "none")]))
      api.apple.answer(Self.receipt, with: answer)
      let submitted = try await api.submit("4711", receipt: Self.receipt)
      #expect(submitted.status == 202, "\(submitted)")
    }
  }

  @Test func `a transaction can be named by an alias that the ledger knows`() async throws {
    try await TestAPI.run { api in
      let alias = Self.month.with(["transaction_id": "12"])
      api.apple.answer(Self.receipt, with: Self.answer([Self.month, alias]))
      let unclaimed = try await api.submit("4711", receipt: Self.receipt, ["transaction_id": "99"])
      #expect(unclaimed["transactions"] == [])
      api.apple.answer(Self.receipt, with: Self.answer([Self.month]))
      let named = try await api.submit("4711", receipt: Self.receipt, ["transaction_id": "12"])
      #expect(named["warnings"] == ["unknown_product"])
      #expect(named["transactions"]?.array?.count == 1)
      #expect(named["transactions"]?[0]["newly_owned"] == true)
      #expect(named["transactions"]?[0]["submitted_transaction_id"] == "12")
    }
  }

  @Test func `a named transaction that is not listed for a day counts as not named`() async throws {
    try await TestAPI.run { api in
      api.apple.answer(Self.receipt, with: Self.answer([Self.month]))
      let answer = try await api.submit("4711", receipt: Self.receipt, ["transaction_id": "12"])
      #expect(answer["warnings"] == ["transaction_not_in_receipt"])
      let id = try #require(answer["submission_id"]?.string)
      let uuid = try #require(UUID(uuidString: id))
      api.apple.simulation.advance(by: .hours(23))
      #expect(try await api.intake.resume(uuid) != nil)
      #expect(try await api.get("/v1/transactions/11")["owner_account_id"] == .null)
      api.apple.simulation.advance(by: .hours(1))
      #expect(try await api.intake.resume(uuid) != nil)
      let decided = try await api.get("/v1/receipts/\(id)")
      #expect(decided["transactions"]?[0]["newly_owned"] == true)
      #expect(decided["warnings"] == ["transaction_not_in_receipt", "unknown_product"])
      #expect(try await api.intake.resume(uuid) == nil)
    }
  }

  @Test func `what can't be read is given up after a day`() async throws {
    try await TestAPI.run { api in
      let unreadable = Self.month.with(["quantity": "many"])
      api.apple.answer(Self.receipt, with: Self.answer([unreadable]))
      let answer = try await api.submit("4711", receipt: Self.receipt)
      let id = try #require(answer["submission_id"]?.string.flatMap(UUID.init(uuidString:)))
      api.apple.simulation.advance(by: .days(2))
      #expect(try await api.intake.resume(id) != nil)
      #expect(try await api.intake.resume(id) == nil)
    }
  }

  @Test func `a named transaction of the future is in the receipt, though it is not claimed`()
    async throws
  {
    try await TestAPI.run { api in
      let future = Self.month.with(["purchase_date_ms": "1767398400000"])
      api.apple.answer(Self.receipt, with: Self.answer([future]))
      let answer = try await api.submit("4711", receipt: Self.receipt, ["transaction_id": "11"])
      #expect(answer["warnings"] == ["purchased_later"])
      #expect(answer["transactions"] == [])
      // It is looked at again for a day.
      let id = try #require(answer["submission_id"]?.string.flatMap(UUID.init(uuidString:)))
      #expect(try await api.intake.resume(id) != nil)
      api.apple.simulation.advance(by: .days(1))
      #expect(try await api.intake.resume(id) != nil)
      #expect(try await api.intake.resume(id) == nil)
      #expect(try await api.get("/v1/transactions/11")["owner_account_id"] == .null)

      let missing = try await api.submit("4711", receipt: Self.receipt, ["transaction_id": "12"])
      #expect(missing["warnings"] == ["transaction_not_in_receipt"])
    }
  }

  @Test func `a renewal that Apple charged early is claimed, and not looked for again`()
    async throws
  {
    try await TestAPI.run { api in
      let early = Self.month.with(["purchase_date_ms": "1767297600000"])
      api.apple.answer(Self.receipt, with: Self.answer([early]))
      let answer = try await api.submit("4711", receipt: Self.receipt)
      #expect(answer["warnings"] == ["unknown_product"])
      #expect(answer["transactions"]?[0]["newly_owned"] == true)
      let id = try #require(answer["submission_id"]?.string.flatMap(UUID.init(uuidString:)))
      #expect(try await api.intake.resume(id) == nil)
    }
  }

  @Test func `an old entry without a date is not looked for at every launch`() async throws {
    try await TestAPI.run { api in
      let old = Self.month.with(["transaction_id": "9", "purchase_date_ms": .null])
      api.apple.answer(Self.receipt, with: Self.answer([old, Self.month]))
      let answer = try await api.submit("4711", receipt: Self.receipt)
      #expect(answer["warnings"] == ["unknown_product"])
      let id = try #require(answer["submission_id"]?.string.flatMap(UUID.init(uuidString:)))
      #expect(try await api.intake.resume(id) == nil)
    }
  }

  @Test func `Apple's answer shows that our clock is slow`() async throws {
    try await TestAPI.run { api in
      // Bought ten minutes ahead of our clock, which Apple's answer says is as slow.
      let late = Self.month.with(["purchase_date_ms": "1767226200001"])
      api.apple.answer(
        Self.receipt,
        with: Self.answer([late], receipt: ["request_date_ms": "1767226205000"]))
      let answer = try await api.submit("4711", receipt: Self.receipt)
      #expect(answer["warnings"] == ["unknown_product"])
      #expect(answer["transactions"]?[0]["newly_owned"] == true)
    }
  }

  @Test func `aliases are newly owned once`() async throws {
    try await TestAPI.run { api in
      let alias = Self.month.with(["transaction_id": "12"])
      api.apple.answer(Self.receipt, with: Self.answer([Self.month, alias]))
      let answer = try await api.submit("4711", receipt: Self.receipt, ["restore": true])
      let newlyOwned = answer["transactions"]?.array?.map { $0["newly_owned"] == true }
      #expect(newlyOwned == [true, false], "\(answer)")
    }
  }

  // MARK: Apple in trouble

  @Test func `an error of any length is no error of ours`() async throws {
    try await TestAPI.run { api in
      api.apple.setDown(true, because: "a\u{0}\n" + String(repeating: "👩‍👩‍👧‍👦 refused, ", count: 500))
      let answer = try await api.submit("4711", receipt: Self.receipt)
      #expect(answer.status == 202, "\(answer)")
      let id = try #require(answer["submission_id"]?.string)
      let state = try await api.get("/v1/receipts/\(id)", as: .admin)
      let fault = try #require(state["exchanges"]?[0]["fault"]?.string)
      #expect(fault.unicodeScalars.count == 1000)
      #expect(fault.contains("refused"))
      #expect(!fault.unicodeScalars.contains { $0.properties.generalCategory == .control })
    }
  }

  @Test func `21002 rejects a receipt after a day of it, and not for other troubles`()
    async throws
  {
    try await TestAPI.run { api in
      api.apple.setDown(true)
      let submitted = try await api.submit("4711", receipt: Self.receipt)
      let id = try #require(submitted["submission_id"]?.string.flatMap(UUID.init(uuidString:)))
      for _ in 0..<20 {
        api.apple.simulation.advance(by: .hours(3))
        _ = try await api.intake.resume(id)
      }
      api.apple.setDown(false)
      api.apple.answer(Self.receipt, with: Array(#"{"status":21002}"#.utf8))
      for attempt in 1...12 {
        let state = try await api.get("/v1/receipts/\(id)")
        #expect(state.status == 202, "\(attempt)")
        api.apple.simulation.advance(by: .hours(3))
        _ = try await api.intake.resume(id)
      }
      let state = try await api.get("/v1/receipts/\(id)")
      #expect(state.status == 422)
      #expect(state["apple_status"] == 21002)
    }
  }

  @Test func `what was given up has no next attempt, and says how to start it again`()
    async throws
  {
    try await TestAPI.run { api in
      api.apple.setDown(true)
      let submitted = try await api.submit("4711", receipt: Self.receipt)
      let id = try #require(submitted["submission_id"]?.string)
      _ = try await api.database.execute(
        "UPDATE tenure.submission SET retry_at = NULL WHERE submission_id::text = \(id)")
      let state = try await api.get("/v1/receipts/\(id)")
      #expect(state.status == 202)
      #expect(state["status"] == "pending")
      #expect(state["retry_at"] == nil)
      let detail = try #require(state["detail"]?.string)
      #expect(detail.contains("Given up after 30 days"))
      #expect(detail.contains("tenure jobs retry"))
      #expect(detail.contains("Could not connect to Apple"))
    }
  }
}

extension JSONValue {
  /// This object with other members; those that are null are left out.
  fileprivate func with(_ others: JSONValue) -> JSONValue {
    with(others.members.map { Member(key: $0.key, value: $0.value) })
  }

  fileprivate func with(_ others: [Member]) -> JSONValue {
    let names = Set(others.map(\.key.rawValue))
    let kept = members.filter { !names.contains($0.key) }
      .map { Member(key: $0.key, value: $0.value) }
    return .object(kept + others.filter { $0.value != .null })
  }
}
