import AppStoreSimulator
import Subscriptions

/// One charge under two transaction ids.
extension DemoScenario {
  static let restoredLifetime = DemoScenario(
    "11", "zeno restores what yara bought for life"
  ) { stage in
    let phone = try stage.phone("yara")
    try phone.buy("lifetime")
    try await phone.submit()
    stage.wait(.days(3))
    try phone.logIn("zeno")
    try phone.restore()
    let answer = try await phone.submit(restore: true)
    try await expectAlias(
      of: phone, "lifetime", ownedBy: "yara", answeredTo: "zeno", answer, stage)
    try await stage.expect("yara", mayUse: ["lifetime"])
    try await stage.expect("zeno", mayUse: [])
  }

  static let restoredMonth = DemoScenario(
    "12", "alma has switched off; boris restores on her phone while her month runs"
  ) { stage in
    let phone = try stage.phone("alma")
    try await phone.subscribe("monthly", offAfter: .days(10))
    try phone.logIn("boris")
    try phone.restore()
    let answer = try await phone.submit(restore: true)
    try await expectAlias(
      of: phone, "monthly", ownedBy: "alma", answeredTo: "boris", answer, stage)
    try await stage.expect("alma", mayUse: ["pro"])
    try await stage.expect("boris", mayUse: [])
  }

  /// Checks that a restored charge is found under its new id, is still its owner's, and that the
  /// other account was told so.
  private static func expectAlias(
    of phone: DemoPhone, _ product: ProductID, ownedBy owner: String, answeredTo account: String,
    _ answer: TenureClient.Submission, _ stage: DemoStage
  ) async throws {
    let charge = try phone.latest(product)
    let alias = charge.transactionIDs.last ?? charge.transactionID
    try await stage.expect("what it restores", alias, isOwnedBy: owner, .submitter)
    let found = try await stage.tenure.transaction(alias)
    stage.expect(
      found.id == charge.transactionID && found.aliases == [alias],
      "\(alias) is known as another name of \(found.id): one charge.")
    stage.expect(
      answer.warnings == ["owned_by_another_account"],
      "\(account) is told that another account owns it.")
  }
}
