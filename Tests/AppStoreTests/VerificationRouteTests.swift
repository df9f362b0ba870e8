import AppStore
import Secrets
import Subscriptions
import Synchronization
import Testing

/// The order of endpoints and secrets, and when to stop.
struct VerificationRouteTests {
  /// Each endpoint's responses, visit by visit, with the expected requests and verdict.
  struct Hop: CustomTestStringConvertible, Sendable {
    var production: [JSON]
    var sandbox: [JSON] = []
    var asked: [String]
    var end: String
    var testDescription: String { asked.joined(separator: ", ") + ": " + end }
  }

  static let good = answer(latest: [month])
  static let fromSandbox = good.with(["environment": "Sandbox"])
  static let unnamed = good.with(["environment": .null])

  static let hops = [
    Hop(production: [good], asked: ["production"], end: "production"),
    Hop(production: [unnamed], asked: ["production"], end: "production"),
    Hop(
      production: [["status": 21007]], sandbox: [fromSandbox], asked: ["production", "sandbox"],
      end: "sandbox"),
    Hop(
      production: [["status": 21007]], sandbox: [unnamed], asked: ["production", "sandbox"],
      end: "sandbox"),
    // A decoded receipt that comes with 21007 is ignored.
    Hop(
      production: [answer(latest: [month], status: 21007)], sandbox: [["status": 21003]],
      asked: ["production", "sandbox"], end: "rejected"),
    Hop(
      production: [["status": 21007], good], sandbox: [["status": 21008]],
      asked: ["production", "sandbox", "production"], end: "production"),
    Hop(
      production: [["status": 21007], ["status": 21007]], sandbox: [["status": 21008]],
      asked: ["production", "sandbox", "production"], end: "retry"),
    // Each says so of itself: the URLs are exchanged.
    Hop(production: [["status": 21008]], asked: ["production"], end: "misconfigured"),
    Hop(
      production: [["status": 21007]], sandbox: [["status": 21007]],
      asked: ["production", "sandbox"], end: "misconfigured"),
    // An endpoint that vouches for the other environment is not believed.
    Hop(
      production: [fromSandbox], sandbox: [fromSandbox], asked: ["production", "sandbox"],
      end: "sandbox"),
    Hop(
      production: [fromSandbox, fromSandbox], sandbox: [good],
      asked: ["production", "sandbox", "production"], end: "retry"),
    Hop(
      production: [good.with(["environment": "Xcode"])], asked: ["production"], end: "retry"),
    Hop(
      production: [["status": 21007]], sandbox: [["status": 21005]],
      asked: ["production", "sandbox"], end: "retry"),
  ]

  @Test(arguments: hops)
  func `production first, then where Apple points, and never for ever`(_ hop: Hop) async throws {
    let visits = Mutex(["production": hop.production[...], "sandbox": hop.sandbox[...]])
    let transport = ScriptedTransport { asked in
      let next = visits.withLock { $0[asked.endpoint]?.popFirst() }
      return try .json(try #require(next, "asked once too often"))
    }
    let verifier = ReceiptVerifier(transport, apps: try apps("com.example.app"))
    let verification = await verifier.verify("cmVjZWlwdA==")
    #expect(transport.asked.map(\.summary) == hop.asked)
    #expect(verification.exchanges.map(\.endpoint.rawValue) == hop.asked)
    #expect(end(verification.verdict) == hop.end, "\(verification.verdict)")
    if case .verified(let receipt) = verification.verdict {
      #expect(receipt.evidence.allSatisfy { $0.line.environment == receipt.environment })
    }
  }

  /// The requests for apps a (secret `aa`), b (`bb`), c (`aa` again) and d (none).
  struct Secrets: CustomTestStringConvertible, Sendable {
    var named: String?
    /// The app in the receipt, the passwords that Apple takes, and whether it is from the sandbox.
    var receipt: String
    var fitting: [String?]
    var isSandbox = false
    var asked: [String]
    var end: String
    var testDescription: String { "\(named ?? "-"), \(receipt): \(asked)" }
  }

  static let secrets = [
    Secrets(receipt: "a", fitting: ["aa"], asked: ["production/aa"], end: "production"),
    Secrets(
      receipt: "b", fitting: ["bb"], asked: ["production/aa", "production/bb"], end: "production"),
    Secrets(
      receipt: "d", fitting: [nil], asked: ["production/aa", "production/bb", "production"],
      end: "production"),
    Secrets(
      receipt: "a", fitting: ["old"], asked: ["production/aa", "production/bb", "production"],
      end: "misconfigured"),
    Secrets(named: "b", receipt: "b", fitting: ["bb"], asked: ["production/bb"], end: "production"),
    Secrets(
      named: "c", receipt: "c", fitting: ["aa"], asked: ["production/aa"], end: "production"),
    Secrets(
      named: "b", receipt: "a", fitting: ["aa"], asked: ["production/bb", "production/aa"],
      end: "rejected"),
    Secrets(
      receipt: "b", fitting: ["bb"], isSandbox: true,
      asked: ["production/aa", "sandbox/aa", "sandbox/bb"], end: "sandbox"),
    Secrets(
      receipt: "a", fitting: ["old"], isSandbox: true,
      asked: ["production/aa", "sandbox/aa", "sandbox/bb", "sandbox"], end: "misconfigured"),
  ]

  @Test(arguments: secrets)
  func `with several apps the secret is found, each tried once`(_ row: Secrets) async throws {
    let transport = ScriptedTransport { [row] asked in
      if row.isSandbox, asked.endpoint == "production" { return try .json(["status": 21007]) }
      guard row.fitting.contains(asked.body.password) else {
        return try .json(["status": 21004])
      }
      return try .json(
        answer(latest: [month], receipt: ["bundle_id": .text(row.receipt)])
          .with(["environment": .null]))
    }
    let apps = try AppStoreApps([
      try AppStoreApp(bundleID: "a", sharedSecret: "aa"),
      try AppStoreApp(bundleID: "b", sharedSecret: "bb"),
      try AppStoreApp(bundleID: "c", sharedSecret: "aa"),
      try AppStoreApp(bundleID: "d"),
    ])
    let verification = await ReceiptVerifier(transport, apps: apps)
      .verify("cmVjZWlwdA==", bundleID: row.named)
    #expect(transport.asked.map(\.summary) == row.asked)
    #expect(end(verification.verdict) == row.end, "\(verification.verdict)")
    if case .verified(let receipt) = verification.verdict {
      #expect(receipt.bundleID == row.receipt)
    }
  }

  @Test func `each endpoint is asked with every secret, whatever the other said`() async throws {
    let statuses: [String: JSON] = [
      "production/aa": 21004, "production/bb": 21007, "sandbox/bb": 21004,
    ]
    let transport = ScriptedTransport { asked in
      guard let status = statuses[asked.summary] else {
        return try .json(
          answer(latest: [month], receipt: ["bundle_id": "a"]).with(
            ["environment": "Sandbox"]))
      }
      return try .json(["status": status])
    }
    let apps = try AppStoreApps([
      try AppStoreApp(bundleID: "a", sharedSecret: "aa"),
      try AppStoreApp(bundleID: "b", sharedSecret: "bb"),
    ])
    let verdict = await ReceiptVerifier(transport, apps: apps).verify("cmVjZWlwdA==").verdict
    #expect(
      transport.asked.map(\.summary)
        == ["production/aa", "production/bb", "sandbox/bb", "sandbox/aa"])
    #expect(try verdict.receipt.environment == .sandbox)
  }

  @Test func `an app without a secret gives way to that of the receipt's app`() async throws {
    let transport = ScriptedTransport { asked in
      try .json(
        answer(latest: asked.body.password == nil ? .null : [month], receipt: ["bundle_id": "b"]))
    }
    let apps = try AppStoreApps([
      try AppStoreApp(bundleID: "a"), try AppStoreApp(bundleID: "b", sharedSecret: "bb"),
    ])
    let verdict = await ReceiptVerifier(transport, apps: apps).verify("cmVjZWlwdA==").verdict
    #expect(transport.asked.map(\.summary) == ["production", "production/bb"])
    #expect(try verdict.receipt.records.count == 1)
  }

  @Test func `the alarm names the app and what is wrong, and no secret`() async throws {
    let transport = ScriptedTransport { _ in try .json(["status": 21004]) }
    let wrong = try AppStoreApp(bundleID: "com.example.app", sharedSecret: "5ec4e7")
    let none = try AppStoreApp(bundleID: "com.example.app")
    for (app, words) in [(wrong, "rejected"), (none, "none is configured")] {
      let verdict = await ReceiptVerifier(transport, apps: try AppStoreApps([app]))
        .verify("cmVjZWlwdA==").verdict
      let reason = try #require(verdict.misconfiguration?.reason)
      #expect(reason.contains("com.example.app") && reason.contains(words), "\(reason)")
      #expect(!reason.contains("5ec4e7"))
    }
  }

  private func end(_ verdict: ReceiptVerdict) -> String {
    switch verdict {
    case .verified(let receipt): receipt.environment.rawValue
    case .rejected: "rejected"
    case .retry: "retry"
    case .misconfigured: "misconfigured"
    }
  }
}
