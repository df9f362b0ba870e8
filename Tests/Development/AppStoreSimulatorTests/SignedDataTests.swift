import AppStore
import AppStoreSimulator
import Crypto
import Foundation
import JSONText
import Subscriptions
import SwiftASN1
import Testing
import X509

/// The simulated Apple's signed data: in Apple's format, with the state known at the time.
struct SignedDataTests {
  private let stage: Stage
  private var simulation: AppStoreSimulation { stage.simulation }

  init() throws {
    stage = try Stage()
  }

  private func transaction(_ id: TransactionID) throws -> JWSTransactionDecodedPayload {
    try JWSTransactionDecodedPayload(
      json: try SignedParts(try simulation.signedTransaction(of: id)).payload)
  }

  private func renewal(_ line: OriginalTransactionID) throws -> JWSRenewalInfoDecodedPayload {
    try JWSRenewalInfoDecodedPayload(
      json: try SignedParts(try simulation.signedRenewalInfo(of: line)).payload)
  }

  @Test func chainAndSignatureAreInApplesForm() throws {
    let purchase = try simulation.buy("monthly", on: "phone")
    let parts = try SignedParts(try simulation.signedTransaction(of: purchase.transactionID))
    #expect(parts.header["alg"] == "ES256")
    #expect(parts.header.keys == ["alg", "x5c"])
    #expect(parts.chain.count == 3)
    #expect(parts.isSigned)
    let (leaf, intermediate, root) = (parts.chain[0], parts.chain[1], parts.chain[2])
    #expect(leaf.extensions[oid: [1, 2, 840, 113635, 100, 6, 11, 1]] != nil)
    #expect(intermediate.extensions[oid: [1, 2, 840, 113635, 100, 6, 2, 1]] != nil)
    #expect(intermediate.publicKey.isValidSignature(leaf.signature, for: leaf))
    #expect(root.publicKey.isValidSignature(intermediate.signature, for: intermediate))
    #expect(root.publicKey.isValidSignature(root.signature, for: root))
    #expect(P384.Signing.PublicKey(intermediate.publicKey) != nil)
    #expect(P384.Signing.PublicKey(root.publicKey) != nil)
    #expect(try Certificate(pemEncoded: simulation.rootCertificatePEM) == root)
    let decade = 3_652.0 * 86_400
    let start = Date(timeIntervalSince1970: Double(Stage.start.milliseconds) / 1000)
    for certificate in parts.chain {
      #expect(certificate.notValidBefore < start - decade)
      #expect(certificate.notValidAfter > start + decade)
    }
  }

  @Test func whoTrustsTheRootBelievesWhatIsSigned() async throws {
    let bought = try simulation.buy("monthly", on: "phone")
    let verifier = try stage.verifier()
    let transaction = try await verifier.transaction(
      try simulation.signedTransaction(of: bought.transactionID)
    ).get()
    #expect(transaction.record.kind == .purchase)
    #expect(
      transaction.record.key.line
        == OriginalTransactionKey(.production, bought.originalTransactionID))
    let info = try await verifier.renewalInfo(
      try simulation.signedRenewalInfo(of: bought.originalTransactionID)
    ).get()
    #expect(info.status(latest: transaction.record).autoRenews == true)
    let app = try await verifier.appTransaction(
      try simulation.signedAppTransaction(on: "phone")
    ).get()
    #expect(app.bundleID == SimulatedApp.sample.bundleID)
    // Decades later, too, but not with another root.
    try simulation.setAutoRenew(false, bought.originalTransactionID)
    simulation.advance(by: .days(36_500))
    let late = try simulation.signedTransaction(of: bought.transactionID)
    _ = try await verifier.transaction(late).get()
    await #expect(throws: SignedDataError.self) {
      _ = try await Stage().verifier().transaction(late).get()
    }
  }

  @Test func everySimulationHasARootOfItsOwn() throws {
    let other = try Stage()
    #expect(simulation.rootCertificatePEM != other.simulation.rootCertificatePEM)
    let shared = try SimulatedSigner()
    let first = try AppStoreSimulation(configuration: .init(seed: 1, signer: shared))
    let second = try AppStoreSimulation(configuration: .init(seed: 2, signer: shared))
    #expect(first.rootCertificatePEM == second.rootCertificatePEM)
  }

  @Test func purchaseAndRenewal() throws {
    let token = UUID()
    let event = try simulation.buy("monthly", on: "phone", appAccountToken: token)
    try stage.advance(to: "2026-02-01T12:00:00Z")
    let charges = simulation.truth()
    let purchase = try transaction(event.transactionID)
    #expect(purchase.transactionID == event.transactionID.rawValue)
    #expect(purchase.originalTransactionID == event.originalTransactionID.rawValue)
    #expect(purchase.webOrderLineItemID == charges[0].webOrderLineItemID?.rawValue)
    #expect(purchase.bundleID == SimulatedApp.sample.bundleID)
    #expect(purchase.productID == "monthly")
    #expect(purchase.subscriptionGroupIdentifier == "20500001")
    #expect(purchase.purchaseDate == Stage.start)
    #expect(purchase.originalPurchaseDate == Stage.start + .seconds(1))
    #expect(purchase.expiresDate == Timestamp(rfc3339: "2026-02-01T00:00:00Z"))
    #expect(purchase.quantity == 1)
    #expect(purchase.type == .autoRenewable)
    #expect(purchase.appAccountToken == token.uuidString.lowercased())
    #expect(purchase.inAppOwnershipType == .purchased)
    #expect(purchase.signedDate == simulation.now)
    #expect(purchase.environment == .production)
    #expect(purchase.transactionReason == .purchase)
    #expect(purchase.storefront == "USA")
    #expect(purchase.storefrontID == "143441")
    #expect(purchase.price == 9_990)
    #expect(purchase.currency == "USD")
    #expect(purchase.revocationDate == nil)
    #expect(purchase.isUpgraded == nil)
    #expect(purchase.offerType == nil)
    let next = try transaction(charges[1].transactionID)
    #expect(next.transactionReason == .renewal)
    #expect(next.originalTransactionID == purchase.originalTransactionID)
    #expect(next.purchaseDate == purchase.expiresDate)
    #expect(next.appAccountToken == purchase.appAccountToken)
    #expect(next.appTransactionID == purchase.appTransactionID)

    let info = try renewal(event.originalTransactionID)
    #expect(info.originalTransactionID == event.originalTransactionID.rawValue)
    #expect(info.productID == "monthly")
    #expect(info.autoRenewProductID == "monthly")
    #expect(info.autoRenewStatus == 1)
    #expect(info.renewalDate == next.expiresDate)
    #expect(info.renewalPrice == 9_990)
    #expect(info.recentSubscriptionStartDate == Stage.start)
    #expect(info.appAccountToken == purchase.appAccountToken)
    #expect(info.environment == .production)
    #expect(info.signedDate == simulation.now)
    #expect(info.expirationIntent == nil)
  }

  @Test func everyKindOfProduct() throws {
    for (product, type) in [
      ("coins.100", ProductTypeName.consumable), ("lifetime", .nonConsumable),
      ("season.pass", .nonRenewing), ("monthly", .autoRenewable),
    ] as [(ProductID, ProductTypeName)] {
      let event = try simulation.buy(product, on: "phone")
      let payload = try transaction(event.transactionID)
      #expect(payload.type == type)
      #expect((payload.expiresDate != nil) == (type == .autoRenewable))
      #expect((payload.webOrderLineItemID != nil) == (type == .autoRenewable))
    }
    let coins = try simulation.buy("coins.100", on: "phone", quantity: 3)
    #expect(try transaction(coins.transactionID).price == 3 * 990)
    #expect(throws: SimulationError.self) {
      try simulation.signedRenewalInfo(of: coins.originalTransactionID)
    }
  }

  @Test func offers() throws {
    let trial = try transaction(try simulation.buy("yearly", on: "phone").transactionID)
    #expect(trial.offerType == 1)
    #expect(trial.offerDiscountType == .freeTrial)
    #expect(trial.offerPeriod == "P7D")
    #expect(trial.price == 0)
    let promotion = SimulatedOffer(.promotional, "winter", priceMilliunits: 1_000)
    let discounted = try transaction(
      try simulation.buy("news.weekly", on: "phone", offer: promotion).transactionID)
    #expect(discounted.offerType == 2)
    #expect(discounted.offerIdentifier == "winter")
    #expect(discounted.offerDiscountType == .payUpFront)
    #expect(discounted.price == 1_000)
  }

  @Test func refundAndItsReversal() throws {
    let event = try simulation.buy("monthly", on: "phone")
    try stage.advance(to: "2026-01-10T00:00:00Z")
    try simulation.refund(event.transactionID, reason: "1")
    let refunded = try transaction(event.transactionID)
    #expect(refunded.revocationDate == Timestamp(rfc3339: "2026-01-10T00:00:00Z"))
    #expect(refunded.revocationReason == 1)
    #expect(refunded.revocationType == "REFUND_FULL")
    #expect(refunded.revocationPercentage == 100_000)
    #expect(try simulation.currentEntitlements(on: "phone").isEmpty)
    simulation.advance(by: .hours(1))
    try simulation.reverseRefund(event.transactionID)
    let reversed = try transaction(event.transactionID)
    #expect(reversed.revocationDate == nil)
    #expect(reversed.revocationReason == nil)
    #expect(reversed.revocationPercentage == nil)
    #expect(try simulation.currentEntitlements(on: "phone").count == 1)
  }

  @Test func upgrade() throws {
    let old = try simulation.buy("monthly", on: "phone")
    simulation.advance(by: .days(3))
    let new = try simulation.buy("premium", on: "phone")
    #expect(try transaction(old.transactionID).isUpgraded == true)
    #expect(try transaction(new.transactionID).isUpgraded == nil)
    #expect(try transaction(new.transactionID).transactionReason == .purchase)
    #expect(try renewal(new.originalTransactionID).productID == "premium")
  }

  @Test func renewalInfoFollowsTheSubscription() throws {
    let line = try simulation.buy("monthly", on: "phone").originalTransactionID
    try simulation.setAutoRenew(false, line)
    #expect(try renewal(line).autoRenewStatus == 0)
    try simulation.setAutoRenew(true, line)
    try simulation.buy("quarterly", on: "phone")
    #expect(try renewal(line).autoRenewProductID == "quarterly")
    try simulation.raisePrice(of: "quarterly", to: 29_990, needsConsent: true)
    #expect(try renewal(line).priceIncreaseStatus == 0)
    try simulation.acceptPrice(line)
    #expect(try renewal(line).priceIncreaseStatus == 1)
    #expect(try renewal(line).renewalPrice == 29_990)
    try simulation.failCard(of: "ada")
    try stage.advance(to: "2026-02-02T00:00:00Z")
    let failed = try renewal(line)
    #expect(failed.isInBillingRetryPeriod == true)
    #expect(failed.expirationIntent == 2)
    #expect(failed.gracePeriodExpiresDate == Timestamp(rfc3339: "2026-02-17T00:00:00Z"))
    try stage.advance(to: "2026-02-20T00:00:00Z")
    #expect(try renewal(line).gracePeriodExpiresDate == nil)
    #expect(try renewal(line).isInBillingRetryPeriod == true)
    try stage.advance(to: "2026-05-01T00:00:00Z")
    let ended = try renewal(line)
    #expect(ended.isInBillingRetryPeriod == false)
    #expect(ended.autoRenewStatus == 0)
    try simulation.repairCard(of: "ada")
    try simulation.buy("monthly", on: "phone")
    #expect(try renewal(line).recentSubscriptionStartDate == simulation.now)
  }

  @Test func familyMembersSeeTheirOwn() throws {
    try simulation.addAppleID("bob")
    try simulation.addDevice("bob's phone", appleID: "bob")
    try simulation.addFamilyMember("bob", of: "ada")
    let token = UUID()
    let event = try simulation.buy("premium", on: "phone", appAccountToken: token)
    let shared = try #require(simulation.truth(of: "bob").first)
    let payload = try transaction(shared.transactionID)
    #expect(payload.inAppOwnershipType == .familyShared)
    #expect(payload.originalTransactionID != event.originalTransactionID.rawValue)
    #expect(payload.appAccountToken == nil)
    #expect(payload.price == nil)
    #expect(try simulation.currentEntitlements(on: "bob's phone").count == 1)
    try simulation.revokeFamilyAccess(of: "bob")
    let revoked = try transaction(shared.transactionID)
    #expect(revoked.revocationDate != nil)
    #expect(revoked.revocationType == "FAMILY_REVOKE")
    #expect(try simulation.currentEntitlements(on: "bob's phone").isEmpty)
  }

  @Test func restoringGivesSignedDataNoOtherIDs() throws {
    let event = try simulation.buy("monthly", on: "phone")
    let restored = try simulation.restore(on: "phone")
    let alias = try #require(restored.first?.transactionID)
    #expect(alias != event.transactionID)
    #expect(try transaction(alias).transactionID == event.transactionID.rawValue)
    let all = try simulation.signedTransactions(on: "phone").map { try SignedParts($0).payload }
    #expect(all.map { $0["transactionId"]?.string } == [event.transactionID.rawValue])
  }

  @Test func whatADeviceSees() throws {
    try simulation.buy("monthly", on: "phone")
    let coins = try simulation.buy("coins.100", on: "phone")
    try simulation.buy("lifetime", on: "phone")
    #expect(try simulation.signedTransactions(on: "phone").count == 3)
    try simulation.finish(coins.transactionID)
    #expect(try simulation.signedTransactions(on: "phone").count == 2)
    #expect(try simulation.currentEntitlements(on: "phone").count == 2)
    #expect(try simulation.signedRenewalInfos(on: "phone").count == 1)
    let app = try JWSAppTransactionDecodedPayload(
      json: try SignedParts(try simulation.signedAppTransaction(on: "phone")).payload)
    #expect(app.bundleID == SimulatedApp.sample.bundleID)
    #expect(app.appAppleID == Int64(SimulatedApp.sample.appAppleID))
    #expect(app.receiptType == .production)
    try simulation.addAppleID("bob")
    try simulation.addDevice("tablet", appleID: "bob")
    #expect(try simulation.signedTransactions(on: "tablet").isEmpty)
  }
}
