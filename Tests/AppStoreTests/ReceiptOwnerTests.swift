import AppStore
import Testing

/// The app of a receipt: `bundle_id` or `bid` against the configured apps.
struct ReceiptOwnerTests {
  private func verify(
    _ answer: JSON, served: [String], named: String? = nil
  ) async throws -> (ReceiptVerdict, asked: Int) {
    let transport = ScriptedTransport { _ in try .json(answer) }
    let apps = try AppStoreApps(served.map { try AppStoreApp(bundleID: $0) })
    let verdict = await ReceiptVerifier(transport, apps: apps)
      .verify("cmVjZWlwdA==", bundleID: named).verdict
    return (verdict, transport.asked.count)
  }

  /// A flat receipt names its app as `bid`.
  static let flat: JSON = ["status": 0, "receipt": month.with(["bid": "a"])]
  static let listed = answer(latest: [month.with(["bid": "a"])], receipt: ["bundle_id": .null])
  static let appReceipt = answer(latest: [month], receipt: ["bundle_id": "a"])
  static let unnamed = answer(latest: [month], receipt: ["bundle_id": .null])
  static let empty = answer(latest: [month], receipt: ["bundle_id": ""])
  static let both = answer(latest: [month.with(["bid": "b"])], receipt: ["bundle_id": "a"])

  // swift-format-ignore
  @Test(arguments: [
    (appReceipt, ["a"],      nil, "a"),
    (appReceipt, ["a", "b"], nil, "a"),
    (appReceipt, ["a", "b"], "a", "a"),
    (appReceipt, ["a", "b"], "b", nil),
    (appReceipt, ["b"],      nil, nil),
    (appReceipt, ["A"],      nil, nil),
    (flat,       ["a"],      nil, "a"),
    (flat,       ["b"],      nil, nil),
    (listed,     ["a"],      nil, "a"),
    (listed,     ["b"],      nil, nil),
    (unnamed,    ["a"],      nil, "a"),
    (unnamed,    ["a", "b"], "b", "b"),
    (unnamed,    ["a", "b"], nil, nil),
    (both,       ["a", "b"], nil, nil),
    (empty,      ["a"],      nil, nil),
    (empty,      ["a"],      "a", nil),
  ] as [(JSON, [String], String?, String?)])
  func `only the receipts of served apps are accepted`(
    answer: JSON, served: [String], named: String?, owner: String?
  ) async throws {
    let (verdict, asked) = try await verify(answer, served: served, named: named)
    #expect(asked == 1)
    if let owner {
      #expect(try verdict.receipt.bundleID == owner)
    } else {
      #expect(verdict.rejection?.code == .wrongBundleID, "\(verdict)")
      #expect(verdict.rejection?.appleStatus == 0)
    }
  }

  @Test func `Apple is not asked for an app that isn't served`() async throws {
    let (verdict, asked) = try await verify(Self.appReceipt, served: ["a"], named: "b")
    #expect(asked == 0)
    #expect(verdict.rejection?.code == .wrongBundleID)
    #expect(verdict.rejection?.appleStatus == nil)
  }
}
