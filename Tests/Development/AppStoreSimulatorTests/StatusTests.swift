import AppStore
import AppStoreSimulator
import JSONText
import Subscriptions
import Testing

/// The statuses that verifyReceipt answers on its own account.
struct StatusTests {
  private let stage: Stage

  init() throws {
    stage = try Stage()
    try stage.simulation.buy("monthly", on: "phone")
  }

  private func status(_ body: [UInt8], at endpoint: Environment = .production) throws -> Int64? {
    try JSONValue(parsing: stage.simulation.verifyReceipt(body, at: endpoint).body).status
  }

  @Test(arguments: [
    ("", 21000), ("receipt-data=x", 21000), ("[]", 21000), ("{}", 21002),
    (#"{"receipt-data": ""}"#, 21002), (#"{"receipt-data": 5}"#, 21002),
    (#"{"receipt-data": "no base64!"}"#, 21002), (#"{"receipt-data": "YWJj"}"#, 21002),
    (#"{"receipt-data": "e30="}"#, 21002),
  ])
  func garbage(_ body: String, _ expected: Int64) throws {
    #expect(try status(Array(body.utf8)) == expected)
  }

  @Test func notAPost() throws {
    let answer = stage.simulation.verifyReceiptWithoutPost()
    #expect(try JSONValue(parsing: answer.body).status == 21000)
  }

  @Test func whiteSpaceInBase64() throws {
    let receipt = try stage.simulation.receipt(on: "phone")
    let broken = receipt.prefix(40) + " " + receipt.dropFirst(40)
    #expect(try stage.answer(to: String(broken)).status == 21002)
  }

  @Test func receiptOfAnotherSimulation() throws {
    let other = try Stage(seed: 2)
    try other.simulation.buy("monthly", on: "phone")
    #expect(try stage.answer(to: try other.simulation.receipt(on: "phone")).status == 21003)
    #expect(try stage.answer(to: try stage.simulation.receipt(on: "phone")).status == 0)
  }

  @Test func sharedSecret() throws {
    let receipt = try stage.simulation.receipt(on: "phone")
    #expect(try stage.answer(to: receipt, password: nil).status == 21004)
    #expect(try stage.answer(to: receipt, password: "wrong").status == 21004)
    try stage.simulation.addAppleID("bob")
    try stage.simulation.addDevice("tablet", appleID: "bob")
    let empty = try stage.answer(to: try stage.simulation.receipt(on: "tablet"), password: nil)
    #expect(empty.status == 0)
    #expect(empty.inApp.isEmpty)
  }

  @Test func environments() throws {
    let production = try stage.simulation.receipt(on: "phone")
    #expect(try stage.answer(to: production, at: .sandbox).status == 21008)
    try stage.simulation.addAppleID("tester", environment: .sandbox)
    try stage.simulation.addDevice("test phone", appleID: "tester")
    try stage.simulation.buy("monthly", on: "test phone")
    let sandbox = try stage.simulation.receipt(on: "test phone")
    let refused = try stage.answer(to: sandbox, at: .production)
    #expect(refused.status == 21007)
    #expect(refused.keys == ["status"])
    #expect(try stage.answer(to: sandbox, at: .sandbox).status == 0)
    stage.simulation.setQuirks([.receiptWithWrongEnvironment])
    #expect(try stage.answer(to: sandbox, at: .production)["receipt"] != nil)
  }

  @Test func deletedAppleID() throws {
    let receipt = try stage.simulation.receipt(on: "phone")
    try stage.simulation.deleteAppleID("ada")
    #expect(try stage.answer(to: receipt).status == 21010)
  }
}
