import AppStore
import AppStoreSimulator
import Crypto
import Foundation
import JSONText
import Logging
import Subscriptions

/// Signed transactions and notifications verified a second on one core, compared with the bare
/// verification of their signatures.
struct SignatureBenchmark: Sendable {
  /// For data signed by a known certificate chain.
  private static let goal = 0.5
  /// The number of different samples.
  private static let sampleCount = 256
  /// Verifications between two readings of the clock.
  private static let batch = 16
  /// The time for one kind before the next one's turn.
  private static let turn: Duration = .milliseconds(50)

  let seconds: Int
  let rounds: Int
  let logger: Logger

  func run() async throws -> [BenchResult] {
    let samples = try SignedSamples(count: Self.sampleCount)
    let bare = try samples.transactions.map { try BaselineSignature($0) }
    let warm = samples.verifier()
    let (transactions, notifications, now) = (
      samples.transactions, samples.notifications, samples.now
    )
    let kinds: [@Sendable (Int) async throws -> Void] = [
      { try bare[$0].verify() },
      { try SignedSamples.check(await warm.transaction(transactions[$0])) },
      { try SignedSamples.check(await samples.verifier().transaction(transactions[$0])) },
      { try SignedSamples.check(await warm.notification(notifications[$0], receivedAt: now)) },
      {
        try SignedSamples.check(
          await samples.verifier().notification(notifications[$0], receivedAt: now))
      },
    ]
    _ = try await rates(of: kinds, turns: 1)
    var rounds: [[Double]] = []
    for round in 1...self.rounds {
      logger.notice("Signatures", metadata: ["round": "\(round) of \(self.rounds)"])
      let turns = max(1, Int(.seconds(seconds) / (Self.turn * Double(kinds.count))))
      rounds.append(try await rates(of: kinds, turns: turns))
    }
    let (one, three) = (
      "one bare P-256 verification by swift-crypto, of a precomputed digest",
      "three of them, one for each signature"
    )
    return [
      result("signed transactions, chain known", rounds, 1, of: 1, one, Self.goal),
      result("signed transactions, chain new", rounds, 2, of: 1, one, nil),
      result(
        "notifications with two signed parts, chain known", rounds, 3, of: 3, three, Self.goal),
      result("notifications with two signed parts, chain new", rounds, 4, of: 3, three, nil),
    ]
  }

  /// Verifications a second of each kind, in short turns so that other load slows all kinds alike.
  private func rates(
    of kinds: [@Sendable (Int) async throws -> Void], turns: Int
  ) async throws -> [Double] {
    let clock = ContinuousClock()
    var counts = kinds.map { _ in 0 }
    var times = kinds.map { _ in Duration.zero }
    for _ in 0..<turns {
      for (kind, work) in kinds.enumerated() {
        let start = clock.now
        repeat {
          try Task.checkCancellation()
          for _ in 0..<Self.batch {
            try await work(counts[kind] % Self.sampleCount)
            counts[kind] += 1
          }
        } while clock.now - start < Self.turn
        times[kind] += clock.now - start
      }
    }
    return zip(counts, times).map { Double($0) / ($1 / .seconds(1)) }
  }

  private func result(
    _ name: String, _ rounds: [[Double]], _ kind: Int, of signatures: Double, _ limitName: String,
    _ goal: Double?
  ) -> BenchResult {
    BenchResult(
      name: name, limitName: limitName, goal: goal,
      rounds: rounds.map {
        (Measurement(rate: $0[kind]), Measurement(rate: $0[0] / signatures))
      })
  }
}

/// Data signed by the simulated App Store, and a verifier that trusts it.
private struct SignedSamples: Sendable {
  let transactions: [String]
  let notifications: [String]
  let now = Timestamp(milliseconds: 1_790_000_000_000)
  private let roots: TrustedRoots
  private let apps: AppStoreApps

  /// Signs subscription transactions and notifications of their renewals.
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

  /// A verifier that doesn't know the certificate chain yet.
  func verifier() -> SignedDataVerifier {
    SignedDataVerifier(roots: roots, apps: apps, now: { now })
  }

  /// Checks that the data was accepted.
  static func check<Value>(_ result: Result<Value, SignedDataError>) throws {
    if case .failure(let refusal) = result { throw BenchError.wrongAnswer("\(refusal)") }
  }

  /// The usual fields of a renewal.
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

/// The minimum of any verification: of a precomputed digest with a parsed key.
private struct BaselineSignature: Sendable {
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
