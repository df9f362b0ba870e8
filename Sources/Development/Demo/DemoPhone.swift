import AppStoreSimulator
import struct Foundation.UUID
import Subscriptions

/// A device with the app on it: an Apple ID is signed in, and an account of the app.
///
/// Its app sends receipts to the app's server, which submits them to Tenure for the account that is
/// logged in. Purchases carry no token unless one is given, as with the first StoreKit.
final class DemoPhone {
  let name: String
  let appleID: AppleID
  private(set) var account: String
  /// The stage keeps its phones.
  unowned let stage: DemoStage

  private var id: DeviceID { DeviceID(name) }

  init(name: String, appleID: AppleID, account: String, stage: DemoStage) {
    self.name = name
    self.appleID = appleID
    self.account = account
    self.stage = stage
  }

  // MARK: The customer's side

  /// Logs another account in; the Apple ID stays.
  func logIn(_ account: String) throws {
    self.account = account
    try stage.simulation.logIn(AppAccountID(account), on: id)
    stage.tell("On \(name), where \(appleID) stays signed in, \(account) logs in to the app.")
  }

  func buy(_ product: ProductID, token: UUID? = nil) throws {
    stage.pause()
    try tell(stage.simulation.buy(product, on: id, appAccountToken: token))
  }

  /// Buys outside the app, where no account of the app is involved.
  func buyInSettings(_ product: ProductID) throws {
    stage.pause()
    try tell(stage.simulation.buyInSettings(product, appleID: appleID))
  }

  func switchAutoRenew(_ isOn: Bool) throws {
    stage.pause()
    guard let line = latestSubscription?.originalTransactionID else {
      throw SimulationError(.notPossible, "\(appleID) has no subscription.")
    }
    try tell(stage.simulation.setAutoRenew(isOn, line, on: id))
  }

  func failCard() throws {
    stage.pause()
    try stage.simulation.failCard(of: appleID)
    stage.tell("From now on the card of \(appleID) is declined.")
  }

  func repairCard() throws {
    stage.pause()
    stage.tell("\(appleID) has a new card.")
    try stage.simulation.repairCard(of: appleID).forEach(tell)
  }

  /// Restores purchases; the device's receipts call each charge by a new transaction id then.
  func restore() throws {
    stage.pause()
    try stage.simulation.restore(on: id)
    stage.tell("\(account) restores purchases: the receipt has new transaction ids now.")
  }

  func tell(_ event: SimulatedEvent) throws {
    if let text = try stage.sentence(for: event) { stage.printer.event(event.at, text) }
  }

  // MARK: The truth

  /// The charges that this Apple ID paid for a product, in order.
  func charges(_ product: ProductID) -> [SimulatedCharge] {
    stage.simulation.truth(of: appleID).filter { $0.productID == product }
  }

  /// The latest of them.
  func latest(_ product: ProductID) throws -> SimulatedCharge {
    guard let charge = charges(product).last else {
      throw SimulationError(.unknownProduct, "\(appleID) never bought \(product).")
    }
    return charge
  }

  /// The end of the latest period that was paid for.
  func end(of product: ProductID) throws -> Timestamp {
    guard let end = try latest(product).expiresDate else {
      throw SimulationError(.notPossible, "\(product) has no end.")
    }
    return end
  }

  private var latestSubscription: SimulatedCharge? {
    stage.simulation.truth(of: appleID).last { $0.expiresDate != nil }
  }

  // MARK: The app's side

  /// The device's receipt, as the app's server would submit it.
  func receipt(
    naming transaction: TransactionID? = nil, order: TenureClient.Order? = nil,
    restore: Bool = false
  ) throws -> TenureClient.ReceiptSubmission {
    stage.pause()
    return TenureClient.ReceiptSubmission(
      accountID: account, receiptData: try stage.simulation.receipt(on: id),
      transactionID: transaction?.rawValue, orderID: order?.id, restore: restore)
  }

  /// Submits the receipt: all of it, one transaction of it, or for an order.
  @discardableResult
  func submit(
    naming transaction: TransactionID? = nil, order: TenureClient.Order? = nil,
    restore: Bool = false
  ) async throws -> TenureClient.Submission {
    try await submit(receipt(naming: transaction, order: order, restore: restore))
  }

  @discardableResult
  func submit(_ receipt: TenureClient.ReceiptSubmission) async throws -> TenureClient.Submission {
    let named = receipt.transactionID.map { ", naming transaction \($0)" } ?? ""
    stage.tell("\(receipt.accountID)'s session submits the receipt\(named).")
    let answer = try await stage.tenure.submit(receipt)
    stage.tellAnswer(answer, to: receipt.accountID)
    return answer
  }

  /// Submits a charge as StoreKit 2 gives it to the app, signed by Apple, with what Apple says of
  /// its renewal.
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
    stage.tell("\(account)'s session submits the transaction that Apple has signed.")
    let answer = try await stage.tenure.submit(signed)
    stage.tellAnswer(answer, to: account)
    return answer
  }

  /// Buys a subscription and submits the receipt; switches renewal off after a time, if one is
  /// given, and submits that, too.
  func subscribe(_ product: ProductID, offAfter time: Duration? = nil) async throws {
    try buy(product)
    try await submit()
    guard let time else { return }
    stage.wait(time)
    try switchAutoRenew(false)
    try await submit()
  }

  /// Submits the receipt; Apple answers at once, but its answer arrives only after what happens
  /// meanwhile.
  func submit(
    naming transaction: TransactionID? = nil, meanwhile: () async throws -> Void
  ) async throws {
    let receipt = try receipt(naming: transaction)
    let stuck = stage.network.hold(receipt.receiptData)
    let tenure = stage.tenure
    stage.tell(
      "\(receipt.accountID)'s session submits the receipt. Apple answers, but the answer is stuck.")
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
    stage.tell("Apple's old answer arrives at last.")
    stuck.mayArrive.open()
    stage.tellAnswer(try await answer, to: receipt.accountID)
    stage.network.mend(receipt.receiptData)
  }
}

/// What Apple does for the customer, or to the customer.
extension DemoPhone {
  func refund(_ charge: SimulatedCharge) throws {
    stage.pause()
    try tell(stage.simulation.refund(charge.transactionID))
  }

  func reverseRefund(_ charge: SimulatedCharge) throws {
    stage.pause()
    try tell(stage.simulation.reverseRefund(charge.transactionID))
  }

  /// Lets the subscription go on under another original transaction id.
  func migrate(_ charge: SimulatedCharge) throws {
    stage.pause()
    try tell(stage.simulation.migrate(charge.originalTransactionID))
  }

  /// Takes somebody into the family, with whom it shares what it can.
  func share(with member: DemoPhone) throws {
    stage.pause()
    try stage.simulation.addFamilyMember(member.appleID, of: appleID)
    stage.tell("\(appleID) takes \(member.appleID) into the family, and shares what was bought.")
  }

  func leaveFamily() throws {
    stage.pause()
    stage.tell("\(appleID) leaves the family.")
    try stage.simulation.revokeFamilyAccess(of: appleID).forEach(tell)
  }
}
