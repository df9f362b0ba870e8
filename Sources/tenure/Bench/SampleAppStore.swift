import AppStore
import AppStoreSimulator
import Crypto
import Foundation
import JSONText
import Secrets
import Subscriptions
import Synchronization

/// The App Store Server API as a simulated Apple in this process answers and signs it, for any of
/// the ``SampleCustomer``s, whose subscriptions are renewed as long as time goes on.
///
/// It keeps nothing about anybody: a million customers need no memory of it.
struct SampleAppStore: AppStoreTransport {
  private static let period: Duration = .days(30)
  private static let appAppleID: JSONValue = 1_234_567_890
  private static let group = "20345678"

  /// When everybody bought.
  let boughtAt: Timestamp
  let key: ServerAPIKey
  let trustedRoots: TrustedRoots
  private let signer: SimulatedSigner
  private let counter = Counter()
  private let now: @Sendable () -> Timestamp

  /// - Parameters:
  ///   - boughtAt: When everybody bought.
  ///   - now: The clock by which subscriptions are renewed.
  /// - Throws: What the cryptographic library throws; it has no reason to.
  init(boughtAt: Timestamp, now: @escaping @Sendable () -> Timestamp) throws {
    self.boughtAt = boughtAt
    self.now = now
    signer = try SimulatedSigner()
    trustedRoots = try TrustedRoots(pem: signer.rootCertificatePEM)
    key = try ServerAPIKey(
      issuerID: "57246542-96fe-1a63-e053-0824d011072a", keyID: "2X9R4HXF34",
      privateKey: Secret(P256.Signing.PrivateKey().pemRepresentation))
  }

  /// How often it was asked where a subscription stands: once for each poll.
  var polls: Int { counter.count.withLock { $0 } }

  private final class Counter: Sendable {
    let count = Mutex(0)
  }

  func send(_ request: AppStoreRequest) async throws -> AppStoreResponse {
    let parts = request.url.split(separator: "?")[0].split(separator: "/")
    guard let customer = parts.last.flatMap({ Int($0.suffix(10)) }).flatMap(SampleCustomer.init)
    else { throw AppStoreTransportError(.connectionFailed, detail: "nobody asks about this here") }
    let answer: JSONValue =
      switch parts.dropLast().last {
      case "history": history(of: customer)
      case "subscriptions": statuses(of: customer)
      default:
        throw AppStoreTransportError(.connectionFailed, detail: "nobody asks for this here")
      }
    if parts.dropLast().last == "subscriptions" { counter.count.withLock { $0 += 1 } }
    return AppStoreResponse(
      status: 200, headers: [HTTPHeader("Content-Type", "application/json")], body: answer.bytes)
  }

  // MARK: Answers

  /// How many times a subscription was renewed by now.
  private var renewals: Int {
    max(0, Int((now() - boughtAt) / Self.period))
  }

  private func history(of customer: SampleCustomer) -> JSONValue {
    [
      "appAppleId": Self.appAppleID, "bundleId": .string(SampleSubmission.bundleID),
      "environment": "Production", "hasMore": false,
      "revision": .string("\(now().milliseconds)_\(customer.number)"),
      "signedTransactions": .array([.string(transaction(of: customer, period: renewals))]),
    ]
  }

  private func statuses(of customer: SampleCustomer) -> JSONValue {
    [
      "appAppleId": Self.appAppleID, "bundleId": .string(SampleSubmission.bundleID),
      "environment": "Production",
      "data": [
        [
          "subscriptionGroupIdentifier": .string(Self.group),
          "lastTransactions": [
            [
              "originalTransactionId": .string(customer.originalTransactionID.rawValue),
              "status": 1,
              "signedTransactionInfo": .string(transaction(of: customer, period: renewals)),
              "signedRenewalInfo": .string(renewalInfo(of: customer, period: renewals)),
            ]
          ],
        ]
      ],
    ]
  }

  /// A charge as Apple signs it.
  ///
  /// - Parameters:
  ///   - customer: Whose.
  ///   - period: 0: the purchase; otherwise a renewal.
  /// - Returns: The JWS.
  func transaction(of customer: SampleCustomer, period: Int) -> String {
    let start = boughtAt + Self.period * period
    return signer.sign([
      "transactionId": .string("\(40_000 + period)\(customer.number)"),
      "originalTransactionId": .string(customer.originalTransactionID.rawValue),
      "webOrderLineItemId": .string("\(50_000 + period)\(customer.number)"),
      "bundleId": .string(SampleSubmission.bundleID),
      "productId": .string(SampleAccounts.productID.rawValue),
      "subscriptionGroupIdentifier": .string(Self.group),
      "purchaseDate": milliseconds(start),
      "originalPurchaseDate": milliseconds(boughtAt),
      "expiresDate": milliseconds(start + Self.period), "quantity": 1,
      "type": "Auto-Renewable Subscription", "inAppOwnershipType": "PURCHASED",
      "signedDate": milliseconds(now()), "environment": "Production",
      "transactionReason": period == 0 ? "PURCHASE" : "RENEWAL", "storefront": "USA",
      "storefrontId": "143441", "price": 9990, "currency": "USD",
    ])
  }

  func renewalInfo(of customer: SampleCustomer, period: Int) -> String {
    let product = JSONValue.string(SampleAccounts.productID.rawValue)
    return signer.sign([
      "originalTransactionId": .string(customer.originalTransactionID.rawValue),
      "autoRenewProductId": product, "productId": product, "autoRenewStatus": 1,
      "renewalPrice": 9990, "currency": "USD", "signedDate": milliseconds(now()),
      "environment": "Production",
      "recentSubscriptionStartDate": milliseconds(boughtAt),
      "renewalDate": milliseconds(boughtAt + Self.period * (period + 1)),
    ])
  }

  private func milliseconds(_ moment: Timestamp) -> JSONValue {
    .integer(moment.milliseconds)
  }
}
