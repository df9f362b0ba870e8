import AppStore
import Foundation
import JSONText
import Subscriptions
import Testing

/// Evidence derived from signed data.
struct SignedEvidenceTests {
  private static let line = OriginalTransactionKey(.production, "10")
  private static let signedAt = Timestamp(milliseconds: 1_748_779_199_000)
  private static let token = "7E3FB20B-4CDB-47CC-936D-99D65F608138"

  /// Changes to a payload, and their effect on its meaning.
  struct Row<Meaning>: Sendable, CustomTestStringConvertible {
    let changes: [String: JSONValue?]
    let change: @Sendable (inout Meaning) -> Void

    init(
      _ changes: [String: JSONValue?],
      _ change: @escaping @Sendable (inout Meaning) -> Void = { _ in }
    ) {
      self.changes = changes
      self.change = change
    }

    var testDescription: String { "\(changes)" }
  }

  private func record(_ changes: [String: JSONValue?]) async throws -> TransactionRecord {
    let text = try DraftJWS(Signed.transaction.with(changes)).text
    return try await Signed.verifier().transaction(text).get().record
  }

  private func renewalInfo(_ changes: [String: JSONValue?]) async throws -> SignedRenewalInfo {
    let text = try DraftJWS(Signed.renewalInfo.with(changes)).text
    return try await Signed.verifier().renewalInfo(text).get()
  }

  private static let expected = TransactionRecord(
    key: TransactionKey(line: line, transactionID: "11", productID: "monthly"), asOf: signedAt,
    kind: .purchase, purchaseDate: at(1_748_779_000_000),
    originalPurchaseDate: at(1_740_000_000_000), expiresDate: at(1_751_371_000_000),
    webOrderLineItemID: "900", productType: .autoRenewable, subscriptionGroup: "20000001",
    quantity: 1, storefront: "USA", revocation: .notRevoked, priceMilliunits: 9990, currency: "USD")

  // swift-format-ignore
  private static let transactions: [Row<TransactionRecord>] = [
    Row([:]),
    Row(["transactionReason": "RENEWAL"])                    { $0.kind = .renewal },
    Row(["transactionReason": "INVENTED"])                   { $0.kind = .unknown },
    Row(["transactionReason": nil])                          { $0.kind = .unknown },
    Row(["type": "Non-Consumable", "expiresDate": nil])      { $0.productType = .nonConsumable; $0.expiresDate = nil },
    Row(["type": "Consumable", "expiresDate": nil])          { $0.productType = .consumable; $0.expiresDate = nil },
    Row(["type": "Non-Renewing Subscription", "expiresDate": nil]) { $0.productType = .nonRenewing; $0.expiresDate = nil },
    Row(["type": "Invented"])                                { $0.productType = nil },
    Row(["type": nil])                                       { $0.productType = nil },
    Row(["quantity": 3])                                     { $0.quantity = 3 },
    Row(["quantity": nil])                                   { $0.quantity = 1 },
    Row(["price": nil, "currency": nil])                     { $0.priceMilliunits = nil; $0.currency = nil },
    Row(["price": 1_000_000_000_000])                        { $0.priceMilliunits = 1_000_000_000_000 },
    Row(["price": 1_000_000_000_001])                        { $0.priceMilliunits = nil },
    Row(["price": -1])                                       { $0.priceMilliunits = nil },
    Row(["currency": ""])                                    { $0.currency = nil },
    Row(["webOrderLineItemId": nil])                         { $0.webOrderLineItemID = nil },
    Row(["webOrderLineItemId": "0"])                         { $0.webOrderLineItemID = nil },
    Row(["webOrderLineItemId": ""])                          { $0.webOrderLineItemID = nil },
    Row(["originalTransactionId": 10, "transactionId": 11]),
    Row(["subscriptionGroupIdentifier": nil])                { $0.subscriptionGroup = nil },
    Row(["appAccountToken": .string(token)])                 { $0.appAccountToken = UUID(uuidString: token) },
    Row(["appAccountToken": .string(token.lowercased())])    { $0.appAccountToken = UUID(uuidString: token) },
    Row(["appAccountToken": "no UUID"])                      { $0.appAccountToken = nil },
    Row(["inAppOwnershipType": "FAMILY_SHARED"])             { $0.ownershipType = .familyShared },
    Row(["inAppOwnershipType": "INVENTED"])                  { $0.ownershipType = .purchased },
    Row(["offerType": 1, "offerDiscountType": "FREE_TRIAL"]) { $0.periodType = .trial; $0.offerType = .introductory },
    Row(["offerType": 3, "offerDiscountType": "FREE_TRIAL"]) { $0.periodType = .trial; $0.offerType = .offerCode },
    Row(["offerType": 1, "offerDiscountType": "PAY_AS_YOU_GO"]) { $0.periodType = .intro; $0.offerType = .introductory },
    Row(["offerType": 1, "offerDiscountType": "PAY_UP_FRONT"]) { $0.periodType = .intro; $0.offerType = .introductory },
    Row(["offerType": 1])                                    { $0.periodType = .intro; $0.offerType = .introductory },
    Row(["offerType": 2, "offerIdentifier": "o"])            { $0.periodType = .offer; $0.offerType = .promotional; $0.offerID = "o" },
    Row(["offerType": 3, "offerIdentifier": "o"])            { $0.periodType = .offer; $0.offerType = .offerCode; $0.offerID = "o" },
    Row(["offerType": 4, "offerIdentifier": "o"])            { $0.periodType = .offer; $0.offerType = .winBack; $0.offerID = "o" },
    Row(["storefront": "DEU"])                               { $0.storefront = "DEU" },
    Row(["storefront": "Germany"])                           { $0.storefront = nil },
    Row(["storefront": nil])                                 { $0.storefront = nil },
    Row(["offerType": 9])                                    { $0.periodType = .offer },
    Row(["isUpgraded": true])                                { $0.isUpgraded = true },
    Row(["isUpgraded": false])                               { $0.isUpgraded = false },
    Row(["revocationDate": 5, "revocationReason": 1])        { $0.revocation = .revoked(at: at(5), reason: "1") },
    Row(["revocationDate": 5])                               { $0.revocation = .revoked(at: at(5), reason: nil) },
    Row(["revocationDate": 5, "revocationType": "REFUND_PRORATED", "revocationPercentage": 67_932]) { $0.revocation = .revoked(Revocation(at: at(5), reason: nil, type: "REFUND_PRORATED", percentage: 67_932)) },
    Row(["revocationReason": 1])                             { $0.revocation = .notRevoked },
    Row(["billingPlanType": "MONTHLY"])                      { $0.isCommitment = true },
    Row(["billingPlanType": "BILLED_UPFRONT"])               { $0.isCommitment = false },
    Row(["commitmentInfo": ["billingPeriodNumber": 3]])      { $0.isCommitment = true },
    Row(["signedDate": 1_748_779_198_000])                   { $0.asOf = at(1_748_779_198_000) },
  ]

  @Test(arguments: transactions)
  func `a transaction`(_ row: Row<TransactionRecord>) async throws {
    var expected = Self.expected
    row.change(&expected)
    #expect(try await record(row.changes) == expected)
  }

  // swift-format-ignore
  @Test(arguments: [(nil, nil), ("", nil), ("10", nil), ("9", "9")] as [(String?, String?)])
  func `an original transaction that continues another`(named: String?, previous: String?) async throws {
    let changes = ["previousOriginalTransactionId": named.map { JSONValue.string($0) }]
    let text = try DraftJWS(Signed.transaction.with(changes)).text
    let evidence = try await Signed.verifier().transaction(text).get().evidence
    let links = previous.map {
      [Evidence.link(line: Self.line, previous: OriginalTransactionKey(.production, OriginalTransactionID($0)))]
    }
    #expect(evidence == [.transaction(Self.expected)] + (links ?? []))
  }

  /// Signed at `signedAt`; the paid period ends at the transaction's expiry or the renewal date,
  /// in milliseconds before or after that, whichever is later.
  // swift-format-ignore
  @Test(arguments: [
    ([:],                                          nil,   nil,  .undisturbed),
    (["expirationIntent": 1],                      nil,   nil,  nil),
    (["expirationIntent": 1],                      -1,    nil,  .expired),
    (["expirationIntent": 1],                      0,     nil,  .expired),
    (["expirationIntent": 1],                      1,     nil,  .undisturbed),
    (["expirationIntent": 1],                      nil,   -1,   .expired),
    (["expirationIntent": 1],                      nil,   1,    .undisturbed),
    // The refund of an old period comes with what holds of the current one.
    (["expirationIntent": 1],                      -9000, 1,    .undisturbed),
    (["expirationIntent": 1],                      1,     -9000, .undisturbed),
    (["isInBillingRetryPeriod": true],             -1,    -1,   .billingRetry),
    (["isInBillingRetryPeriod": true, "expirationIntent": 2], -1, -1, .billingRetry),
    (["isInBillingRetryPeriod": false, "expirationIntent": 2], -1, -1, .expired),
    (["isInBillingRetryPeriod": true, "gracePeriodExpiresDate": 1_748_779_199_001], -1, -1, .gracePeriod(until: at(1_748_779_199_001))),
    (["gracePeriodExpiresDate": 1_748_779_199_000], -1,   -1,   .billingRetry),
    (["gracePeriodExpiresDate": 1_748_779_199_500], 600,  -1,   .undisturbed),
  ] as [([String: JSONValue?], Int64?, Int64?, RenewalStatus.Phase?)])
  func `the phase of a renewal info`(
    changes: [String: JSONValue?], expires: Int64?, renewal: Int64?, phase: RenewalStatus.Phase?
  ) async throws {
    let moment = Self.signedAt.milliseconds
    let dated = changes.merging(["renewalDate": renewal.map { .integer(moment + $0) }]) { $1 }
    var latest = Self.expected
    latest.expiresDate = expires.map { at(moment + $0) }
    #expect(try await renewalInfo(dated).status(latest: latest).phase == phase)
    if expires == nil {
      #expect(try await renewalInfo(dated).status(latest: nil).phase == phase)
    }
  }

  private static let status = RenewalStatus(
    asOf: signedAt, autoRenews: true, phase: .undisturbed, autoRenewProductID: "monthly")

  // swift-format-ignore
  private static let renewalInfos: [Row<RenewalStatus>] = [
    Row([:]),
    Row(["autoRenewStatus": 0])                              { $0.autoRenews = false },
    Row(["autoRenewStatus": nil])                            { $0.autoRenews = nil },
    Row(["autoRenewProductId": "yearly"])                    { $0.autoRenewProductID = "yearly" },
    Row(["autoRenewProductId": nil])                         { $0.autoRenewProductID = nil },
    Row(["expirationIntent": 3])                             { $0.expirationIntent = 3 },
    Row(["appAccountToken": .string(token)])                 { $0.appAccountToken = UUID(uuidString: token) },
    Row(["appAccountToken": "no UUID"]),
    Row(["renewalBillingPlanType": "MONTHLY"])               { $0.isCommitment = true },
    Row(["renewalBillingPlanType": "BILLED_UPFRONT"]),
    // Given notice: the payments that are still owed renew all the same.
    Row(["commitmentInfo": ["commitmentAutoRenewStatus": 0]]) { $0.isCommitment = true },
  ]

  @Test(arguments: renewalInfos)
  func `a renewal info`(_ row: Row<RenewalStatus>) async throws {
    var expected = Self.status
    row.change(&expected)
    #expect(try await renewalInfo(row.changes).status(latest: nil) == expected)
  }

  @Test func `a transaction of another original transaction does not affect the phase`()
    async throws
  {
    let info = try await renewalInfo(["expirationIntent": 1, "renewalDate": nil])
    var other = Self.expected
    other.key = TransactionKey(
      line: OriginalTransactionKey(.production, "20"), transactionID: "11", productID: "monthly")
    #expect(info.status(latest: other).phase == nil)
  }

  /// A charge whose transaction does not say why it was made is of the notification's kind.
  // swift-format-ignore
  @Test(arguments: [
    ("DID_RENEW",                 nil,                .renewal),
    ("DID_RENEW",                 "BILLING_RECOVERY", .renewal),
    ("SUBSCRIBED",                "INITIAL_BUY",      .purchase),
    ("SUBSCRIBED",                "RESUBSCRIBE",      .purchase),
    ("ONE_TIME_CHARGE",           nil,                .purchase),
    ("DID_CHANGE_RENEWAL_PREF",   "UPGRADE",          .purchase),
    ("DID_CHANGE_RENEWAL_PREF",   "DOWNGRADE",        .unknown),
    ("DID_CHANGE_RENEWAL_PREF",   nil,                .unknown),
    ("OFFER_REDEEMED",            "UPGRADE",          .purchase),
    ("OFFER_REDEEMED",            "DOWNGRADE",        .unknown),
    ("OFFER_REDEEMED",            nil,                .unknown),
    ("DID_CHANGE_RENEWAL_STATUS", "AUTO_RENEW_DISABLED", .unknown),
    ("EXPIRED",                   "VOLUNTARY",        .unknown),
    ("REFUND",                    nil,                .unknown),
    ("REVOKE",                    nil,                .unknown),
    ("INVENTED_TOMORROW",         nil,                .unknown),
  ] as [(String, String?, ChargeKind)])
  func `a notification's kind of charge`(
    type: String, subtype: String?, kind: ChargeKind
  ) async throws {
    for reason in [nil, "PURCHASE", "RENEWAL"] as [String?] {
      let transaction = Signed.transaction
        .with(["transactionReason": reason.map { .string($0) }])
      let json = try Signed.notification(
        .string(type), subtype: subtype.map { .string($0) }, transaction: transaction)
      let text = try DraftJWS(json).text
      let evidence = try await Signed.verifier().notification(text, receivedAt: Signed.now).get()
        .evidence
      var expected = Self.expected
      expected.kind = reason.map { $0 == "RENEWAL" ? .renewal : .purchase } ?? kind
      #expect(
        evidence == [.transaction(expected), .renewalStatus(Self.status, line: Self.line)])
    }
  }
}
