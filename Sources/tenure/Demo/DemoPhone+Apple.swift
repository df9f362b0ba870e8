import AppStoreSimulator
import Subscriptions

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
