/// One small story, told on the stage: what people do, and what has to come out.
struct DemoScenario: Sendable {
  /// As the worked scenarios of the ownership rule are numbered; letters for those beyond.
  let number: String
  let title: String
  let play: @Sendable (DemoStage) async throws -> Void

  init(
    _ number: String, _ title: String, play: @escaping @Sendable (DemoStage) async throws -> Void
  ) {
    self.number = number
    self.title = title
    self.play = play
  }

  /// What happened in the past years, in this order.
  static let past = [
    renewalUnderAnotherLogin, purchaseAfterLapse, renewalOfThePurchase, upgradeAfterOff,
    changeAtRenewal, newsBeforeSubmission, recoveryAfterRetry, unknownRecovery,
    purchaseAfterMonths, purchaseAfterRefund, onAfterThePurchase, renewalNobodySubmits,
    resubscriptionNobodySubmits, restoredLifetime, restoredMonth, refundOfAnOldMonth, lateOff,
    earlyRenewal, renewalOfAnUnclaimedPurchase, offAfterEarlyCharge, correction,
    oldSubmission, lostOrder, refund,
  ]

  /// What happens today.
  static let today = [
    appleIsDown, sentTwice, fiftyAtOnce, signedWhileAppleIsDown, disorderAndForgery,
    reversedRefund, doorbell, revokedShare, purchaseFoundByToken, movedSubscription,
    foundInHistory,
  ]
}
