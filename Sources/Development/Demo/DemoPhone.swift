import AppStoreSimulator
import struct Foundation.UUID
import Subscriptions

/// A device with the app: signed in to an Apple ID and to an account of the app.
///
/// The app's server submits its receipts to Tenure for that account. Purchases carry an app account
/// token only if one is given, as with the original StoreKit.
final class DemoPhone {
  let name: String
  let appleID: AppleID
  private(set) var account: String
  unowned let stage: DemoEnvironment

  private var id: DeviceID { DeviceID(name) }

  init(name: String, appleID: AppleID, account: String, stage: DemoEnvironment) {
    self.name = name
    self.appleID = appleID
    self.account = account
    self.stage = stage
  }

  // MARK: Customer

  /// Signs in to another account of the app; the Apple ID stays the same.
  func logIn(_ account: String) throws {
    self.account = account
    stage.accounts.insert(account)
    try stage.simulation.logIn(AppAccountID(account), on: id)
    stage.narrate("On \(name), still signed in as \(appleID), \(account) logs in to the app.")
  }

  func buy(_ product: ProductID, token: UUID? = nil) throws {
    stage.pause()
    try narrate(stage.simulation.buy(product, on: id, appAccountToken: token))
  }

  /// Buys outside the app, without an account of the app.
  func buyInSettings(_ product: ProductID) throws {
    stage.pause()
    try narrate(stage.simulation.buyInSettings(product, appleID: appleID))
  }

  func switchAutoRenew(_ isOn: Bool) throws {
    stage.pause()
    guard let line = latestSubscription?.originalTransactionID else {
      throw SimulationError(.notPossible, "\(appleID) has no subscription.")
    }
    try narrate(stage.simulation.setAutoRenew(isOn, line, on: id))
  }

  func failCard() throws {
    stage.pause()
    try stage.simulation.failCard(of: appleID)
    stage.narrate("The card of \(appleID) is declined from now on.")
  }

  func repairCard() throws {
    stage.pause()
    stage.narrate("\(appleID) has a new card.")
    try stage.simulation.repairCard(of: appleID).forEach(narrate)
  }

  /// Restores purchases: the device's receipts then contain new transaction IDs.
  func restore() throws {
    stage.pause()
    try stage.simulation.restore(on: id)
    stage.narrate("\(account) restores purchases: the receipt now has new transaction IDs.")
  }

  func narrate(_ event: SimulatedEvent) throws {
    if let text = try stage.sentence(for: event) { stage.printer.event(event.at, text) }
  }

  // MARK: App Store state

  /// The Apple ID's charges for a product, oldest first.
  func charges(_ product: ProductID) -> [SimulatedCharge] {
    stage.simulation.truth(of: appleID).filter { $0.productID == product }
  }

  func latest(_ product: ProductID) throws -> SimulatedCharge {
    guard let charge = charges(product).last else {
      throw SimulationError(.unknownProduct, "\(appleID) never bought \(product).")
    }
    return charge
  }

  /// The end of the latest paid period.
  func end(of product: ProductID) throws -> Timestamp {
    guard let end = try latest(product).expiresDate else {
      throw SimulationError(.notPossible, "\(product) has no end.")
    }
    return end
  }

  private var latestSubscription: SimulatedCharge? {
    stage.simulation.truth(of: appleID).last { $0.expiresDate != nil }
  }

  // MARK: App

  func receipt(
    naming transaction: TransactionID? = nil, order: TenureClient.Order? = nil,
    restore: Bool = false
  ) throws -> TenureClient.ReceiptSubmission {
    stage.pause()
    return TenureClient.ReceiptSubmission(
      accountID: account, receiptData: try stage.simulation.receipt(on: id),
      transactionID: transaction?.rawValue, orderID: order?.id, restore: restore)
  }

  /// Submits the receipt: all of it, one transaction, or for an order.
  @discardableResult
  func submit(
    naming transaction: TransactionID? = nil, order: TenureClient.Order? = nil,
    restore: Bool = false
  ) async throws -> TenureClient.Submission {
    try await submit(receipt(naming: transaction, order: order, restore: restore))
  }

  @discardableResult
  func submit(_ receipt: TenureClient.ReceiptSubmission) async throws -> TenureClient.Submission {
    let named = receipt.transactionID.map { " for transaction \($0)" } ?? ""
    stage.narrate("\(receipt.accountID)'s app submits the receipt\(named).")
    let answer = try await stage.tenure.submit(receipt)
    stage.narrateAnswer(answer, to: receipt.accountID)
    return answer
  }

  /// Submits a charge as StoreKit 2 signs it, with its renewal info.
  @discardableResult
  func submitSigned(_ charge: SimulatedCharge) async throws -> TenureClient.Submission {
    stage.pause()
    var signed = TenureClient.SignedSubmission(
      accountID: account,
      signedTransactions: [try stage.simulation.signedTransaction(of: charge.transactionID)])
    if charge.expiresDate != nil {
      signed.signedRenewalInfo = [
        try stage.simulation.signedRenewalInfo(of: charge.originalTransactionID)
      ]
    }
    stage.narrate("\(account)'s app submits the signed transaction.")
    let answer = try await stage.tenure.submit(signed)
    stage.narrateAnswer(answer, to: account)
    return answer
  }

  /// Buys a subscription and submits the receipt; if a time is given, turns auto-renew off after it
  /// and submits again.
  func subscribe(_ product: ProductID, offAfter time: Duration? = nil) async throws {
    try buy(product)
    try await submit()
    guard let time else { return }
    stage.wait(time)
    try switchAutoRenew(false)
    try await submit()
  }

  /// Submits the receipt and holds Apple's response until a body has run.
  func submit(
    naming transaction: TransactionID? = nil, meanwhile: () async throws -> Void
  ) async throws {
    let receipt = try receipt(naming: transaction)
    let stuck = stage.network.hold(receipt.receiptData)
    let tenure = stage.tenure
    stage.narrate(
      "\(receipt.accountID)'s app submits the receipt. Apple's response is delayed.")
    async let answer = {
      defer { stuck.isGiven.open() }
      return try await tenure.submit(receipt)
    }()
    do {
      await stuck.isGiven.wait()
      try await meanwhile()
    } catch {
      stuck.mayArrive.open()
      throw error
    }
    stage.narrate("Apple's delayed response arrives.")
    stuck.mayArrive.open()
    stage.narrateAnswer(try await answer, to: receipt.accountID)
    stage.network.repair(receipt.receiptData)
  }
}

/// Actions by Apple and by family members.
extension DemoPhone {
  func refund(_ charge: SimulatedCharge) throws {
    stage.pause()
    try narrate(stage.simulation.refund(charge.transactionID))
  }

  func reverseRefund(_ charge: SimulatedCharge) throws {
    stage.pause()
    try narrate(stage.simulation.reverseRefund(charge.transactionID))
  }

  func migrate(_ charge: SimulatedCharge) throws {
    stage.pause()
    try narrate(stage.simulation.migrate(charge.originalTransactionID))
  }

  /// Adds a family member and shares eligible purchases.
  func share(with member: DemoPhone) throws {
    stage.pause()
    try stage.simulation.addFamilyMember(member.appleID, of: appleID)
    stage.narrate("\(appleID) adds \(member.appleID) to the family and shares purchases.")
  }

  func leaveFamily() throws {
    stage.pause()
    stage.narrate("\(appleID) leaves the family.")
    try stage.simulation.revokeFamilyAccess(of: appleID).forEach(narrate)
  }
}
