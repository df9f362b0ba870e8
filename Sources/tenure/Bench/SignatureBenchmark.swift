import AppStore
import AppStoreSimulator
import Crypto
import Foundation
import Logging
import Subscriptions

/// How many signed transactions and notifications are verified a second on one core, beside the
/// bare verification of their signatures.
struct SignatureBenchmark: Sendable {
  /// Issue 3: of what is signed by a known chain.
  private static let goal = 0.5
  /// How many different ones are verified in turn.
  private static let sampleCount = 256
  /// How often the clock is looked at.
  private static let batch = 64

  let seconds: Int
  let rounds: Int
  let logger: Logger

  func run() async throws -> [BenchResult] {
    let samples = try SignedSamples(count: Self.sampleCount)
    let bare = try samples.transactions.map { try BareSignature($0) }
    let warm = samples.verifier()
    var figures = Figures()
    for round in 0...rounds {
      // The first round warms up, and is short.
      let duration: Duration = round == 0 ? .milliseconds(200) : .seconds(seconds) / 5
      if round > 0 {
        logger.notice("Signatures", metadata: ["round": "\(round) of \(rounds)"])
      }
      let limit = try await rate(for: duration) { try bare[$0].verify() }
      let measured = Figures.Round(
        limit: limit,
        warmTransactions: try await rate(for: duration) {
          try SignedSamples.check(await warm.transaction(samples.transactions[$0]))
        },
        coldTransactions: try await rate(for: duration) {
          try SignedSamples.check(await samples.verifier().transaction(samples.transactions[$0]))
        },
        warmNotifications: try await rate(for: duration) {
          try SignedSamples.check(
            await warm.notification(samples.notifications[$0], receivedAt: samples.now))
        },
        coldNotifications: try await rate(for: duration) {
          try SignedSamples.check(
            await samples.verifier().notification(
              samples.notifications[$0], receivedAt: samples.now))
        })
      if round > 0 { figures.rounds.append(measured) }
    }
    return figures.results(goal: Self.goal)
  }

  /// Does the same with one sample after the other, for a time.
  private func rate(
    for duration: Duration, _ body: (Int) async throws -> Void
  ) async throws -> Double {
    let clock = ContinuousClock()
    let start = clock.now
    var count = 0
    repeat {
      try Task.checkCancellation()
      for _ in 0..<Self.batch {
        try await body(count % Self.sampleCount)
        count += 1
      }
    } while clock.now - start < duration
    return Double(count) / ((clock.now - start) / .seconds(1))
  }

  /// What each round found, a second.
  private struct Figures {
    struct Round {
      var limit: Double
      var warmTransactions: Double
      var coldTransactions: Double
      var warmNotifications: Double
      var coldNotifications: Double
    }

    var rounds: [Round] = []

    func results(goal: Double) -> [BenchResult] {
      let one = "one bare P-256 verification of swift-crypto"
      let three = "three of them, one for each signature"
      return [
        result("signed transactions, chain known", one, 1, goal, \.warmTransactions),
        result("signed transactions, chain new", one, 1, nil, \.coldTransactions),
        result(
          "notifications with two signed parts, chain known", three, 3, goal, \.warmNotifications),
        result(
          "notifications with two signed parts, chain new", three, 3, nil, \.coldNotifications),
      ]
    }

    private func result(
      _ name: String, _ limitName: String, _ signatures: Double, _ goal: Double?,
      _ rate: KeyPath<Round, Double>
    ) -> BenchResult {
      BenchResult(
        name: name, limitName: limitName, goal: goal,
        rounds: rounds.map {
          (Measurement(rate: $0[keyPath: rate]), Measurement(rate: $0.limit / signatures))
        })
    }
  }
}

/// What the simulated App Store has signed, and a verifier that believes it.
private struct SignedSamples: Sendable {
  let transactions: [String]
  let notifications: [String]
  let now = Timestamp(milliseconds: 1_790_000_000_000)
  private let roots: TrustedRoots
  private let apps: AppStoreApps

  /// Signs transactions of a subscription, and notifications of its renewals.
  init(count: Int) throws {
    let signer = try SimulatedSigner()
    roots = try TrustedRoots(pem: signer.rootCertificatePEM)
    apps = try AppStoreApps([AppStoreApp(bundleID: "com.example.tenure", appleID: 1_234_567_890)])
    var transactions: [String] = []
    var notifications: [String] = []
    for number in 0..<count {
      let transaction = signer.sign(Self.transaction(number))
      let renewalInfo = signer.sign(Self.renewalInfo(number))
      transactions.append(transaction)
      notifications.append(signer.sign(Self.notification(number, transaction, renewalInfo)))
    }
    self.transactions = transactions
    self.notifications = notifications
  }

  /// One that does not know the chain yet.
  func verifier() -> SignedDataVerifier {
    SignedDataVerifier(roots: roots, apps: apps, now: { now })
  }

  /// Makes sure that what is counted was accepted.
  static func check<Value>(_ result: Result<Value, SignedDataRefusal>) throws {
    if case .failure(let refusal) = result { throw BenchError.wrongAnswer("\(refusal)") }
  }

  /// With the fields that Apple writes of a usual renewal.
  private static func transaction(_ number: Int) -> JSONValue {
    [
      "transactionId": .string("\(2_000_000_000_000_000 + number)"),
      "originalTransactionId": .string("\(1_000_000_000_000_000 + number)"),
      "webOrderLineItemId": .string("\(3_000_000_000_000_000 + number)"),
      "bundleId": "com.example.tenure", "productId": "com.example.tenure.premium.monthly",
      "subscriptionGroupIdentifier": "20345678", "purchaseDate": 1_789_990_000_000,
      "originalPurchaseDate": 1_739_990_000_000, "expiresDate": 1_792_582_000_000, "quantity": 1,
      "type": "Auto-Renewable Subscription",
      "appAccountToken": "7e3fb20b-4cdb-47cc-936d-99d65f608138",
      "inAppOwnershipType": "PURCHASED", "signedDate": 1_789_999_999_000,
      "environment": "Production", "transactionReason": "RENEWAL", "storefront": "USA",
      "storefrontId": "143441", "price": 9990, "currency": "USD",
      "appTransactionId": "704123456789012345",
    ]
  }

  private static func renewalInfo(_ number: Int) -> JSONValue {
    [
      "originalTransactionId": .string("\(1_000_000_000_000_000 + number)"),
      "autoRenewProductId": "com.example.tenure.premium.monthly",
      "productId": "com.example.tenure.premium.monthly", "autoRenewStatus": 1,
      "renewalPrice": 9990, "currency": "USD", "signedDate": 1_789_999_999_000,
      "environment": "Production", "recentSubscriptionStartDate": 1_739_990_000_000,
      "renewalDate": 1_792_582_000_000,
      "appAccountToken": "7e3fb20b-4cdb-47cc-936d-99d65f608138",
      "appTransactionId": "704123456789012345",
    ]
  }

  private static func notification(
    _ number: Int, _ transaction: String, _ renewalInfo: String
  ) -> JSONValue {
    [
      "notificationType": "DID_RENEW",
      "notificationUUID": .string("002e14d5-51f5-4503-b5a8-\(100_000_000_000 + number)"),
      "data": [
        "appAppleId": 1_234_567_890, "bundleId": "com.example.tenure", "bundleVersion": "1.2.3",
        "environment": "Production", "signedTransactionInfo": .string(transaction),
        "signedRenewalInfo": .string(renewalInfo), "status": 1,
      ],
      "version": "2.0", "signedDate": 1_789_999_999_000,
    ]
  }
}

/// The one step that no verification can do without: of a digest that was made before, with a key
/// that was read before.
private struct BareSignature: Sendable {
  private let key: P256.Signing.PublicKey
  private let signature: P256.Signing.ECDSASignature
  private let digest: SHA256.Digest

  init(_ jws: String) throws {
    let key = P256.Signing.PrivateKey()
    self.key = key.publicKey
    digest = SHA256.hash(data: Data(jws.utf8))
    signature = try key.signature(for: digest)
  }

  func verify() throws {
    guard key.isValidSignature(signature, for: digest) else {
      throw BenchError.wrongAnswer("a bare signature")
    }
  }
}
