import AppStore
import Foundation
import Subscriptions
import Testing

/// The order of Apple's lists, and how often something is in them, means nothing.
struct EvidenceOrderTests {
  @Test(arguments: ["response1", "response2", "response3", "response4", "apple-answer", "mixed"])
  func `shuffled and doubled lists give the same evidence`(name: String) async throws {
    let seed = UInt64.random(in: 0 ... .max)
    var random = SplitMix64(seed: seed)
    let original =
      name == "mixed"
      ? Self.mixed : try JSONDecoder().decode(JSON.self, from: Data(try sample(name)))
    let expected = try await verified(original)
    for round in 1...20 {
      let other = try await verified(turned(original, &random))
      #expect(other.evidence == expected.evidence, "seed \(seed), round \(round)")
    }
    #expect(!expected.evidence.isEmpty)
  }

  /// Entries that contradict each other, on top of those that agree.
  private static let mixed: JSON = {
    var items: [JSON] = (0..<12).map { number in
      month.with([
        "transaction_id": .number(number), "purchase_date_ms": .number(1000 + number / 3 * 100),
        "original_transaction_id": .number(number % 2),
      ])
    }
    items += items.prefix(4).map { $0.with(["expires_date_ms": "4400", "quantity": .null]) }
    items += items.prefix(3).map { $0.with(["cancellation_date_ms": "2500"]) }
    items.append(month.with(["product_id": .null]))
    let renewals: [JSON] = (0..<4).map { number in
      [
        "original_transaction_id": .number(number % 2), "auto_renew_status": .number(number / 2),
        "product_id": "monthly",
      ]
    }
    return answer(
      inApp: .array(Array(items.prefix(9))), latest: .array(Array(items.dropFirst(5))),
      renewals: .array(renewals))
  }()

  private func verified(_ answer: JSON) async throws -> VerifiedReceipt {
    let transport = ScriptedTransport { _ in try .json(answer) }
    let apps = try apps("com.example.app", "com.revenuecat.sampleapp")
    let bundleID =
      answer["receipt"]["bundle_id"] == "com.revenuecat.sampleapp" ? nil : "com.example.app"
    return try await ReceiptVerifier(transport, apps: apps)
      .verify("cmVjZWlwdA==", bundleID: bundleID).verdict.receipt.dated
  }

  /// The same value with every list in another order and some of its entries twice.
  private func turned(_ value: JSON, _ random: inout SplitMix64) -> JSON {
    switch value {
    case .array(let entries):
      let turned = entries.map { self.turned($0, &random) }
      let doubled = turned.filter { _ in Bool.random(using: &random) }
      return .array((turned + doubled).shuffled(using: &random))
    case .object(let members):
      var turned: [String: JSON] = [:]
      for name in members.keys.sorted() { turned[name] = self.turned(value[name], &random) }
      return .object(turned)
    default: return value
    }
  }
}

extension VerifiedReceipt {
  /// Uses the same response date each time if Apple sends none.
  fileprivate var dated: VerifiedReceipt {
    guard requestDate >= answeredAt else { return self }
    var copy = self
    copy.requestDate = answeredAt
    for index in copy.records.indices where copy.records[index].asOf >= answeredAt {
      copy.records[index].asOf = answeredAt
    }
    for line in copy.statuses.keys { copy.statuses[line]?.asOf = answeredAt }
    return copy
  }
}

/// A generator whose every sequence can be had again from its seed.
struct SplitMix64: RandomNumberGenerator {
  private var state: UInt64

  init(seed: UInt64) { state = seed }

  mutating func next() -> UInt64 {
    state &+= 0x9e37_79b9_7f4a_7c15
    var mixed = state
    mixed = (mixed ^ (mixed >> 30)) &* 0xbf58_476d_1ce4_e5b9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94d0_49bb_1331_11eb
    return mixed ^ (mixed >> 31)
  }
}
